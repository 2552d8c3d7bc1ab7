"""Whether ``method="screen"`` can save anything: decided from sizes, before any work.

Where nothing can be saved, CVXPY solves the problem at once, so that the door costs nothing:

* a problem with about as many coordinates as terms (total variation, trend filters, isotonic fits,
  control over a horizon): each row of it has a coordinate of its own, and no row can go;
* a small problem, which CVXPY has compiled and solved before anything could be recognised;
* integer variables, and losses that cannot be screened (exponential cones).

What decides is read from the expression tree alone (`measure`): in how many rows that may be left
out does a variable occur, per entry of it? ``X @ w`` with n rows and d columns: ``n / d``. A slack
``xi_i`` is in two or three rows, ``x[t]`` of a time series in two to six. No number is computed and
nothing is canonicalised; of the many pieces that a Python loop has written a few stand for all.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
from cvxpy.atoms.affine.affine_atom import AffAtom
from cvxpy.atoms.elementwise.elementwise import Elementwise

from cvxscreen.cvxpy_plugin.recognise.standard import EXPONENTIAL

STEP_ASIDE = True
"""Whether a size may decide at all. ``always=True`` says no for one solve; tests of what follows
the decision set this to False (``tests/conftest.py``)."""

ROWS_PER_ENTRY = 10.0
"""A variable is a coordinate of a fit, not a slack or a moment of a time series, from this many
rows per entry on: slacks have up to 3, and control problems with bounds on everything up to 6
(``examples/benchmarks/never_worse.py``)."""

TERMS = 2000
"""Fewer vectorised terms are not worth it: plain solves of 1,000 terms x 10 take 10 to 150 ms,
recognition and screening 40, and the second call of either is shorter still (same benchmark)."""

PIECES = 60
"""Fewer pieces from a Python loop are not worth it; CVXPY compiles each of them in about 1 ms."""

WIDE = 200_000
"""Entries of the data from which a problem with few rows per entry is taken, too, where each
coordinate meets `ENTRIES` of them: kernels, more columns than rows, columns under an L1 norm. Plain
solves of 400 terms with a kernel take half a second."""

ENTRIES = 40.0
"""Entries of the data per coordinate that tell data from differences of neighbours (2 to 4)."""

ROWS = (cp.constraints.Inequality, cp.NonNeg, cp.NonPos, cp.constraints.Equality, cp.Zero)
"""Constraints whose rows may go. A coordinate that is in many equalities is there beside slacks (a
linear program's ``X @ w - y == u - v``): without them they would leave it no freedom."""

SAMPLE = 24
"""So many of the pieces that a Python loop has written stand for all of them."""

VISITS = 2000
"""No more expressions are looked at; one takes a microsecond or two, its compilation 50."""

KINKED = frozenset(
    (
        "abs", "maximum", "minimum", "huber", "norm1", "max", "min", "norm_inf", "sum_largest",
        "cvar", "MixedNorm", "dotsort",
    )
)
"""Atoms whose arguments are terms: on all but one piece of theirs, a term is known."""

NORMS = frozenset(("Pnorm", "PnormApprox"))
"""Atoms with one cone for each value: as many terms as values."""


@dataclass(frozen=True)
class Size:
    """What the tree says of a problem.

    Attributes
    ----------
    terms : float
        The most rows, among those that could be left out, in which one tall variable occurs.
    coordinates : int
        Entries of the variables that are tall, or wide.
    pieces : float
        Terms and constraints that were written one by one.
    wide : float
        Entries of the data in front of variables that are not tall, but meet many of them.
    reason : str
        Why the problem cannot be screened whatever its size, or empty.
    """

    terms: float = 0.0
    coordinates: int = 0
    pieces: float = 0.0
    wide: float = 0.0
    reason: str = ""

    def why_not(self) -> str:
        """Why screening cannot save anything; an empty text where it may."""
        if self.reason:
            return self.reason
        if not self.coordinates:
            return (
                "it has about as many coordinates as terms, or too few data, so there is nothing "
                "to be saved (`always=True` screens all the same)"
            )
        if self.terms < TERMS and self.pieces < PIECES and self.wide < WIDE:
            return (
                f"it is small ({self.terms:.0f} terms), and compiled and solved before screening "
                "could save anything (`always=True` screens all the same)"
            )
        return ""


_DECIDED: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
"""The decision on each problem met; an expression tree never changes."""


def why_not_worthwhile(problem: Any) -> str:
    """Why screening `problem` cannot save anything; an empty text where it may.

    Parameters
    ----------
    problem : cvxpy.Problem
    """
    if not STEP_ASIDE:
        return ""
    known = _DECIDED.get(problem)
    if known is None:
        known = _DECIDED[problem] = measure(problem).why_not()
    return known


def measure(problem: Any) -> Size:
    """Read the size of a ``cvxpy.Problem`` from its expressions.

    Parameters
    ----------
    problem : cvxpy.Problem
    """
    variables = problem.variables()
    if any(v.attributes["integer"] or v.attributes["boolean"] for v in variables):
        return Size(reason="the problem has integer or boolean variables")
    walk = _Walk()
    walk.follow(problem.objective.expr, 0.0, 1.0)
    constraints = problem.constraints
    chosen, weight = _some(constraints)
    for constraint in chosen:
        rows = 0.0
        if type(constraint) in ROWS:
            rows = float(constraint.size)
        elif type(constraint) is cp.SOC:
            rows = float(constraint.args[0].size)
        for part in constraint.args:
            walk.follow(part, rows, weight)
    walk.pieces = max(walk.pieces, float(len(constraints)))
    return walk.size({v.id: v for v in variables})


class _Walk:
    """Rows and entries of the data of each variable, summed over a tree."""

    def __init__(self) -> None:
        self.rows: dict[int, float] = {}
        self.entries: dict[int, float] = {}
        self.smooth: dict[int, float] = {}
        self.shrunk: set[int] = set()
        self.pieces = 0.0
        self.foreign: set[str] = set()
        self.foreign_rows = 0.0
        self.left = VISITS

    def follow(self, expr: Any, rows: float, weight: float) -> None:
        """Count `expr`, an argument of something with so many `rows`, `weight` times."""
        # Beside each expression: the rows of the affine map that it is part of (0: none of them
        # can go), the entries of the data in front of it, how many expressions it stands for.
        stack: list[tuple[Any, float, float, float]] = [(expr, rows, 0.0, weight)]
        while stack and self.left > 0:
            self.left -= 1
            here, rows, data, weight = stack.pop()
            if not here.args:
                if isinstance(here, cp.Variable):
                    self._variable(here, rows, data, weight)
                continue
            if isinstance(here, AffAtom):
                parts, more = _some(here.args)
                if more > 1.0:
                    self.pieces = max(self.pieces, weight * len(here.args))
                data = max(data, _entries(here))
                stack += [(part, rows, data, weight * more) for part in parts]
                continue
            name = type(here).__name__
            if name in EXPONENTIAL:
                self.foreign.add(name)
                self.foreign_rows += weight * here.size
            if name in ("norm1", "abs"):
                self.shrunk |= _bare(here.args[0])
            for part in here.args:
                below = 0.0
                if name in KINKED:
                    below = float(here.size if isinstance(here, Elementwise) else part.size)
                elif name in NORMS and here.size > 1:
                    below = float(here.size)
                stack.append((part, below, 0.0, weight))

    def _variable(self, variable: Any, rows: float, data: float, weight: float) -> None:
        key, size = variable.id, variable.size
        self.rows[key] = self.rows.get(key, 0.0) + weight * rows
        if rows:
            most = weight * min(max(data, rows), rows * size)
            self.entries[key] = self.entries.get(key, 0.0) + most
        else:
            self.smooth[key] = self.smooth.get(key, 0.0) + weight * data

    def size(self, variables: dict[int, Any]) -> Size:
        """What was counted."""
        terms, coordinates, wide = 0.0, 0, 0.0
        for key, rows in self.rows.items():
            entries, count = self.entries.get(key, 0.0), variables[key].size
            if key in self.shrunk:
                entries += self.smooth.get(key, 0.0)
            if rows >= ROWS_PER_ENTRY * count:
                terms, coordinates = max(terms, rows), coordinates + count
            elif entries >= ENTRIES * count:
                wide, coordinates = wide + entries, coordinates + count
        if self.foreign and self.foreign_rows >= 0.5 * terms:
            named = ", ".join(sorted(self.foreign))
            return Size(reason=f"its loss ({named}) is of a kind that cannot be screened")
        return Size(terms, coordinates, self.pieces, wide)


def _entries(atom: Any) -> float:
    """Entries of the constant that an affine atom multiplies something by; 0 for other atoms."""
    name = type(atom).__name__
    if name == "MulExpression":
        for data, other in (atom.args, atom.args[::-1]):
            if data.is_constant():
                count = _stored(data)
                columns = other.shape[-1] if len(other.shape) == 2 and data is atom.args[0] else 1
                return count * columns
    return 0.0


def _stored(data: Any) -> float:
    """Entries of a constant that are stored."""
    value = data.value if isinstance(data, cp.Constant) else None
    return float(data.size if value is None else getattr(value, "nnz", data.size))


def _some(parts: Sequence[Any]) -> tuple[Sequence[Any], float]:
    """A few of many `parts`, evenly spread, and how many each of them stands for."""
    if len(parts) <= 2 * SAMPLE:
        return parts, 1.0
    step = len(parts) / SAMPLE
    return [parts[int(k * step)] for k in range(SAMPLE)], step


def _bare(expr: Any) -> set[int]:
    """The variable that `expr` is a scaled part of, as a set of its identifier; else empty."""
    while isinstance(expr, AffAtom):
        moving = [part for part in expr.args if not part.is_constant()]
        if len(moving) != 1 or type(expr).__name__ == "MulExpression":
            return set()
        expr = moving[0]
    return {expr.id} if isinstance(expr, cp.Variable) else set()
