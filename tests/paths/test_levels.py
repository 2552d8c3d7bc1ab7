"""Quantile levels that are solved together are those that are solved alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import cvxscreen as cs
from cvxscreen._support.limits import Limits
from cvxscreen.paths import levels, path
from cvxscreen.paths.levels import LevelBlock

UP = np.arange(30, 45) / 100
MIXED = np.array([0.3, 0.33, 0.31, 0.35, 0.35, 0.32, 0.3])


def data(n: int = 6000, d: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    noise = rng.standard_t(3, n) * (1.0 + 0.5 * np.abs(X[:, 0]))
    return X, X @ rng.standard_normal(d) + noise


def model(X: Any, y: np.ndarray, **options: Any) -> cs.Problem:
    given = {"loss": "quantile", "C": np.inf, "tau": 0.5, "intercept": True} | options
    return cs.regression(X, y, **given)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks over few terms, where they would not pay."""
    monkeypatch.setattr(levels, "LEAST_TERMS", 1000)


@pytest.fixture
def blocks(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """How many levels of each block were solved, and how many of them were certified."""
    seen: list[tuple[int, int]] = []
    whole = LevelBlock.certified

    def certified(self: LevelBlock, *given: Any) -> Any:
        found = whole(self, *given)
        seen.append((len(given[0]), len(found[0])))
        return found

    monkeypatch.setattr(LevelBlock, "certified", certified)
    return seen


def check(
    problem: cs.Problem, found: cs.Path, values: np.ndarray, *, unbounded: bool = True
) -> None:
    """Points that `certify` accepts on all terms, and objectives of single solves."""
    assert [point.value for point in found.points] == list(values)
    for k, point in enumerate(found.points):
        here = problem.with_(tau=point.value)
        proof = cs.certify(here, point.x, point.theta, tol=1e-9)
        assert point.status == "optimal"
        assert proof.ok
        assert np.isinf(proof.within) or not unbounded
        assert point.objective == pytest.approx(proof.primal, rel=1e-12)
        assert point.kept + point.predicted == problem.n
        if k % 4 == 0:
            assert point.objective == pytest.approx(cs.solve(here, tol=1e-10).value, rel=1e-9)


@pytest.mark.parametrize("values", [UP, UP[::-1], MIXED], ids=["up", "down", "mixed"])
def test_levels_together_are_levels_alone(values: np.ndarray, blocks: list) -> None:
    problem = model(*data())
    check(problem, cs.path(problem, over="tau", values=values, tol=1e-9), values)
    assert sum(count for _, count in blocks) >= len(values) // 2


@pytest.mark.parametrize("kind", ["csr", "float32", "weights", "tails", "scaled", "no intercept"])
def test_of_every_kind_of_data(kind: str, blocks: list) -> None:
    X, y = data(seed=2)
    values, options = UP, {}
    if kind == "csr":
        X = sp.csr_matrix(np.where(np.abs(X) > 1.0, X, 0.0))
    elif kind == "float32":
        X = X.astype(np.float32)
    elif kind == "weights":
        options["sample_weight"] = np.random.default_rng(0).uniform(0.1, 5.0, len(y))
    elif kind == "tails":
        values = np.concatenate([np.arange(1, 12), np.arange(90, 100)]) / 100
    elif kind == "scaled":
        X, y = X * np.logspace(-2, 2, X.shape[1]), 1e3 * y
    else:
        options["intercept"] = False
    problem = model(X, y, **options)
    check(problem, cs.path(problem, over="tau", values=values, tol=1e-9), values)
    assert sum(count for _, count in blocks) >= 4


def test_ties_duplicates_and_zero_columns(blocks: list) -> None:
    """Whole numbers, rows twice, a column of zeros: vertices that are degenerate or not unique.

    Nothing bounds the coefficient of the zeros.
    """
    X, y = data(3000)
    X = np.column_stack([np.round(X), np.zeros(3000)])
    X, y = np.vstack([X, X]), np.round(np.concatenate([y, y]))
    problem = model(X, y)
    found = cs.path(problem, over="tau", values=UP, tol=1e-9)
    check(problem, found, UP, unbounded=False)


def test_where_many_terms_are_tied_levels_are_solved_alone(blocks: list) -> None:
    """Whole numbers on both sides: hundreds of terms at their kinks, no vertex to go on from."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 3, (6000, 3)).astype(float)
    y = np.round(X @ np.array([1.0, -2.0, 1.0]) + rng.standard_normal(6000))
    values = np.linspace(0.3, 0.7, 9)
    check(model(X, y), cs.path(model(X, y), over="tau", values=values, tol=1e-9), values)
    assert not blocks
    y += 1e-3 * rng.standard_normal(6000)
    cs.path(model(X, y), over="tau", values=values)
    assert blocks


def test_what_is_predicted_wrongly_is_solved_again(
    blocks: list, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines on the wrong side are refused, and after a few refusals no more blocks are begun."""
    problem, begun = model(*data()), []
    ahead = LevelBlock.predicted_from.__func__

    def wrong(cls: type, *given: Any) -> LevelBlock | None:
        found = ahead(cls, *given)
        begun.append(found)
        if found is None:
            return None
        codes = found.linearised.codes.copy()
        sure = np.flatnonzero(codes >= 0)[:5]
        low, high = levels.Piece.LOW, levels.Piece.HIGH
        codes[sure] = np.where(found.linearised.codes[sure] == low, high, low)
        return replace(found, linearised=replace(found.linearised, codes=codes))

    monkeypatch.setattr(LevelBlock, "predicted_from", classmethod(wrong))
    check(problem, cs.path(problem, over="tau", values=UP, tol=1e-9), UP)
    assert all(count == 0 for _, count in blocks)
    assert len(begun) == path.PATIENCE + 1


def test_a_checkpoint_goes_level_by_level(tmp_path, blocks: list) -> None:
    """So that it can be cut off anywhere; the numbers are those of the other way."""
    problem, file = model(*data()), tmp_path / "levels.npz"
    kept = cs.path(problem, over="tau", values=UP[:6], tol=1e-9, checkpoint=file)
    assert not blocks
    free = cs.path(problem, over="tau", values=UP[:6], tol=1e-9)
    assert blocks
    for one, other in zip(kept.points, free.points, strict=True):
        assert one.objective == pytest.approx(other.objective, rel=1e-9)


def test_what_is_not_a_plain_quantile_regression_is_solved_level_by_level(blocks: list) -> None:
    X, y = data(3000)
    for problem in (model(X, y, C=1.0), model(X, y, C=1.0, penalty="l1")):
        found = cs.path(problem, over="tau", values=UP[:5], tol=1e-8)
        assert all(point.status == "optimal" for point in found.points)
    found = cs.path(model(X, y), over="tau", values=UP[:5], tol=1e-6, mode="safe")
    assert all(point.status == "optimal" for point in found.points)
    assert not blocks


def test_a_path_that_is_out_of_time_has_the_points_that_are_finished() -> None:
    problem = model(*data())
    found = cs.path(problem, over="tau", values=UP, tol=1e-9, time_limit=1e-6)
    assert not found.finished
    assert found.stopped == "time_limit"


def test_levels_that_were_finished_in_time_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time that runs out while a block is solved ends the path behind its finished levels."""
    solved, over = LevelBlock.at_vertices, []

    def slowly(self):
        answers = solved(self)
        over.extend(answers)
        return answers

    monkeypatch.setattr(LevelBlock, "at_vertices", slowly)
    monkeypatch.setattr(Limits, "spent", lambda self, iterations=0: bool(over))
    found = cs.path(model(*data()), over="tau", values=UP)
    assert not found.finished
    assert len(found.points) > 2
    assert all(point.status == "optimal" for point in found.points)
