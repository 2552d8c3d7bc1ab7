"""`path(problem, eps=...)`: at every C between the ends one of the points is good enough."""

from __future__ import annotations

import numpy as np
import pytest

import cvxscreen as cs

RNG = np.random.default_rng(5)
X = RNG.standard_normal((80, 4))
Y = np.where(X[:, 0] + 0.7 * RNG.standard_normal(80) > 0, 1.0, -1.0)

PROBLEMS = {
    "hinge": lambda: cs.svm(X, Y),
    "squared hinge, intercept": lambda: cs.svm(X, Y, loss="squared_hinge", intercept=True),
    "absolute": lambda: cs.regression(X, X[:, 1] + 0.2 * Y, loss="absolute"),
    "kernel": lambda: cs.svm(X, Y, kernel="rbf"),
    "float32, badly scaled": lambda: cs.svm((1e4 * X).astype(np.float32), Y),
}


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("ends", [(0.01, 5.0), (5.0, 0.01)])
def test_at_every_C_a_point_is_within_eps(name: str, ends: tuple[float, float]) -> None:
    problem, eps = PROBLEMS[name](), 0.05
    found = cs.path(problem, eps=eps, values=ends)
    assert found.finished
    spans = [point.serves for point in found.points]
    assert found.values[0] == ends[0]
    drawn = np.geomspace(min(ends), max(ends), 23)
    for C in [*drawn, *(end for span in spans for end in span if min(ends) < end < max(ends))]:
        serving = [p for p in found.points if p.serves[0] <= C <= p.serves[1]]
        assert serving
        here = problem.with_(C=float(C))
        best = cs.solve(here, tol=1e-9).value
        for point in serving:
            assert here.primal(point.x) <= (1.0 + eps) * best * (1.0 + 1e-9)


def test_no_longer_step_would_do() -> None:
    """Just beyond what the last point serves, its scaled pair has a gap above eps."""
    problem, eps = PROBLEMS["hinge"](), 0.05
    found = cs.path(problem, eps=eps, values=(0.01, 1.0))
    for point in found.points[:-1]:
        _, high = point.serves
        here = problem.with_(C=1.001 * high)
        pair = cs.reference_point(here, point.x, point.theta * here.C / point.value)
        assert pair.gap > eps * (pair.primal - pair.gap)


def test_smaller_eps_takes_more_points_and_the_table_says_what_they_serve() -> None:
    few, many = (cs.path(PROBLEMS["hinge"](), eps=eps, values=(0.01, 5.0)) for eps in (0.1, 0.01))
    assert len(few.points) < len(many.points)
    assert "serves from" in str(few)
    assert "serves from" not in str(cs.path(PROBLEMS["hinge"](), values=[1.0]))


def test_a_saved_path_keeps_what_it_serves(tmp_path) -> None:  # type: ignore[no-untyped-def]
    found = cs.path(PROBLEMS["hinge"](), eps=0.1, values=(0.1, 1.0))
    found.save(tmp_path / "path.npz")
    again = cs.load_path(tmp_path / "path.npz")
    assert [tuple(p.serves) for p in again.points] == [p.serves for p in found.points]


def test_what_has_no_scaled_dual_point_is_refused() -> None:
    sparse = cs.sparse_svm(X, Y, 0.01)
    with pytest.raises(cs.InvalidInput, match="penalty"):
        cs.path(sparse, eps=0.1, values=(0.1, 1.0))


def test_time_is_up_with_what_is_finished() -> None:
    found = cs.path(PROBLEMS["hinge"](), eps=1e-4, values=(1e-4, 1e4), time_limit=1e-9)
    assert not found.finished
    assert found.stopped == "time_limit"
