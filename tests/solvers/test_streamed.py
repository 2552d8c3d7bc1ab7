"""Data in chunks: the same answer as in memory, the rounds that lead there, and what is proven.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from rational import Fraction

import cvxscreen as cs
from cvxscreen.bounds import gap_ball
from cvxscreen.core import streamed as chunk_survey
from cvxscreen.core.streamed import ChunkTerms, UnitLoss
from cvxscreen.designs.chunks import Chunks
from cvxscreen.errors import InvalidInput
from cvxscreen.out_of_core.streams import Blocks, Column, LocalEngine, Mapped, Source, Task
from cvxscreen.screening.reduction import judge
from cvxscreen.solvers import streamed as chunked
from cvxscreen.solvers.streamed import Pilot, pilot, proof_task

N, D = 4000, 6
CLASSES = ("hinge", "smoothed_hinge", "squared_hinge")
RESPONSES = ("absolute", "quantile", "epsilon", "smoothed_epsilon", "huber")


def data(n: int = N, d: int = D, seed: int = 0) -> tuple[Any, Any, Any]:
    """float32 rows, labels, responses; sorted by response, so that chunks differ."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)).astype(np.float32)
    f = X @ rng.standard_normal(d) + 0.7 * rng.standard_normal(n) + 0.4
    order = np.argsort(f)
    X, f = X[order], f[order]
    return X, np.where(f + rng.standard_normal(n) > 0.3, 1, -1), f


def cut(X: Any, rows: int = 371) -> Blocks:
    """`X` as chunks of uneven number."""
    return Blocks(tuple(X[k : k + rows] for k in range(0, X.shape[0], rows)))


