"""From the numbers of a canonical problem to a regularised sum of losses, or a reason why not.

The rules run one after the other on a `Draft`; what no rule touches stays: columns as core
coordinates, rows as side constraints. The result is exact, because every rule is a minimisation
over the columns that it removes.

The front of the recogniser: a ``cvxpy.Problem`` in, a `Recognition` or a refusal out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen.core.cones import SideConstraints
from cvxscreen.core.losses import Losses
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.core.quadratic import ZeroQuadratic
from cvxscreen.cvxpy_plugin.recognise import elimination as substitution
from cvxscreen.cvxpy_plugin.recognise import epigraph
from cvxscreen.cvxpy_plugin.recognise import epigraph as heads
from cvxscreen.cvxpy_plugin.recognise import max_affine as largest
from cvxscreen.cvxpy_plugin.recognise import merging as shrinkages
from cvxscreen.cvxpy_plugin.recognise import partial_minimisation as splitting
from cvxscreen.cvxpy_plugin.recognise.affine import diagonal
from cvxscreen.cvxpy_plugin.recognise.check import check
from cvxscreen.cvxpy_plugin.recognise.elimination import Draft, settle, without_columns
from cvxscreen.cvxpy_plugin.recognise.merging import pair
from cvxscreen.cvxpy_plugin.recognise.partial_minimisation import absorb
from cvxscreen.cvxpy_plugin.recognise.recognition import Parts, Recognition, idle
from cvxscreen.cvxpy_plugin.recognise.standard import Stack, Standard, standardise
from cvxscreen.cvxpy_plugin.recognise.symbolic import canonicalise
from cvxscreen.errors import InvalidInput, NotScreenable

Array = NDArray[np.float64]
Index = NDArray[np.intp]

FAMILIAR = frozenset(
    (
        "abs", "huber", "max", "maximum", "norm1", "pos", "neg", "Pnorm", "PnormApprox", "Power",
        "PowerApprox", "QuadForm", "quad_over_lin", "AddExpression", "NegExpression",
        "MulExpression", "multiply", "DivExpression", "Sum", "Promote", "index", "special_index",
        "reshape", "transpose", "Hstack", "Vstack", "Concatenate", "broadcast_to", "Trace",
        "diag_mat", "diag_vec", "upper_tri", "kron", "cumsum",
    )
)
"""Atoms that are not worth naming in a refusal."""

DENSE_LIMIT = 3000
"""A quadratic term that is not diagonal is taken up to this many coordinates."""


def recognise_standard(standard: Standard, *, beside: bool = False) -> Recognition:
    """Apply all rules to `standard`.

    Parameters
    ----------
    beside : bool
        Whether maxima with different data are taken, as a part beside the losses.

    Raises
    ------
    NotScreenable
        If what is left is not a strongly convex regulariser plus at least one loss.
    """
    draft = Draft.of(standard, beside=beside)
    heads.bound_heads(draft)
    heads.square_heads(draft)
    pairs = splitting.find(draft)
    substitution.eliminate(draft, pairs.reserved(standard.rows.shape[0]))
    base = draft.constant - standard.constant
    epigraph.nest(draft)
    epigraph.fold(draft)
    splitting.fold(draft, pairs)
    return _finish(draft, base)


def _finish(draft: Draft, base: float) -> Recognition:
    """Collect what the rules left; `base` is what they added to the constant before any loss."""
    standard = draft.standard
    m = standard.rows.shape[0]
    arguments, numbers = draft.terms.merged(m)
    if not len(numbers) and not draft.largest:
        raise NotScreenable(_no_loss(draft))
    settled = settle(draft, arguments)
    tilt = standard.rows.combine(settle(draft, sp.csr_array(draft.tilt[None, :])))
    tilted = tilt.adjoint(np.ones(1))
    linear = draft.linear + tilted
    constant = draft.constant + float(tilt.offset[0])
    side, dims, held = _side_rows(draft)
    numbers, absorbed = absorb(draft, settled, numbers, linear, held)
    if absorbed:
        side, dims, held = _side_rows(draft)
    rows = without_columns(standard.rows.combine(settled), draft.gone)
    numbers[:, 0] -= rows.offset
    pairing, numbers = pair(rows, numbers)
    if len(pairing.first) < pairing.found:
        rows = without_columns(standard.rows.combine(settled[pairing.first]), draft.gone)
    core = np.flatnonzero(~draft.gone)
    quadratic = sp.csr_array(draft.quadratic[core][:, core])
    per_row, per_column = rows.filled()
    maxima = largest.collect(draft)
    touched = per_column[core] > 0
    if maxima is not None:
        touched |= np.bincount(maxima.rows.indices, minlength=standard.size)[core] > 0
    loose = np.diff(quadratic.indptr) == 0
    bound = held.filled()[1][core] > 0
    shrinkage, alone = None, False
    if not (quadratic.nnz or dims or draft.beside or linear[core].any()) and maxima is None:
        alone = shrinkages.find(rows, numbers, core[touched], quadratic) is not None
    drop = ~touched if alone else _check_free(draft, core, touched, loose, bound, linear[core])
    if maxima is None:
        _check_data(per_row, touched)
    steps = [*draft.steps, idle(core[drop], standard.size)] if drop.any() else draft.steps
    kept = core[~drop]
    square = sp.csr_array(draft.quadratic[kept][:, kept])
    if not (dims or draft.beside):
        shrinkage = shrinkages.find(rows, numbers, kept, square)
    if shrinkage is not None:
        numbers = numbers[shrinkage.rest]
        rows = rows.combine(sp.csr_array(sp.eye_array(rows.shape[0], format="csr"))[shrinkage.rest])
    try:
        design, order = rows.design(kept)
        core = kept[order]
        penalty, tilts = None, np.zeros(len(core))
        if shrinkage is not None:
            shrinkage = shrinkage.reordered(order)
            penalty = shrinkage.penalty(len(core))
            tilts = shrinkage.total(shrinkage.tilts, len(core))
        frame = sp.csr_array(held.columns(core)) if dims else None
        problem = Problem(
            design=design,
            losses=Losses(*numbers.T),
            quadratic=ZeroQuadratic(np.zeros(len(core))) if alone else _quadratic(
                sp.csr_array(draft.quadratic[core][:, core])
            ),
            linear=linear[core] + tilts,
            constant=constant,
            penalty=penalty,
            side=SideConstraints(frame, held.offset, dims) if dims else None,
            kind="cvxpy",
        )
        _ = problem.quadratic.floor
    except (InvalidInput, np.linalg.LinAlgError) as error:
        raise NotScreenable(str(error)) from None
    level = constant - standard.constant - base
    parts = Parts(draft.linear[core], tilted[core] + tilts, base, level)
    if maxima is not None:
        maxima = replace(maxima, rows=sp.csr_array(maxima.rows[:, core]))
    return Recognition(
        problem, standard, core, tuple(steps), side, pairing, parts, shrinkage, maxima
    )


def _side_rows(draft: Draft) -> tuple[Any, tuple[tuple[str, int], ...], Stack]:
    """The rows that stay constraints: as combinations, their cones, and without defined columns."""
    kinds = draft.standard.kinds()
    zero = draft.heads[np.flatnonzero((kinds == "zero") & ~draft.used)]
    parts, dims = [zero, draft.open], [("zero", zero.shape[0]), ("nonneg", draft.open.shape[0])]
    for cone in draft.standard.cones:
        if cone.kind in ("soc", "psd") and not draft.used[cone.rows.start]:
            parts.append(draft.heads[cone.rows])
            dims.append((cone.kind, cone.size))
    stacked = sp.csr_array(sp.vstack(parts, format="csr"))
    held = without_columns(draft.standard.rows.combine(settle(draft, stacked)), draft.gone)
    return stacked, tuple(entry for entry in dims if entry[1]), held


def _quadratic(matrix: Any) -> Quadratic:
    diagonal_part = matrix.diagonal()
    rest = sp.csr_array(matrix - diagonal(diagonal_part))
    rest.eliminate_zeros()
    if not rest.nnz:
        return Quadratic(diagonal_part)
    if matrix.shape[0] > DENSE_LIMIT:
        raise NotScreenable(
            f"the quadratic term is not diagonal and has {matrix.shape[0]} coordinates; "
            f"the limit is {DENSE_LIMIT}"
        )
    return Quadratic(np.zeros(matrix.shape[0]), matrix.toarray())


def _check_free(
    draft: Draft, core: Index, touched: Any, loose: Any, bound: Any, linear: Array
) -> NDArray[np.bool_]:
    """Refuse too few penalised coordinates; returns the coordinates that nothing depends on."""
    label = draft.standard.label
    if not (touched & ~loose).any():
        own = draft.standard.own()[core]
        names = sorted({label(int(c)) for c in core[touched & own]}) or ["what the losses use"]
        hint = f" ({draft.notes[0]})" if draft.notes else ""
        raise NotScreenable(
            f"the objective has no squared norm of {', '.join(names)}: it is not strongly convex "
            f"there (a norm that is not squared, or an L1 norm, does not count){hint}"
        )
    foreign = core[(touched | bound) & ~draft.standard.own()[core]]
    if len(foreign):
        raise NotScreenable(_stuck(draft, int(foreign[0])))
    unpenalised = core[touched & loose]
    if len(unpenalised) > int((touched & ~loose).sum()):
        raise NotScreenable(
            f"the objective does not square {len(unpenalised)} coordinates that the losses use, "
            f"among them {label(int(unpenalised[0]))}: more than it squares"
        )
    apart = loose & ~touched
    held = core[apart & (bound | (linear != 0.0))]
    if len(held):
        raise NotScreenable(_stuck(draft, int(held[0])))
    return apart


def _check_data(per_row: Any, touched: Any) -> None:
    """Refuse penalties on single coordinates alone: there is no loss over data."""
    if per_row.max(initial=0) <= 1 and len(per_row) <= 2 * int(touched.sum()):
        raise NotScreenable(
            "the objective has no loss over data, only penalties on single coordinates"
        )


def _stuck(draft: Draft, column: int) -> str:
    """Why a column is neither a helper nor penalised."""
    standard = draft.standard
    name, where = standard.label(column), _binding(draft, column)
    note = f"; {draft.notes[0]}" if draft.notes else ""
    if not standard.own()[column]:
        atoms = {atom.__name__ for atom in standard.canonical.original.atoms()} - FAMILIAR
        source = f" (from {', '.join(sorted(atoms))})" if atoms else ""
        return f"{name}{source} is no loss of one argument{where}{note}"
    if draft.linear[column] > 0.0:
        return (
            f"{name} costs something but is no loss of its own: it is shared, or bounded from "
            f"above{where}{note}"
        )
    return f"{name} is not squared in the objective and is tied by constraints{where}{note}"


def _binding(draft: Draft, column: int) -> str:
    """The text of a constraint that stands in the way, for messages."""
    standard = draft.standard
    entries = sp.csc_array(standard.rows.sparse)[:, [column]].tocoo()
    rows = entries.row[entries.data < 0] if (entries.data < 0).any() else entries.row
    canonical = standard.canonical
    if canonical.original is None:
        return ""
    own = canonical.user_constraints()
    for row in rows:
        for cone in standard.cones:
            if cone.rows.start <= row < cone.rows.stop:
                found = own.get(cone.constraint)
                if found is not None:
                    text = str(found)
                    return f" in the constraint {text if len(text) < 80 else text[:77] + '...'}"
    return ""


def _no_loss(draft: Draft) -> str:
    """Why no loss term was found."""
    if draft.notes:
        return f"no loss term was found: {draft.notes[0]}"
    plain = ~draft.gone & (draft.quadratic.diagonal() == 0) & draft.standard.own()
    for column in np.flatnonzero(plain & (draft.linear > 0.0)):
        where = _binding(draft, int(column))
        if where:
            name = draft.standard.label(int(column))
            return f"no loss term was found: {name} is shared or bounded from above{where}"
    rows = sp.csr_array(draft.open @ draft.standard.rows.sparse)
    for k in np.flatnonzero(np.diff(rows.indptr) > 1):
        span = slice(rows.indptr[k], rows.indptr[k + 1])
        columns, data = rows.indices[span], rows.data[span]
        if (data < 0).all() and plain[columns].all():
            name, where = (f(draft, int(columns[0])) for f in (_name, _binding))
            return f"no loss term was found: {name} has no cost but a shared budget{where}"
    return (
        "no loss term was found: the objective has no sum of hinge, absolute, pinball, "
        "epsilon-insensitive, Huber or squared-hinge terms"
    )


def _name(draft: Draft, column: int) -> str:
    return draft.standard.label(column)


def recognise(problem: Any) -> Recognition:
    """Read a CVXPY problem as a regularised sum of losses.

    Parameters
    ----------
    problem : cvxpy.Problem
        Its variables' values are left as they are.

    Raises
    ------
    NotScreenable
        With the reason, naming the part that stands in the way.
    """
    with np.errstate(invalid="ignore", over="ignore"):  # data with NaN or infinity are refused
        standard = standardise(canonicalise(problem))
    recognition = recognise_standard(standard)
    check(recognition)
    return recognition
