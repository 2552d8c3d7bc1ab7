"""What solves have taken in this process so far, problem by problem, and what that decides.

`size` estimates; here is what was measured, in CPU seconds:

* the first small problems of a process are left to CVXPY until they have taken about as long as
  what screening imports (`why_wait`): rented before it is bought;
* a problem that CVXPY is slower for than estimated counts for what it has taken
  (`History.solving`);
* one that was screened in vain is not screened again until that is a fifth of what CVXPY has taken
  since (`History.why_not`);
* a small one that is asked for again and again is screened as a trial (`on_trial`), and the quicker
  way stays;
* one that CVXPY has just solved by a solver that goes on from its answer is that solver's again, as
  long as no parameter has changed (`as_it_was`);
* plain solves of squares over tall data are given a triangle in place of the data where the first
  one, or those so far, are worth making it (`short_squares_pay`).
"""

from __future__ import annotations

import hashlib
import sys
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import thread_time
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from cvxscreen._support.extensions import supplied
from cvxscreen.cvxpy_plugin.size import (
    FIRST_COMPILED,
    NO_QUICKER,
    SMALL,
    UNSURE,
    Size,
    equations_of_residuals,
    measured,
)

ONCE = (
    "what screening would import, once a process, takes longer (`always=True` screens all the same)"
)
"""How a refusal ends that only holds until this process has imported what screening takes."""

IN_VAIN = 0.2
"""Share of what CVXPY has taken for a problem that may be spent on it in vain: with it, all solves
of the problem take at most 1.2 times as long as plain ones."""

OF_TRIAL = 0.1
"""CPU seconds of plain solves of a small problem, its first left aside, after which it is screened
as a trial: five times what it takes to read one (2,000 x 20 with an L1 norm 20 ms, 8,000 rows of a
linear program x 14 22 ms), so that a trial in vain costs a fifth of them."""

SHORTER, FEWEST_SHORTER = 0.01, 3000
"""CPU seconds of plain solves of squares, of the first as estimated or of those after it as
measured, from which on a triangle in place of the data is worth making, twice as many until what
makes it is loaded (12 ms); and the fewest entries of the data. Making, loading and compiling take
20 to 30 ms, which a first solve saves at once or later ones soon do (lasso, CPU, loaded machine,
first and later plain solves for short ones: 200 x 5 18 and 4.1 ms for 17 and 3.4; 500 x 10,
estimated 0.003, 19 and 4.2 for 14 and 2.2; 1,000 x 10, 0.006, 23 and 6.5 for 17 and 2.4; 2,000 x
20, 0.028, 62 and 17 for 19 and 3.3; on the simplex 337 and 73 for 21 and 4.4)."""

TRIANGULAR = "cvxscreen.cvxpy_plugin.recognise.triangular"
"""The module that makes triangles."""

GO_ON = ("OSQP", "SCS")
"""Solvers that CVXPY has begin at the answer of the last call: nothing has changed is 25 steps."""

MOST_COMPARED = 10_000
"""Numbers in parameters whose fingerprints are kept to tell whether they have changed."""

Fingerprints = dict[int, bytes]
"""Of the values of parameters, by their identifiers."""

WARM_CALLS = 2
"""Calls after the first by which a trial is judged: the first reads the problem as well."""


