"""The theorems: each bound is one short function from a point (or two) to a region.

Throughout, ``G = P(x) - D(theta)`` is the duality gap of the point, ``x_theta = M^{-1} v`` the
primal point of ``theta``, norms are in the metric of ``M``. The rounding of the point (``terms``,
``dual_error``) is added outward, so the returned radius is at least the exact one.

Worked instances. At an exact optimum ``G = 0`` and ``x = x_theta``: every ball has radius 0. With
``x = x_theta`` (any dual method) the midpoint ball has radius ``sqrt(G)``, the gap ball
``sqrt(2 G)``. With ``x = w*(C0)`` and ``theta = s theta*(C0)``, ``s = C/C0``, the midpoint ball is
the DVI ball: centre ``(1+s)/2 w*(C0)``, radius ``|s-1|/2 ||w*(C0)||``.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from cvxscreen._support.validation import one_of, plain_name
from cvxscreen.bounds.features_and_samples import applies, dual_ball, joint, synergy
from cvxscreen.bounds.linear_program import lp
from cvxscreen.bounds.regions import Bound, PairBound, Region
from cvxscreen.bounds.theorems import (
    CONES,
    RULES,
    ScaledReference,
    bt1_ball,
    bt2_ball,
    cut,
    dome,
    dvi_ball,
    dvi_star_ball,
    essnsv,
    gap_ball,
    gradient_ball,
    it_region,
    midpoint_ball,
    moved,
    over_cone,
    projected_gradient_ball,
    rpb_ball,
    ssnsv,
    two_sided,
)
from cvxscreen.core.duality import Point
from cvxscreen.core.problem import Problem
from cvxscreen.errors import InvalidInput, UnknownName

__all__ = [
    "PARAMETER_CHANGE",
    "BOUNDS",
    "Bound",
    "CONES",
    "PAIRS",
    "PRIMAL_DUAL",
    "PairBound",
    "RULES",
    "ScaledReference",
    "available",
    "bt1_ball",
    "bt2_ball",
    "canonical",
    "cut",
    "default_bounds",
    "dome",
    "dual_ball",
    "dvi_ball",
    "dvi_star_ball",
    "essnsv",
    "fitting",
    "fitting_pair",
    "gap_ball",
    "gradient_ball",
    "it_region",
    "joint",
    "lp",
    "midpoint_ball",
    "moved",
    "named",
    "named_pair",
    "register",
    "rpb_ball",
    "ssnsv",
    "synergy",
    "two_sided",
]


def pgb(problem: Problem, point: Point) -> Region:
    """The gradient ball, projected onto the cone where there is one."""
    ball = projected_gradient_ball if over_cone(problem) else gradient_ball
    return ball(problem, point)


BOUNDS: dict[str, Bound] = {
    "midpoint": midpoint_ball,
    "gap": gap_ball,
    "pgb": pgb,
    "dvi": dvi_ball,
    "dvi_star": dvi_star_ball,
    "rpb": rpb_ball,
    "bt1": bt1_ball,
    "bt2": bt2_ball,
    "it": it_region,
}
"""Every bound by name; a new one is a function here and is then met by every safety test."""

PRIMAL_DUAL: dict[str, Bound] = {
    "dual": dual_ball, "synergy": synergy, "joint": joint, "lp": lp
}
"""Bounds on features, or on features and samples together; under an L1 term only."""

PAIRS: dict[str, PairBound] = {
    "two_sided": two_sided,
    "ssnsv": ssnsv,
    "essnsv": essnsv,
    "dome": dome,
}
"""Bounds from two references, at other C as they are; all but ``two_sided`` need ``C`` between."""

ABBREVIATED = {"dt": "dome"}
"""What a paper abbreviates and the tables here do not (Ogawa et al., the dome test)."""

PARAMETER_CHANGE = ("pgb", "dvi", "dvi_star", "rpb", "bt1", "bt2", "it")
"""Bounds that take a reference at another C as it is; those of `CONES` do so for another lam."""


def register(name: str, bound: Bound) -> None:
    """Let a bound of your own go by `name` in `solve`, `screen`, `compare_bounds` and `available`.

    Parameters
    ----------
    name : str
        Not yet taken; in any case, as papers print it.
    bound : callable
        From a `Problem` and a `Point` of it to a region: a ball, say, from
        `cvxscreen.bounds.regions`. Whether it is safe is yours to prove; a wrong decision shows as
        a gap in the certificate. A reference at another C is evaluated on the problem first.

    Raises
    ------
    InvalidInput
        If the name is taken or is none, or `bound` cannot be called.

    Examples
    --------
    >>> import cvxscreen
    >>> from cvxscreen.bounds import register
    >>> from cvxscreen.bounds.regions.balls import Ball
    >>> def wide(problem, point):  # with a strongly convex objective the optimum is this near
    ...     radius = 1.001 * (2 * point.gap + 1e-12 * abs(point.primal)) ** 0.5
    ...     return Ball(problem, "wide", point.x, point.margins, radius, point.gap)
    >>> register("wide", wide)
    >>> problem = cvxscreen.svm(*cvxscreen.datasets.two_gaussians(100, 3))
    >>> solution = cvxscreen.solve(problem, bounds=["wide"], mode="safe")
    >>> solution.certificate.ok, "wide" in cvxscreen.bounds.available(problem)
    (True, True)
    >>> del cvxscreen.bounds.BOUNDS["wide"]
    """
    known = canonical(name)
    if not isinstance(known, str) or not known.isidentifier():
        raise InvalidInput(f"`name` is {name!r}; a word is needed.")
    if known in {**BOUNDS, **PAIRS, **CONES, **PRIMAL_DUAL}:
        raise InvalidInput(f"`name` is {name!r}, which is taken; choose another.")
    if not callable(bound):
        raise InvalidInput(f"`bound` is {bound!r}; a function of a problem and a point is needed.")
    BOUNDS[known] = bound


def canonical(name: Any) -> Any:
    """`name` as the tables here spell it, given in any case and as papers print it.

    ``"RRPB"``, ``"Two-sided"``, ``"DVI*"``, ``"DT"``; what is no text comes back as it is.
    """
    if not isinstance(name, str):
        return name
    plain = plain_name(name.replace("*", "_star"))
    return ABBREVIATED.get(plain, plain)


@runtime_checkable
class OwnBounds(Protocol):
    """A problem of another kind (multi-task learning), which names the bounds that fit it."""

    @property
    def bounds(self) -> tuple[str, ...]:
        """Names of the bounds that say anything about the problem."""
        ...


def available(problem: Problem | OwnBounds) -> tuple[str, ...]:
    """Names of the bounds that say anything about `problem`.

    Those of `PAIRS` (``"dome"``, ``"essnsv"``, ``"ssnsv"``, ``"two_sided"``) take a pair of
    references. With two or more unpenalised coordinates no region bounds the margins that touch
    them; under a penalty the half-space of `dome`, `essnsv` and `ssnsv` is not proven.
    """
    if isinstance(problem, OwnBounds):
        return problem.bounds
    one_of("problem", problem, Problem, "a problem from `svm`, `regression`, ... is needed")
    if problem.pure_l1:
        return ("lp",) if problem.linear_program else ("dual",)
    if int(problem.quadratic.free.sum()) > 1:
        return ()
    names = {*BOUNDS, *PAIRS}
    if problem.penalty is not None:
        names -= {"dome", "essnsv", "ssnsv"}
    if over_cone(problem):
        names |= set(CONES)
    if applies(problem):
        names |= {*PRIMAL_DUAL} - {"lp"}
    return tuple(sorted(names))


def default_bounds(problem: Problem) -> tuple[Bound, ...]:
    """What the loop proves with when nothing is asked for."""
    if problem.pure_l1:
        return (lp,) if problem.linear_program else (dual_ball,)
    return (joint,) if applies(problem) else (midpoint_ball,)


def named(name: str) -> Bound:
    """The bound from one reference called `name`.

    Raises
    ------
    UnknownName
    InvalidInput
        For a bound that needs two references (see `named_pair`).
    """
    needed = "two references: `reference=(first, second)`"
    return _found(name, {**BOUNDS, **CONES, **PRIMAL_DUAL}, PAIRS, needed)


def fitting(problem: Problem, name: str) -> Bound:
    """The bound called `name`, if it can say anything about `problem`.

    Raises
    ------
    UnknownName
        With the names that apply to `problem`.
    InvalidInput
        As `named`; also for a bound of metric learning without a cone, of the LP-SVM for another
        problem, and without a quadratic term for all that rest on one.
    """
    _known(problem, name)
    found = named(name)
    if canonical(name) in CONES and not over_cone(problem):
        raise InvalidInput(
            f"bound {name!r} is for problems over a cone (metric learning, `rtlm`); this one has "
            f"{', '.join(available(problem))}."
        )
    _has_curvature(problem, name)
    if found is lp and not problem.linear_program:
        raise InvalidInput(
            f"bound {name!r} is for an LP-SVM (`sparse_svm(loss='hinge', l2=0)`); this problem has "
            f"{', '.join(available(problem))}."
        )
    return found


def fitting_pair(problem: Problem, name: str) -> PairBound:
    """The bound from two references called `name`; errors as for `fitting`."""
    _known(problem, name)
    found = named_pair(name)
    _has_curvature(problem, name)
    return found


def _has_curvature(problem: Problem, name: str) -> None:
    """Refuse a bound that rests on a quadratic term where there is none."""
    if problem.pure_l1 and canonical(name) not in available(problem):
        raise InvalidInput(
            f"bound {name!r} rests on a quadratic term, which this problem does not have; take "
            f"{available(problem)[0]!r}."
        )


def _known(problem: Problem, name: str) -> None:
    """Refuse what is the name of no bound; those that say something about `problem` come first."""
    every: dict[str, Any] = {**BOUNDS, **CONES, **PRIMAL_DUAL, **PAIRS}
    known = canonical(name)
    if not (isinstance(known, str) and known in every):
        raise UnknownName.among("bound", name, available(problem) or every, every)


def named_pair(name: str) -> PairBound:
    """The bound from two references called `name`; errors as for `named`."""
    needed = "one reference; a pair was given"
    return _found(name, PAIRS, {**BOUNDS, **CONES, **PRIMAL_DUAL}, needed)


def _found(name: str, table: dict[str, Any], others: dict[str, Any], needed: str) -> Any:
    known = canonical(name)
    if isinstance(known, str) and known in others:
        raise InvalidInput(f"bound {name!r} needs {needed}.")
    if isinstance(known, str) and known in table:
        return table[known]
    raise UnknownName.among("bound", name, [*table, *others])
