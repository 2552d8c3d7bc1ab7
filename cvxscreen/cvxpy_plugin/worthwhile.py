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

EXPONENTIAL = frozenset(
    (
        "exp", "log", "log1p", "entr", "kl_div", "rel_entr", "logistic", "log_sum_exp",
        "log_det", "xexp",
    )
)
"""Atoms that need the exponential cone, named in a refusal."""

CANNOT_PAY = "leaving some out cannot pay"
"""How the recogniser's refusals end that are, like those of this module, a matter of size."""


STEP_ASIDE = True
"""Whether a size may decide at all. ``always=True`` says no for one solve; tests of what follows
the decision set this to False (``tests/conftest.py``)."""

ROWS_PER_ENTRY = 10.0
"""A variable is a coordinate of a fit, not a slack or a moment of a time series, from this many
rows per entry on: slacks have up to 3, and control problems with bounds on everything up to 6
(``examples/benchmarks/never_worse.py``)."""

TERMS = 200
"""Fewer terms are not worth it where the objective squares the coordinates and nothing else is
asked of them: from here on the first and the second call are within the bar of a plain solve (300
terms x 10: 9 ms for 32, and 2 for 2.4; 100 terms: 10 for 8.5, and 1.2 for 1.8)."""

OTHERWISE = 5000
"""The same with constraints on the coordinates, sums of largest terms, or no squares: those take
the interior point method or a solver of CVXPY (1,000 absolute values x 10: 36 ms for 33, and 34 for
15; 10,000: 137 for 265, and 40 for 175)."""

SMOOTH = 50_000
"""The same for Huber's loss without squares: 10,000 terms x 10 take 0.41 s, plainly 0.17."""

PIECES = 60
"""Fewer pieces from a Python loop are not worth it; CVXPY compiles each of them in about 1 ms."""

WIDE, WIDE_OTHERWISE = 10_000, 200_000
"""Entries of the data from which a problem with few rows per entry is taken, too, where the
objective squares the coordinates: more columns than rows. The second where `OTHERWISE` holds. (CPU
seconds of hinge, quantile and Huber's loss: sparse 500 x 1,000 with 10 entries a row 0.01, plainly
0.07 to 0.16; dense 100 x 300 0.01 for 0.06 to 0.1; 60 x 400 0.01 to 0.03 for 0.02 to 0.12.)"""

SHRUNK = 1_500_000
"""The same for squares of residuals beside an L1 norm (1,000 x 100: 0.18 s, plainly 0.07; 20,000 x
100: 0.74, and 4.1)."""

ENTRIES, ROW_ENTRIES = 40.0, 8.0
"""Entries of the data per coordinate, or per row, that tell data from differences of neighbours (2
to 4 of both). Words of texts are in few rows each, but every row has dozens of them."""

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


SIMPLE = frozenset(("abs", "maximum", "minimum", "huber", "norm1"))
"""Those with one term for each of their values."""

SIGNS = ("nonneg", "nonpos", "pos", "neg", "PSD", "NSD", "bounds")
"""Attributes of a variable that constrain it."""

SQUARES = frozenset(("quad_over_lin", "Power", "PowerApprox"))


@dataclass(frozen=True)
class Size:
    """What the tree says of a problem.

    Attributes
    ----------
    terms : float
        The most rows, among those that could be left out, in which one tall variable occurs.
    coordinates : int
        Entries of the variables that are tall, or wide.
    least : float
        Terms that a problem of this kind needs.
    pieces : float
        Terms and constraints that were written one by one, where the objective squares the
        coordinates.
    wide, shrunk : float
        Entries of the data in front of variables that are not tall, but meet many of them: those
        that the objective squares, and those under an L1 norm.
    broad : float
        Entries in `wide` that a problem of this kind needs.
    reason : str
        Why the problem cannot be screened whatever its size, or empty.
    """

    terms: float = 0.0
    coordinates: int = 0
    least: float = TERMS
    pieces: float = 0.0
    wide: float = 0.0
    broad: float = WIDE
    shrunk: float = 0.0
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
        enough = (
            self.terms >= self.least, self.pieces >= PIECES, self.wide >= self.broad,
            self.shrunk >= SHRUNK,
        )
        if any(enough):
            return ""
        return (
            f"it is small ({self.terms:.0f} terms), and compiled and solved before screening "
            "could save anything (`always=True` screens all the same)"
        )


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
    walk.follow(problem.objective.expr, 0.0, 1.0, objective=True)
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
        walk.constrained.append({variable.id for variable in constraint.variables()})
    walk.constrained += [{v.id} for v in variables if any(v.attributes[name] for name in SIGNS)]
    walk.pieces = max(walk.pieces, float(len(constraints)))
    return walk.size({v.id: v for v in variables})


class _Walk:
    """Rows and entries of the data of each variable, summed over a tree."""

    def __init__(self) -> None:
        self.rows: dict[int, float] = {}
        self.entries: dict[int, float] = {}
        self.smooth: dict[int, float] = {}
        self.shrunk: set[int] = set()
        self.squared: set[int] = set()
        self.constrained: list[set[int]] = []
        self.kinds: set[str] = set()
        self.pieces = 0.0
        self.foreign: set[str] = set()
        self.foreign_rows = 0.0
        self.left = VISITS

    def follow(self, expr: Any, rows: float, weight: float, *, objective: bool = False) -> None:
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
            if objective and name in SQUARES:
                inner = here.args[0]
                self.squared |= _bare(inner.args[0] if type(inner).__name__ in NORMS else inner)
            if name in KINKED:
                self.kinds.add(name)
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
        tall: set[int] = set()
        broad: set[int] = set()
        terms, wide, shrunk, coordinates = 0.0, 0.0, 0.0, 0
        for key, rows in self.rows.items():
            entries, count = self.entries.get(key, 0.0), variables[key].size
            if rows >= ROWS_PER_ENTRY * count:
                tall.add(key)
                terms, coordinates = max(terms, rows), coordinates + count
                if key in self.shrunk:
                    shrunk += self.smooth.get(key, 0.0)
            elif key in self.shrunk and self.smooth.get(key, 0.0) >= ENTRIES * count:
                shrunk, coordinates = shrunk + self.smooth[key], coordinates + count
            elif key in self.squared and entries >= min(ENTRIES * count, ROW_ENTRIES * rows) > 0:
                broad.add(key)
                wide, coordinates = wide + entries, coordinates + count
        if self.foreign and self.foreign_rows >= 0.5 * terms:
            named = ", ".join(sorted(self.foreign))
            return Size(reason=f"its loss ({named}) is of a kind that cannot be screened")
        squared = sum(variables[key].size for key in tall & self.squared)
        held = 2 * squared >= sum(variables[key].size for key in tall) > 0
        bound = any(ids <= tall | broad for ids in self.constrained)
        shrinks = bool((tall | broad) & self.shrunk)
        simple = self.kinds <= SIMPLE and not (bound or self.foreign or shrinks)
        least = OTHERWISE
        if held and simple:
            least = TERMS
        elif not held and "huber" in self.kinds:
            least = SMOOTH
        pieces = self.pieces if held else 0.0
        enough = WIDE if simple else WIDE_OTHERWISE
        return Size(terms, coordinates, least, pieces, wide, enough, shrunk)


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