class Calls:
    """How often a problem was solved one way, and what the calls after the first took.

    Attributes
    ----------
    count : int
    seconds : float
        Of all calls but the first, which compiles or reads the problem.
    last : deque of float
        The same of each of the last few.
    """

    def __init__(self) -> None:
        self.count, self.seconds = 0, 0.0
        self.last: deque[float] = deque(maxlen=5)

    def add(self, seconds: float) -> None:
        """Count a call."""
        self.count += 1
        if self.count > 1:
            self.seconds += seconds
            self.last.append(seconds)

    @property
    def usual(self) -> float:
        """What one has taken of late, the less of two in the middle; 0 of none.

        Of two, one may still have loaded something, or was held up.
        """
        return sorted(self.last)[(len(self.last) - 1) // 2] if self.last else 0.0


class Answered(NamedTuple):
    """A plain solve that the same solver, asked in the same way, goes on from.

    Attributes
    ----------
    values : Fingerprints
        Of the parameters.
    solver : str or None
    options : dict
        As it was asked.
    """

    values: Fingerprints
    solver: Any
    options: dict[str, Any]


@dataclass(eq=False)
class History:
    """The solves of one problem so far.

    Attributes
    ----------
    plain, tried : Calls
        Plain solves, and screened ones on trial.
    solving : float
        Seconds of the last plain solve, its compilation left aside: where there is such a number
        no estimate is needed. (OSQP takes 0.1 to 10 times what is estimated: Huber's loss beside an
        L1 norm and squares, 5,000 x 10, 0.6 s for an estimate of 0.1.)
    vain, since : float
        Seconds of screening without an answer, and of plain solves since the first of these.
    trial_over : bool
        Whether a trial has shown that CVXPY is quicker, or that nothing can be screened.
    steps_in_vain : bool
        Whether the first steps of OSQP have not solved it (`request.solved_by_first_steps`).
    squares : Size or None
        See `size_of_squares`, once it is known.
    answered : Answered or None
        The last solve, where that was a plain one by a solver that will `GO_ON`, and sure of its
        answer.
    """

    plain: Calls = field(default_factory=Calls)
    tried: Calls = field(default_factory=Calls)
    solving: float = 0.0
    vain: float = 0.0
    since: float = 0.0
    trial_over: bool = False
    steps_in_vain: bool = False
    squares: Size | None = None
    answered: Answered | None = None

    def count_plain(self, seconds: float) -> None:
        """Count a plain solve."""
        self.plain.add(seconds)
        if self.vain:
            self.since += seconds

    def count_trial(self, seconds: float, done: bool) -> None:
        """Count a solve on trial, which was screened if that could be `done`."""
        self.tried.add(seconds)
        slower = self.tried.count > WARM_CALLS and self.tried.usual > self.plain.usual
        self.trial_over |= slower or not done

    def why_not(self) -> str:
        """Why the problem is not screened once more yet; an empty text where it may be."""
        if self.vain <= IN_VAIN * self.since:
            return ""
        return (
            f"screening it has taken {self.vain:.2g} s in vain, and CVXPY {self.since:.2g} s since "
            "(`always=True` screens all the same)"
        )


_HISTORIES: weakref.WeakKeyDictionary[Any, History] = weakref.WeakKeyDictionary()


def history(problem: Any) -> History:
    """What is known of the solves of a ``cvxpy.Problem``; it is forgotten with the problem."""
    known = _HISTORIES.get(problem)
    if known is None:
        known = _HISTORIES[problem] = History()
    return known


def on_trial(problem: Any) -> bool:
    """Whether `problem`, of which its size says that it is small, is screened all the same.

    What one call cannot earn many can: other values of a `Parameter`, or the objective of one row
    after the other. Nothing is estimated: plain solves are counted, then screened ones.
    """
    known = history(problem)
    if known.trial_over or known.plain.usual < NO_QUICKER:
        return False
    enough = OF_TRIAL + _to_load(measured(problem))
    return known.tried.count > 0 or known.plain.seconds >= enough


def keep_answered(problem: Any, by: str, solver: Any, options: dict[str, Any]) -> None:
    """Keep what `as_it_was` compares, after a plain solve `by` a solver that was asked for so."""
    values = _values(problem) if by in GO_ON and problem.status == "optimal" else None
    kept = None if values is None else Answered(values, solver, options)
    history(problem).answered = kept


def as_it_was(problem: Any) -> bool:
    """Whether CVXPY has solved it last, would go on from its answer, and has nothing else to solve.

    That is quicker than to read it once more.
    """
    known = history(problem).answered
    now = None if known is None else _values(problem)
    return known is not None and known.values == now


def _values(problem: Any) -> Fingerprints | None:
    """Those of the values of its parameters; None of many numbers."""
    parameters = problem.parameters()
    many = sum(parameter.size for parameter in parameters) > MOST_COMPARED
    return None if many else fingerprints(parameters)


def fingerprints(parameters: Iterable[Any]) -> Fingerprints:
    """Fingerprints of the parameters' present values, by identifier."""
    return {p.id: _fingerprint(p.value) for p in parameters}


def _fingerprint(value: Any) -> bytes:
    digest = hashlib.sha1(usedforsecurity=False)  # the quickest that is long enough
    if sp.issparse(value):
        matrix = sp.csc_array(value)
        for part in (matrix.indptr, matrix.indices, matrix.data):
            digest.update(np.ascontiguousarray(part).data)
    else:
        kind = np.complex128 if np.iscomplexobj(value) else np.float64
        digest.update(np.ascontiguousarray(np.asarray(value, dtype=kind)).data)
    return digest.digest()


def size_of_squares(problem: Any) -> Size:
    """The size of `problem` with residuals in place of variables that stand for them.

    Parameters
    ----------
    problem : cvxpy.Problem
    """
    known = history(problem)
    if known.squares is None:
        entries = sum(
            variable.size * sum(v.size for v in constraint.variables() if v is not variable)
            for constraint, variable in equations_of_residuals(problem)
        )
        many = entries >= FEWEST_SHORTER
        written = supplied("cvxpy.written_out")(problem)[0] if many else problem
        known.squares = measured(written)
    return known.squares


def short_squares_pay(problem: Any) -> bool:
    """Whether a plain solve is worth writing long residuals as a triangle's; once it is, it stays.

    Parameters
    ----------
    problem : cvxpy.Problem
    """
    size = size_of_squares(problem)
    if size.squares < FEWEST_SHORTER:
        return False
    spent = max(size.seconds_of_squares(), history(problem).plain.seconds)
    return spent >= (SHORTER if TRIANGULAR in sys.modules else 2.0 * SHORTER)


# -- what is imported once a process --------------------------------------------------------------


class Rent:
    """CPU seconds of plain solves of problems that were left to CVXPY to save an import.

    Attributes
    ----------
    paid : float
    """

    def __init__(self) -> None:
        self.paid = 0.0

    @contextmanager
    def paying(self) -> Iterator[None]:
        """Count what a plain solve takes that is made for that reason."""
        began = thread_time()
        try:
            yield
        finally:
            spent = thread_time() - began
            self.paid += spent if spent >= NO_QUICKER else 0.0


RENT = Rent()


def why_wait(problem: Any, solver: str = "") -> str:
    """Why a problem that may be worth screening is solved plainly; an empty text if it is not.

    Parameters
    ----------
    problem : cvxpy.Problem
        For whose size there is no `Size.why_not`.
    solver : str
        The one that was named.
    """
    size = measured(problem)
    due = _to_load(size)
    if not due:
        return ""
    if size.needs is not None and size.needs.unsure and not (size.compiled or size.low_rank):
        due = UNSURE
    if RENT.paid + (history(problem).solving or size.at_least(solver)) >= due:
        return ""
    return f"{SMALL} ({size.words()}), and {ONCE}"


def loops_loaded() -> bool:
    """Whether this process has loaded compiled loops, or at least what they are loaded by."""
    return _imported() and "numba" in sys.modules


def _imported() -> bool:
    """Whether it has imported what every screened solve needs."""
    return "cvxscreen.cvxpy_plugin.plugin" in sys.modules


def _to_load(size: Size) -> float:
    """Seconds of plain solves that what screening would load is worth; 0 where it is loaded."""
    if loops_loaded() if size.compiled else _imported():
        return 0.0
    return FIRST_COMPILED if size.compiled else size.first
