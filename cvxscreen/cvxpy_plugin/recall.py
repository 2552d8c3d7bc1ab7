"""What is known of a CVXPY problem from its last solve: the recognition and the solution.

A parameter that got another value changes numbers, not the structure: the cone form is kept (for
problems that follow the DPP rules, as CVXPY keeps its own), and where only costs changed, so are
rows and rules. The last solution, its dual scaled along, is then the reference to screen from.

Entries live as long as their problem. They hold what a recognition holds: dense data by reference,
sparse data once more.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen.bounds import moved
from cvxscreen.core.duality import Point
from cvxscreen.core.problem import Problem
from cvxscreen.cvxpy_plugin.recognise.check import check
from cvxscreen.cvxpy_plugin.recognise.recognise import recognise_standard
from cvxscreen.cvxpy_plugin.recognise.recognition import Recognition
from cvxscreen.cvxpy_plugin.recognise.rescale import scaled_slopes, with_costs
from cvxscreen.cvxpy_plugin.recognise.standard import reread, standardise
from cvxscreen.cvxpy_plugin.recognise.symbolic import refuse
from cvxscreen.errors import NotScreenable
from cvxscreen.solvers.interface import Start
from cvxscreen.solvers.solution import Solution

Array = NDArray[np.float64]
Prints = dict[int, bytes]


@dataclass(frozen=True, eq=False)
class Last:
    """The last solution.

    Attributes
    ----------
    problem : Problem
        The recognised one that it solves.
    x, theta, multipliers : arrays
    weight : float or None
        Proximal weight that the built-in solver reached.
    reference : Point or None
        The same, evaluated.
    """

    problem: Problem
    x: Array
    theta: Array
    multipliers: Array
    weight: float | None = None
    reference: Point | None = None

    @classmethod
    def of(cls, found: Solution) -> Last:
        """What is worth keeping of a solution."""
        weight = found.rounds[-1].solver_info.get("weight") if found.rounds else None
        point = found.point()
        parts = (found.problem, found.x, found.theta, found.multipliers)
        return cls(*parts, None if weight is None else float(weight), point)


@dataclass(eq=False)
class Entry:
    """What is kept of one problem.

    Attributes
    ----------
    parts : tuple
        Objective and constraints, to notice another problem in the same object.
    bare : Recognition
        As the rules found it, its problem a weak reference.
    prints : dict of int to bytes
        Fingerprints of the parameters' values that `bare` has.
    inside : frozenset of int
        Parameters that the constraints of the cone form hold.
    last : Last or None
        The last one, of any values.
    """

    parts: tuple[Any, ...]
    bare: Recognition
    prints: Prints
    inside: frozenset[int]
    last: Last | None = None


_ENTRIES: weakref.WeakKeyDictionary[Any, Entry] = weakref.WeakKeyDictionary()


def _print(value: Any) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    if sp.issparse(value):
        matrix = sp.csc_array(value)
        for part in (matrix.indptr, matrix.indices, matrix.data):
            digest.update(np.ascontiguousarray(part).data)
    else:
        digest.update(np.ascontiguousarray(np.asarray(value, dtype=np.float64)).data)
    return digest.digest()


def _prints(problem: Any) -> Prints:
    return {p.id: _print(p.value) for p in problem.parameters()}


def _parts(problem: Any) -> tuple[Any, ...]:
    return (problem.objective, *problem.constraints)


def _tied(recognition: Recognition, original: Any) -> Recognition:
    """`recognition` of the problem `original` (or a weak reference of it)."""
    canonical = replace(recognition.standard.canonical, original=original)
    return replace(recognition, standard=replace(recognition.standard, canonical=canonical))


def remember(recognition: Recognition) -> None:
    """Keep `recognition`, as the rules found it at the parameters' present values."""
    canonical = recognition.standard.canonical
    problem = canonical.original
    if problem.parameters() and not problem.is_dpp():
        return  # what the cone form looks like may depend on their values
    inside = frozenset(p.id for c in canonical.problem.constraints for p in c.parameters())
    bare = _tied(recognition, weakref.proxy(problem))
    _ENTRIES[problem] = Entry(_parts(problem), bare, _prints(problem), inside)


def forget(problem: Any) -> None:
    """Keep nothing of `problem`."""
    _ENTRIES.pop(problem, None)


def recall(problem: Any, recognise: Callable[[Any], Recognition]) -> Recognition:
    """The recognition of `problem`, from memory as far as possible.

    Parameters
    ----------
    problem : cvxpy.Problem
    recognise : callable
        What to call when nothing is known.

    Raises
    ------
    NotScreenable
        As from `recognise`.
    """
    entry = _ENTRIES.get(problem)
    if entry is None or not _same(entry.parts, _parts(problem)):
        return _anew(problem, recognise)
    reason = refuse(problem, quick=True)
    if reason:
        raise NotScreenable(reason)
    now = _prints(problem)
    changed = {key for key, value in now.items() if entry.prints.get(key) != value}
    known = _tied(entry.bare, problem)
    if not changed:
        return known
    if not changed & entry.inside:
        standard = reread(known.standard)
        found = with_costs(known, standard)
        if found is not None:
            try:
                check(found, quick=True)
                return found
            except NotScreenable:
                pass  # then the rules decide
    else:
        standard = standardise(known.standard.canonical)
    found = recognise_standard(standard)
    check(found)
    last = entry.last
    remember(found)
    if last is not None:
        keep(problem, last)
    return found


def _anew(problem: Any, recognise: Callable[[Any], Recognition]) -> Recognition:
    forget(problem)
    found = recognise(problem)
    remember(found)
    return found


def only_costs(problem: Any, parameter: Any) -> bool:
    """Whether `parameter` occurs in the objective of the cone form alone."""
    entry = _ENTRIES.get(problem)
    return entry is not None and parameter.id not in entry.inside


def _same(first: tuple[Any, ...], second: tuple[Any, ...]) -> bool:
    return len(first) == len(second) and all(a is b for a, b in zip(first, second, strict=True))


def keep(problem: Any, last: Last) -> None:
    """Keep `last` as the reference of the next solve."""
    entry = _ENTRIES.get(problem)
    if entry is not None:
        entry.last = last


def reference(recognition: Recognition) -> Start | None:
    """The last solution as a start for `recognition`; None without one."""
    entry = _ENTRIES.get(recognition.standard.canonical.original)
    last = None if entry is None else entry.last
    return None if last is None else start_from(last, recognition.problem)


def start_from(last: Last, problem: Problem) -> Start | None:
    """`last` as a start for `problem`, its dual scaled to the present costs; None if it is odd."""
    if (last.problem.n, last.problem.d) != (problem.n, problem.d):
        return None
    old, factor = last.problem, problem.C / last.problem.C
    sides = [None if p.side is None else p.side.dims for p in (old, problem)]
    if sides[0] != sides[1]:
        return None
    weight = None if last.weight is None else 4.0 * last.weight / factor
    alike = problem.side is None and problem.losses.is_multiple(old.losses, factor)
    if alike and last.reference is not None:
        point = moved(problem, last.reference)
        return Start(point.x, point.theta, weight, point.multipliers, point)
    theta = scaled_slopes(last.theta, old.losses, problem.losses)
    return Start(last.x, theta, weight, last.multipliers)
