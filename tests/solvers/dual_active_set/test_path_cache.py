"""What `DualActiveSet` keeps between values of C changes the work, never the answer."""

from __future__ import annotations

import numpy as np
import pytest
from sparse_problems import D, N, make, table, target_of, words

import cvxscreen
from cvxscreen.certificates.certificate import Passes, certify
from cvxscreen.core.duality import reference_point
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.designs.rows import Rows
from cvxscreen.solvers.dual_active_set.iterate import DualIterate, PathCache
from cvxscreen.solvers.dual_active_set.solver import DualActiveSet
from cvxscreen.solvers.dual_active_set.working_set import ScaledRows, WorkingSet
from cvxscreen.solvers.interface import Start
from cvxscreen.solvers.solution import Answer
from cvxscreen.solvers.warm_start import onward_start, warm_start

GRID = np.geomspace(0.05, 5.0, 12)


def along(problem: Problem, cache: PathCache | None) -> list[np.ndarray]:
    """The solutions at `GRID`, each certified."""
    found, start, before = [], None, 1.0
    for value in GRID:
        here = problem.with_(C=float(value))
        if start is not None:
            start = Start(start.x, value / before * start.theta)
        target = target_of(here, 1e-10)
        result = DualActiveSet(path_cache=cache)(here, start, target)
        assert result.status == "optimal"
        assert "dual_active_set" not in result.info
        assert certify(here, result.x, result.theta, tol=1e-9).ok
        found.append(result.x)
        start, before = Start(result.x, result.theta), value
    return found


@pytest.mark.parametrize("kind", ["hinge", "smoothed hinge", "eps-insensitive", "huber"])
def test_the_same_path_with_and_without_a_cache(kind: str, rng: np.random.Generator) -> None:
    problem = make(kind, rng)
    for kept, fresh in zip(along(problem, PathCache()), along(problem, None), strict=True):
        np.testing.assert_allclose(kept, fresh, atol=1e-4 * np.abs(fresh).max())


def test_with_an_unpenalised_coordinate(rng: np.random.Generator) -> None:
    design = Rows(words(rng), rng.choice([-1.0, 1.0], N), np.ones((N, 1)))
    parts = {"quadratic": Quadratic(np.r_[np.ones(D), 0.0]), "linear": np.zeros(D + 1)}
    along(make("hinge", rng, design=design, **parts), PathCache())


