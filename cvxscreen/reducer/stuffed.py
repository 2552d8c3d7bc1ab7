"""A problem as CVXPY hands it to a conic solver, read as a `Standard`.

::

    minimise  1/2 <x, P x> + <c, x>     subject to    b - A x in K

Only numbers are left here: no expressions, no names. What a rule can prove from numbers alone is
proven as for any other problem.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from cvxpy.reductions.solvers.solver import Solver

from cvxscreen.errors import NotScreenable
from cvxscreen.reducer.stack import Stack
from cvxscreen.reducer.standard import Cone, Standard


@dataclass(frozen=True, eq=False)
class Stuffed:
    """Stands where a `Canonical` does; there is no problem of the user's to go back to.

    Attributes
    ----------
    own : dict of int to cvxpy.Variable
        The variables that rules take for the user's.
    """

    own: dict[int, Any]
    original: Any = None
    sign: float = field(default=1.0, init=False)

    def current(self) -> None:
        """No values are known."""


def read_stuffed(data: dict[str, Any]) -> Standard:
    """The numbers of a conic problem.

    Parameters
    ----------
    data : dict
        As given to a conic solver's ``solve_via_data``.

    Raises
    ------
    NotScreenable
        For cones other than zero, non-negative and second-order, or integer variables.
    """
    dims = data[Solver.DIMS]
    if dims.psd or dims.exp or dims.p3d or getattr(dims, "pnd", None):
        raise NotScreenable("the stuffed problem has PSD, exponential or power cones")
    if data.get(cp.settings.BOOL_IDX) or data.get(cp.settings.INT_IDX):
        raise NotScreenable("the problem has integer or boolean variables")
    if data.get(cp.settings.LOWER_BOUNDS) is not None:
        raise NotScreenable("the stuffed problem has bounds beside its rows")
    linear = np.asarray(data[cp.settings.C], dtype=np.float64)
    offset = np.asarray(data[cp.settings.B], dtype=np.float64)
    rows = sp.csr_array(-sp.csr_array(data[cp.settings.A]))
    rows.eliminate_zeros()
    squares = data.get(cp.settings.P)
    size = len(linear)
    quadratic = sp.csr_array((size, size)) if squares is None else sp.csr_array(squares)
    quadratic.eliminate_zeros()
    numbers = (linear, offset, rows.data, quadratic.data)
    if not all(np.isfinite(part).all() for part in numbers):
        raise NotScreenable("the data hold NaN or infinity")
    program = data[cp.settings.PARAM_PROB]
    variables = sorted(program.variables, key=lambda v: program.var_id_to_col[v.id])
    starts = np.concatenate([[0], np.cumsum([v.size for v in variables])]).astype(np.intp)
    if starts[-1] != size:
        raise NotScreenable("the variables of the stuffed problem do not fill its columns")
    canonical: Any = Stuffed({v.id: v for v in variables})
    return Standard(
        canonical, tuple(variables), starts, quadratic, linear, 0.0,
        Stack(rows, (), offset), tuple(_cones(dims)),
    )


def _cones(dims: Any) -> list[Cone]:
    sizes = [("zero", dims.zero), ("nonneg", dims.nonneg), *(("soc", k) for k in dims.soc)]
    out: list[Cone] = []
    row = 0
    for kind, size in sizes:
        if size:
            out.append(Cone(kind, slice(row, row + int(size)), int(size), len(out)))
            row += int(size)
    return out