@pytest.fixture
def tight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for 1500 terms only, so that what is not near a kink must be collapsed."""
    monkeypatch.setattr(chunk_survey, "MOST_BYTES", 1500 * (chunk_survey.TERM_BYTES + 8 * D))


@pytest.mark.table
@pytest.mark.usefixtures("tight")
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("loss", CLASSES + RESPONSES)
def test_same_answer_as_in_memory(loss: str, weighted: bool, intercept: bool) -> None:
    X, y, f = data()
    weight = np.random.default_rng(3).uniform(0.0, 2.0, N) if weighted else None
    if weight is not None:
        weight[::9] = 0.0
    made = partial(cs.svm, y=y) if loss in CLASSES else partial(cs.regression, y=f)
    options: Any = {"C": 0.3, "loss": loss, "sample_weight": weight, "intercept": intercept}
    if loss == "smoothed_epsilon":
        options |= {"gamma": 0.2, "epsilon": 0.2}
    here, there = made(X, **options), made(cut(X), **options)
    whole, parts = cs.solve(here, tol=1e-9), cs.solve(there, tol=1e-9)
    assert parts.status == "optimal"
    assert parts.certificate.ok
    assert parts.rounds[-1].kept < 0.5 * N
    assert parts.passes <= 12
    assert parts.value == pytest.approx(whole.value, rel=3e-9)
    assert np.linalg.norm(parts.x - whole.x) <= 1e-3 * np.linalg.norm(whole.x)
    assert parts.alpha.shape == (N,)
    # The certificate for data in memory, which shares no code with the one for chunks.
    proof = cs.certify(here, parts.x, np.asarray(parts.theta), tol=1e-9)
    assert proof.ok
    assert proof.primal == pytest.approx(parts.certificate.primal, rel=1e-12)


@pytest.mark.usefixtures("tight")
@pytest.mark.parametrize("loss", ["smoothed_hinge", "hinge"])
def test_features_are_sparse_too(loss: str) -> None:
    X, y, _ = data()
    y = np.where(X[:, 0] - X[:, 1] + 0.5 * np.sign(y) > 0, 1, -1)
    lam = 0.2 * cs.lambda_max(cs.sparse_svm(X, y, 1.0))
    assert 0.2 * cs.lambda_max(cs.sparse_svm(cut(X), y, 1.0)) == pytest.approx(lam, rel=1e-12)
    whole = cs.solve(cs.sparse_svm(X, y, lam, loss=loss), tol=1e-9)
    parts = cs.solve(cs.sparse_svm(cut(X), y, lam, loss=loss), tol=1e-9)
    assert parts.status == "optimal"
    assert parts.rounds[-1].kept < 0.5 * N
    assert 0 < (parts.x != 0).sum() < D
    assert np.array_equal(parts.x != 0, whole.x != 0)
    np.testing.assert_allclose(parts.x, whole.x, atol=1e-4)


@pytest.mark.parametrize("loss", ["huber", "smoothed_epsilon", "epsilon", "absolute"])
def test_sparse_rows_and_sparse_features(loss: str) -> None:
    rng = np.random.default_rng(5)
    X = sp.random(2500, 60, density=0.1, format="csr", random_state=5, dtype=np.float32)
    f = X[:, :4] @ np.array([3.0, -2.0, 2.0, 1.0]) + 0.1 * rng.standard_normal(2500)
    lam = 0.1 * cs.lambda_max(cs.sparse_svr(X, f, 1.0, loss=loss))
    whole = cs.solve(cs.sparse_svr(X, f, lam, loss=loss), tol=1e-8)
    parts = cs.solve(cs.sparse_svr(cut(X), f, lam, loss=loss), tol=1e-8)
    assert parts.status == "optimal"
    assert parts.value == pytest.approx(whole.value, rel=3e-8)
    assert cs.certify(whole.problem, parts.x, np.asarray(parts.theta), tol=1e-8).ok


@dataclass
class Posting(LocalEngine):
    """An engine that sends everything by post: tasks, sources, columns and results are pickled."""

    def run(self, task: Task, source: Source, columns: Sequence[Column] = ()) -> Any:
        columns = tuple(_Posted(column) for column in columns)
        return pickle.loads(pickle.dumps(super().run(*_post(task, source), columns)))


@dataclass(frozen=True)
class _Posted:
    column: Column

    def __getitem__(self, rows: slice) -> Any:
        return pickle.loads(pickle.dumps(self.column[rows]))


def _post(*things: Any) -> Any:
    return pickle.loads(pickle.dumps(things))


@pytest.mark.usefixtures("tight")
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_not_a_bit_depends_on_who_visits_the_chunks(loss: str, tmp_path: Path) -> None:
    X, y, _ = data()
    np.save(tmp_path / "X.npy", X)
    before = (tmp_path / "X.npy").read_bytes()
    mapped = Mapped(np.load(tmp_path / "X.npy", mmap_mode="r"), chunk_bytes=371 * D * 4)
    answers = [
        cs.solve(cs.svm(given, y, loss=loss, intercept=True))
        for given in [
            cut(X),
            mapped,
            *((mapped, LocalEngine(k)) for k in (2, 4)),
            (mapped, Posting()),
        ]
    ]
    for other in answers[1:]:
        assert np.array_equal(other.x, answers[0].x)
        assert np.array_equal(other.alpha, answers[0].alpha)
        assert other.certificate == answers[0].certificate
    assert (tmp_path / "X.npy").read_bytes() == before


def test_a_memory_map_is_taken_as_it_is(tmp_path: Path) -> None:
    X, y, _ = data()
    np.save(tmp_path / "X.npy", X)
    given = np.load(tmp_path / "X.npy", mmap_mode="r")
    found = cs.solve(cs.svm(given, y, C=0.1))
    assert found.passes >= 3
    assert "in chunks" in str(found)
    assert found.value == pytest.approx(cs.solve(cs.svm(X, y, C=0.1)).value, rel=2e-6)


@pytest.mark.usefixtures("tight")
def test_nothing_as_long_as_the_data_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, _ = data()
    problem = cs.svm(cut(X), y, C=1.0, intercept=True)

    def refuse(self: object, *_: object) -> None:
        raise AssertionError("a column over all terms was made")

    for name in ("b", "e", "q", "lo", "hi"):
        monkeypatch.setattr(ChunkTerms, name, property(refuse))
    for name in ("forward", "weighted_squares"):
        monkeypatch.setattr(type(problem.design), name, refuse)
    assert cs.solve(problem.with_(C=0.5)).status == "optimal"
    sparse = cs.sparse_svm(cut(X), y, 1e-3)
    assert cs.solve(sparse.with_(lam=1e-2)).status == "optimal"


def _astray(problem: Any, solve: Any, start: Any, budget: int, *, by: float) -> Pilot:
    """A pilot that points somewhere else and is sure of it."""
    found = pilot(problem, solve, start, budget)
    step = np.random.default_rng(1).standard_normal(len(found.x))
    away = found.x + by * np.linalg.norm(found.x) * step / np.linalg.norm(step)
    return replace(found.seen_from(away, problem), width=1e-6)


@pytest.mark.table
@pytest.mark.usefixtures("tight")
@pytest.mark.parametrize("loss", ["absolute", "huber"])
@pytest.mark.parametrize("intercept", [False, True])
def test_a_bad_start_is_survived(
    loss: str, intercept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, _, f = data()
    monkeypatch.setattr(chunked, "pilot", partial(_astray, by=0.3))
    options: Any = {"loss": loss, "intercept": intercept}
    parts = cs.solve(cs.regression(cut(X), f, **options), tol=1e-7)
    whole = cs.solve(cs.regression(X, f, **options), tol=1e-7)
    assert parts.status == "optimal"
    assert len(parts.rounds) > 1
    assert parts.rounds[0].refuted > 0 or parts.rounds[0].gap == np.inf
    assert parts.value == pytest.approx(whole.value, rel=2e-7)


def test_a_path_over_chunks() -> None:
    X, y, _ = data()
    grid = [1e-3, 1e-2, 0.1]
    whole, parts = (cs.path(cs.svm(given, y), values=grid) for given in (X, cut(X)))
    for one, other in zip(whole.points, parts.points, strict=True):
        assert other.status == "optimal"
        assert other.objective == pytest.approx(one.objective, rel=2e-6)
        assert other.theta.size == 0


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
def test_nan_in_a_late_chunk_is_named(bad: float, kind: Any) -> None:
    X, y, _ = data()
    X[3333, 2] = bad
    with pytest.raises(InvalidInput, match=r"`X` .* row 3333 \(of the chunk of rows 2968 to 3338"):
        cs.svm(cut(kind(X)), y)


def test_what_is_refused() -> None:
    X, y, f = data(800)
    chunks = cut(X)
    with pytest.raises(InvalidInput, match=r'`mode` is "safe".*mode="certified"'):
        cs.solve(cs.svm(chunks, y), mode="safe")
    with pytest.raises(InvalidInput, match="`kernel`"):
        cs.svm(chunks, y, kernel="rbf")
    with pytest.raises(InvalidInput, match="LP-SVM"):
        cs.sparse_svm(chunks, y, 0.1, loss="hinge", l2=0)
    with pytest.raises(InvalidInput, match="label 2"):
        cs.svm(chunks, np.where(y > 0, 2, -1))
    with pytest.raises(InvalidInput, match="only one class"):
        cs.svm(chunks, np.ones(800))
    with pytest.raises(InvalidInput, match="`y` has shape"):
        cs.regression(chunks, f[:-1])
    with pytest.raises(InvalidInput, match=r"`y` holds NaN .*row 5"):
        cs.regression(chunks, np.where(np.arange(800) == 5, np.nan, f))
    with pytest.raises(InvalidInput, match="negative"):
        cs.regression(chunks, f, sample_weight=f)
    found = cs.solve(cs.svm(chunks, y))
    with pytest.raises(InvalidInput, match="not listed"):
        _ = found.screening
    with pytest.raises(InvalidInput, match="no reference"):
        found.point()


def test_terms_on_parabolas_are_kept_where_features_are_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chunked, "FOLD_LIMIT", 3)
    monkeypatch.setattr(chunk_survey, "MOST_BYTES", 3000 * (chunk_survey.TERM_BYTES + 8 * D))
    X, y, _ = data()
    whole = cs.svm(X, y, C=0.3, loss="smoothed_hinge", gamma=2.0)
    best = cs.solve(whole, tol=1e-10)
    bent = np.isin(whole.losses.piece_within(*(2 * [whole.design.forward(best.x)])), (1, 3)).sum()
    found = cs.solve(cs.svm(cut(X), y, C=0.3, loss="smoothed_hinge", gamma=2.0), tol=1e-9)
    assert found.status == "optimal"
    assert found.value == pytest.approx(best.value, rel=3e-9)
    assert 2000 < bent - 10 <= found.rounds[-1].kept < 3000


def test_terms_on_parabolas_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    X, _, f = data(3000)
    monkeypatch.setattr(chunked, "FOLD_LIMIT", 3)
    monkeypatch.setattr(chunk_survey, "MOST_BYTES", 1000 * (chunk_survey.TERM_BYTES + 8 * D))
    with pytest.raises(InvalidInput, match="lie on a quadratic piece"):
        cs.solve(cs.regression(cut(X), f, loss="huber"))


CASES = [("hinge", np.float64), ("hinge", np.float32), ("smoothed_hinge", np.float64),
         ("absolute", np.float64), ("epsilon", np.float32), ("huber", np.float64)]


def problems(loss: str, dtype: Any, scale: float = 1.0) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = (scale * rng.standard_normal((1500, 4)) * [1.0, 1e-3, 10.0, 1.0]).astype(dtype)
    f = X @ rng.standard_normal(4) / scale + 0.3 * rng.standard_normal(1500)
    chunks = Blocks(tuple(X[k : k + 400] for k in range(0, 1500, 400)))
    if "hinge" in loss:
        y = np.where(f > 0, 1, -1)
        return tuple(cs.svm(given, y, C=0.1, loss=loss) for given in (X, chunks))
    return tuple(cs.regression(given, f, C=0.1, loss=loss) for given in (X, chunks))


@pytest.mark.parametrize("scale", [1.0, 1e4])
@pytest.mark.parametrize(("loss", "dtype"), CASES)
def test_nothing_proven_is_wrong(loss: str, dtype: Any, scale: float) -> None:
    whole, parts = problems(loss, dtype, scale)
    best = cs.solve(whole, tol=1e-13)
    right = whole.losses.piece_within(*(2 * [whole.design.forward(best.x)]))
    for tol in (1e-3, 1e-6, 1e-10):
        found = cs.solve(parts, tol=tol)
        task = proof_task(parts, found.x, found.certificate.gap)
        assert task is not None
        X, sign, target = whole.design.matrix, whole.design.scale, None
        if "hinge" not in loss:
            target = whole.losses.b
        codes = task.codes(np.ascontiguousarray(X), sign, target, None)
        sure = (codes >= 0) & (right >= 0)
        assert np.array_equal(codes[sure], right[sure])
        assert sum(found.decided) == (codes >= 0).sum()
        zero = np.isin(codes, (2,)).sum()
        assert found.decided[0] == zero
        assert found.status == "optimal"
    assert scale > 1.0 or sum(found.decided) > 0.8 * 1500  # a ball is small only beside the rows


@pytest.mark.parametrize("tol", [1e-2, 1e-5])
@pytest.mark.parametrize(("loss", "dtype"), CASES)
def test_every_term_is_decided_as_by_the_gap_ball_in_memory(
    loss: str, dtype: Any, tol: float
) -> None:
    whole, parts = problems(loss, dtype)
    found = cs.solve(parts, tol=tol)
    point = cs.reference_point(whole, found.x, np.asarray(found.theta))
    region = gap_ball(whole, point)
    task = proof_task(parts, found.x, point.gap)
    assert task is not None
    target = None if "hinge" in loss else whole.losses.b
    codes = task.codes(np.ascontiguousarray(whole.design.matrix), whole.design.scale, target, None)
    apart = codes != judge(whole, region).codes
    # Only where an end of the interval is at a kink up to rounding.
    low, high = region.intervals()
    knots = np.array(whole.losses.knots)
    slack = 1e-9 * (1.0 + np.abs(low) + np.abs(high))
    near = (np.abs(low - knots) <= slack) | (np.abs(high - knots) <= slack)
    assert not (apart & ~near.any(axis=0)).any()
    assert (codes >= 0).sum() > 50


def test_the_radius_is_not_larger_than_it_must_be() -> None:
    # One term on its linear piece: P is 1/2 |x - x*|^2 plus a constant, so the gap ball is tight.
    whole, parts = problems("hinge", np.float64)
    best = cs.solve(whole, tol=1e-13)
    x = best.x + 1e-9
    off = float(np.linalg.norm(x - best.x))
    task = proof_task(parts, x, 0.5 * off**2)
    assert task is not None
    assert off <= task.radius <= 1.0001 * off
    assert 0.99 * task.radius < off


def over_chunks(rows: Any, diagonal: Any) -> cs.Problem:
    """Hinges over two chunks beside ``1/2 sum_j m_j x_j^2``."""
    half = len(rows) // 2
    design = Chunks(Blocks((rows[:half], rows[half:])), LocalEngine())
    terms = ChunkTerms(len(rows), UnitLoss(1.0, 0.0, 0.0, -1.0, 0.0))
    quadratic = cs.Quadratic(np.asarray(diagonal))
    return cs.Problem(design, terms, quadratic, linear=np.zeros(len(quadratic.diagonal)))


@pytest.mark.parametrize("j", range(4))
def test_the_ball_is_measured_in_the_metric_of_the_quadratic_term(j: int) -> None:
    diagonal, rows = np.array([4.0, 0.25, 1.0, 30.0]), np.diag([1.5, 0.4, 0.9, 5.0])
    problem = over_chunks(rows, diagonal)
    best = rows.sum(axis=0) / diagonal  # every term on its linear piece
    margins = rows @ best
    assert (margins < 1.0).all()
    x = best.copy()
    x[j] += 30.0 * (1.0 - margins[j]) / rows[j, j]  # so that term j bends just beside the optimum
    task = proof_task(problem, x, problem.primal(x) - problem.primal(best))
    assert task is not None
    codes = task.codes(rows, None, None, None)
    assert codes[j] == -1
    far = proof_task(problem, best, 1e-12)
    assert far is not None
    assert (far.codes(rows, None, None, None) == 0).all()


def test_rounding_of_a_margin_near_a_kink_is_charged() -> None:
    rng = np.random.default_rng(3)
    large = 1e8 * rng.standard_normal((300, 2))
    x = np.array([0.7, 1.3, 1.0])
    rows = np.column_stack([large, 1.0 - large @ x[:2]])  # margins of 1 and some 1e-8
    exact = [
        sum(Fraction(a) * Fraction(c) for a, c in zip(row, x, strict=True)) for row in rows.tolist()
    ]
    problem = over_chunks(rows, np.ones(3))
    task = proof_task(problem, x, 0.0)
    assert task is not None
    for code, t in zip(task.codes(rows, None, None, None), exact, strict=True):
        assert code == -1 or (code == 0) == (t < 1)


def test_an_intercept_is_not_bounded() -> None:
    whole, parts = problems("hinge", np.float64)
    problem = cs.svm(parts.design.source, whole.design.scale, C=0.1, intercept=True)
    assert cs.solve(problem).decided == (0, 0, 0)


def test_a_radius_that_is_too_small_would_be_noticed() -> None:
    whole, parts = problems("hinge", np.float64)
    best = cs.solve(whole, tol=1e-13)
    right = whole.losses.piece_within(*(2 * [whole.design.forward(best.x)]))
    x = best.x + 0.05
    task = proof_task(parts, x, whole.primal(x) - best.value)
    assert task is not None
    X, sign = np.ascontiguousarray(whole.design.matrix), whole.design.scale

    def wrong(radius: float) -> int:
        codes = replace(task, radius=radius).codes(X, sign, None, None)
        return int(((codes >= 0) & (right >= 0) & (codes != right)).sum())

    assert wrong(task.radius) == 0
    assert wrong(1e-2 * float(np.linalg.norm(x - best.x))) > 0