def test_what_is_remembered_belongs_together(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Margins are those of the x beside them, also after the last step of the proximal centre."""
    remember, seen = DualIterate.remember, []

    def checked(self: DualIterate) -> None:
        remember(self)
        x = (self.v + self.correction) * self.root
        np.testing.assert_allclose(self.t, self.problem.design.forward(x), atol=1e-9)
        seen.append(self.centre)

    monkeypatch.setattr(DualIterate, "remember", checked)
    design = Rows(words(rng), rng.choice([-1.0, 1.0], N), np.ones((N, 1)))
    parts = {"quadratic": Quadratic(np.r_[np.ones(D), 0.0]), "linear": np.zeros(D + 1)}
    along(make("hinge", rng, design=design, **parts), PathCache())
    assert any(centre.any() for centre in seen)


def test_a_cache_of_other_rows_or_another_metric_is_forgotten(rng: np.random.Generator) -> None:
    cache, first = PathCache(), make("hinge", rng)
    along(first, cache)
    along(make("hinge", rng), cache)
    along(make("hinge", rng, design=first.design, quadratic=Quadratic(np.full(D, 3.0))), cache)


def test_a_block_made_from_another_is_what_it_would_be_afresh(rng: np.random.Generator) -> None:
    source = ScaledRows.of(Rows(words(rng)), np.ones(D))
    losses = table("hinge", N, rng)
    before = WorkingSet(source, np.arange(10, 60), np.arange(100, 130), losses, 16)
    before.cholesky(np.arange(40))
    urgent, near = np.arange(30, 80), np.arange(110, 150)
    fresh = WorkingSet(source, urgent, near, losses, 16)
    block = WorkingSet(source, urgent, near, losses, 16, before)
    assert block.k == before.k
    np.testing.assert_array_equal(np.sort(block.rows), np.sort(fresh.rows))
    v = rng.standard_normal(D)
    order, other = np.argsort(block.rows), np.argsort(fresh.rows)
    np.testing.assert_allclose(
        block.forward(v[block.columns])[order], fresh.forward(v[fresh.columns])[other]
    )
    np.testing.assert_allclose(block.terms.square[order], fresh.terms.square[other])
    # The matrix of the heavy columns has lost the rows that are gone, and got the new ones.
    rows = np.arange(5, 70)
    heavy = np.array([
        np.bincount(block.heavy[2][a:b].astype(int), block.heavy[3][a:b], block.k)
        for a, b in zip(block.heavy[0][rows].astype(int), block.heavy[1][rows].astype(int),
                        strict=True)
    ])
    gram = np.eye(block.k) + heavy.T @ (block.weight[rows, None] * heavy)
    factor = block.cholesky(rows)
    np.testing.assert_allclose(factor @ factor.T, gram, atol=1e-12)


def test_a_block_used_again_takes_the_new_losses(rng: np.random.Generator) -> None:
    source = ScaledRows.of(Rows(words(rng)), np.ones(D))
    losses = table("smoothed hinge", N, rng)
    block = WorkingSet(source, np.arange(50), np.arange(90, 120), losses, 16)
    block.cholesky(np.arange(40))
    block.renew(losses.scaled(0.2))
    fresh = WorkingSet(source, np.arange(50), np.arange(90, 120), losses.scaled(0.2), 16)
    np.testing.assert_array_equal(block.losses.hi, fresh.losses.hi)
    np.testing.assert_array_equal(block.weight, fresh.weight)
    rows = np.arange(30)
    np.testing.assert_allclose(block.cholesky(rows), fresh.cholesky(rows), atol=1e-12)


def test_a_light_start_says_what_an_evaluated_one_says(rng: np.random.Generator) -> None:
    X, y = words(rng), rng.choice([-1.0, 1.0], N)
    first = cvxscreen.solve(cvxscreen.svm(X, y, C=0.9), tol=1e-8)
    before = cvxscreen.solve(first.problem.with_(C=1.0), tol=1e-8, start=first)
    for value in (0.6, 1.7):
        here = before.problem.with_(C=value)
        light, known = onward_start(here, before, True), warm_start(here, before)
        assert light.point is None
        assert light.passes is not None
        assert light.size is not None
        np.testing.assert_allclose(light.theta, known.theta, rtol=1e-14)
        np.testing.assert_allclose(light.passes[1], here.design.adjoint(light.theta), atol=1e-12)
        x_theta = -here.quadratic.solve(light.passes[1])
        np.testing.assert_allclose(light.passes[0], here.design.forward(x_theta), atol=1e-7)
        best = cvxscreen.solve(here, tol=1e-8).value
        assert 0.5 * best <= light.size <= best * (1.0 + 1e-7)
        assert onward_start(here, before, False).point is not None


def test_no_light_start_where_margins_do_not_scale(rng: np.random.Generator) -> None:
    X, y = words(rng), rng.choice([-1.0, 1.0], N)
    free = cvxscreen.solve(cvxscreen.svm(X, y, intercept=True))
    assert onward_start(free.problem.with_(C=2.0), free, True).passes is None
    tilted = make("hinge", rng, linear=rng.standard_normal(D))
    found = cvxscreen.solve(tilted)
    assert onward_start(tilted.with_(C=2.0), found, True).passes is None
    other = cvxscreen.solve(cvxscreen.svm(words(rng), y))
    start = onward_start(cvxscreen.svm(X, y, C=2.0), other, True)
    assert start.passes is None


def test_the_certificate_gives_its_passes_and_takes_none(rng: np.random.Generator) -> None:
    problem = make("hinge", rng)
    found = DualActiveSet()(problem, None, target_of(problem, 1e-8))
    passes = Passes(np.full(N, 7.0), np.full(D, 7.0))
    proof = certify(problem, found.x, found.theta, passes=passes)
    assert proof == certify(problem, found.x, found.theta)
    np.testing.assert_allclose(passes.margins, problem.design.forward(found.x), atol=1e-12)
    np.testing.assert_array_equal(passes.At_theta, problem.design.adjoint(found.theta))


def test_a_point_from_known_products_is_the_point(rng: np.random.Generator) -> None:
    """Products of slopes that had to be changed are not taken over."""
    problem = make("hinge", rng)
    x, theta = rng.standard_normal(D), problem.losses.lo * rng.uniform(0.0, 1.0, N)
    answer = Answer.of(problem, x, theta, np.zeros(0), 1e-6)
    plain = reference_point(problem, x, theta)
    assert answer.point.gap == pytest.approx(plain.gap, rel=1e-13)
    np.testing.assert_array_equal(answer.point.At_theta, plain.At_theta)
    theta[3] = 5.0
    wrong = reference_point(
        problem, x, theta, known=(problem.design.forward(x), problem.design.adjoint(theta))
    )
    np.testing.assert_array_equal(wrong.At_theta, problem.design.adjoint(wrong.theta))


def test_a_solution_certified_first_is_still_a_reference(rng: np.random.Generator) -> None:
    X, y = words(rng), rng.choice([-1.0, 1.0], N)
    found = cvxscreen.solve(cvxscreen.svm(X, y), tol=1e-7)
    assert found.certificate.ok
    point = found.point()
    assert point.gap == pytest.approx(found.certificate.gap, rel=1e-3)
    assert found.screening.proven_from(found.bounds, point).codes.max() >= 0
    assert (found.screening.codes >= 0).any()
    assert cvxscreen.solve(found.problem.with_(C=1.3), start=found, mode="safe").certificate.ok
