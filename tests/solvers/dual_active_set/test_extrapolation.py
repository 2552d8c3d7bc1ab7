"""Where the next solution should be: a point of the problem, better than the last one scaled."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from sparse_problems import KINDS, D, N, make, target_of, words

from cvxscreen.certificates.certificate import certify
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.designs.rows import Rows
from cvxscreen.solvers.dual_active_set.iterate import FARTHEST, DualIterate, PathCache, SavedIterate
from cvxscreen.solvers.dual_active_set.solver import DualActiveSet
from cvxscreen.solvers.interface import Start


def passed(problem: Problem, values: Sequence[float], relative: float = 1e-10) -> PathCache:
    """A cache that `DualActiveSet` has solved `problem` with at some values of C."""
    cache, start = PathCache(), None
    for value in values:
        here = problem.with_(C=value)
        found = DualActiveSet(path_cache=cache)(here, start, target_of(here, relative))
        assert found.status == "optimal"
        start = Start(found.x, found.theta)
    return cache


def dual(problem: Problem, theta: np.ndarray) -> float:
    """The dual objective where M = I and there is no linear term."""
    pull = problem.design.adjoint(theta)
    return -float(problem.losses.conjugate(theta).sum()) - 0.5 * float(pull @ pull)


def scaled(here: Problem, C: float, theta: np.ndarray) -> np.ndarray:
    """The solution at C as a dual point of `here`."""
    return np.clip(here.C / C * theta, here.losses.lo, here.losses.hi)


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_a_point_of_the_problem(kind: str, rng: np.random.Generator) -> None:
    problem = make(kind, rng)
    here = problem.with_(C=1.5)
    place = passed(problem, (0.9, 1.2)).extrapolate(here)
    assert place is not None
    f, design, root = here.losses, here.design, 1.0 / np.sqrt(here.quadratic.diagonal)
    assert (place.theta >= f.lo).all()
    assert (place.theta <= f.hi).all()
    v = -root * (design.adjoint(place.theta) + here.linear)
    np.testing.assert_allclose(place.v, v, atol=1e-9 * np.abs(v).max())
    t = design.forward(root * place.x)
    np.testing.assert_allclose(place.t, t, atol=1e-9 * np.abs(t).max())


def test_on_one_face_it_is_the_solution(rng: np.random.Generator) -> None:
    problem = make("hinge", rng)
    cache = passed(problem, (1.0, 1.0 + 1e-7), 1e-14)
    here = problem.with_(C=1.0 + 2e-7)
    place = cache.extrapolate(here)
    assert place is not None
    last = cache._line.last  # type: ignore[union-attr]
    best = dual(here, DualActiveSet()(here, None, target_of(here, 1e-14)).theta)
    other = dual(here, scaled(here, last.C, last.theta))
    assert best - dual(here, place.theta) < 0.2 * (best - other)


@pytest.mark.parametrize("kind", ["hinge", "squared hinge", "absolute"])
@pytest.mark.parametrize("values", [np.geomspace(0.1, 3.0, 25), np.geomspace(3.0, 0.1, 25)])
def test_it_is_nearer_than_the_last_point_scaled(
    kind: str, values: np.ndarray, rng: np.random.Generator
) -> None:
    problem, cache, start, before = make(kind, rng), PathCache(), None, 1.0
    ratios = []
    for value in values:
        here, place = problem.with_(C=float(value)), None
        if start is not None:
            start = Start(start.x, scaled(here, before, start.theta))
            place = cache.extrapolate(here)
        target = target_of(here, 1e-7)
        found = DualActiveSet(path_cache=cache)(here, start, target)
        assert certify(here, found.x, found.theta, tol=1.0).gap <= 1.01 * target
        if place is not None and start is not None:
            best = dual(here, found.theta)
            ratios.append((best - dual(here, place.theta)) / (best - dual(here, start.theta)))
        start, before = Start(found.x, found.theta), value
    assert len(ratios) >= 0.8 * (len(values) - 2)
    assert np.median(ratios) < 0.5


def test_it_is_refused_where_the_last_point_is_better(rng: np.random.Generator) -> None:
    problem = make("hinge", rng)
    cache = passed(problem, (0.9, 1.2))
    here = problem.with_(C=1.5)
    assert cache.extrapolate(here) is not None
    first, key = cache._line._first  # type: ignore[union-attr, misc]
    wrong = SavedIterate(first.C, first.theta, -first.v, first.x, first.t, first.centre)
    cache._line._first = wrong, -key  # type: ignore[union-attr]
    assert cache.extrapolate(here) is None


def test_no_line_back_too_far_or_through_one_point(rng: np.random.Generator) -> None:
    problem = make("hinge", rng)
    assert passed(problem, (1.0,)).extrapolate(problem.with_(C=1.2)) is None
    cache = passed(problem, (1.0, 1.25))
    assert cache.extrapolate(problem.with_(C=1.0)) is None
    assert cache.extrapolate(problem.with_(C=1.25)) is None
    assert cache.extrapolate(problem.with_(C=1.25 + 1.01 * FARTHEST * 0.25)) is None
    assert passed(problem, (1.25, 1.25)).extrapolate(problem.with_(C=1.5)) is None


def test_a_second_call_at_the_same_C_replaces_the_first(rng: np.random.Generator) -> None:
    problem, here = make("hinge", rng), 1.5
    once = passed(problem, (0.9, 1.2), 1e-12).extrapolate(problem.with_(C=here))
    twice = passed(problem, (0.9, 1.2, 1.2), 1e-12).extrapolate(problem.with_(C=here))
    assert once is not None
    assert twice is not None
    np.testing.assert_allclose(once.theta, twice.theta, atol=1e-4)


def test_another_linear_term_is_another_problem(rng: np.random.Generator) -> None:
    problem = make("hinge", rng)
    cache = passed(problem, (0.9, 1.2))
    parts = {"design": problem.design, "linear": problem.linear + rng.standard_normal(D)}
    other = make("hinge", rng, **parts)
    assert cache.extrapolate(other.with_(C=1.5)) is None
    found = DualActiveSet(path_cache=cache)(other.with_(C=1.5), None, 1e-6)
    assert certify(other.with_(C=1.5), found.x, found.theta, tol=1.0).gap <= 1.01e-6
    assert cache.extrapolate(other.with_(C=1.7)) is None


def test_the_gap_with_an_unpenalised_coordinate_counts_the_move_of_x(
    rng: np.random.Generator,
) -> None:
    design = Rows(words(rng), rng.choice([-1.0, 1.0], N), np.ones((N, 1)))
    parts = {"quadratic": Quadratic(np.r_[np.ones(D), 0.0]), "linear": np.zeros(D + 1)}
    problem = make("hinge", rng, design=design, **parts)
    cache, here = passed(problem, (1.0, 1.2)), problem.with_(C=1.5)
    iterate = DualIterate(here, design, Start(np.zeros(D + 1), np.zeros(N)), np.inf, cache)
    assert iterate.extrapolated
    assert np.abs(iterate.correction).max() > 1e-3
    x = iterate.root * (iterate.v + iterate.correction)
    proof = certify(here, x, iterate.balanced, tol=1.0)
    assert iterate.gap == pytest.approx(proof.gap, rel=1e-6)
