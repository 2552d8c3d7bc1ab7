"""The comparison with peers judges by itself, and the solvers for benchopt solve what they say."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from sklearn.linear_model import QuantileRegressor

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "benchmarks"
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="the benchmarks are not shipped here")


def module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"benchmark_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@pytest.fixture(scope="module")
def peers() -> ModuleType:
    return module(FOLDER / "peers.py")


@pytest.mark.parametrize("kind", ["hinge", "squared hinge", "rbf", "quantile", "huber"])
def test_the_judge_agrees_with_a_certified_optimum_and_refuses_another(peers, kind: str) -> None:
    """Primal and dual values meet at the optimum; any other point has a larger gap."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3))
    score = X[:, 0] + 0.5 * rng.normal(size=80)
    y = score if kind in ("quantile", "huber") else np.where(score > 0, 1.0, -1.0)
    x, alpha, ok = peers.ours(kind, X, y, 2.0, 1e-9)
    data = (peers.kernel_matrix(X) if kind == "rbf" else X, y, 2.0)
    bound = peers.dual(kind, data, alpha.copy())
    assert ok
    assert abs(peers.gap_of(kind, data, x, bound)) <= 1e-7
    for _ in range(5):
        assert peers.gap_of(kind, data, x + 0.3 * rng.normal(size=x.shape), bound) > 1e-3
        worse = alpha + 0.3 * rng.normal(size=80)
        assert peers.dual(kind, data, worse) <= peers.primal(kind, data, x)


def test_every_installed_peer_reaches_the_target(peers) -> None:
    record = peers.measured(None, 1, small=True)
    assert {row["problem"] for row in record["rows"]} == {"hinge", "squared hinge", "rbf"}
    for row in record["rows"]:
        assert row["certified"]
        assert row["ratio"] is not None
        target = peers.TARGET[row["problem"]]
        assert row["gaps"]["cvxscreen"] <= target
        assert max(row["gaps"].values()) <= 10 * target  # some peers draw at random
    assert record["versions"]["cvxscreen"]


def test_the_table_goes_between_its_marks(peers, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{peers.BEGIN}\nold\n{peers.END}\nafter\n")
    row = {"data": "set", "n": 1000, "d": 2, "problem": "hinge", "C": 1.0, "ratio": 2.0,
           "seconds": {"cvxscreen": 0.001, "LIBLINEAR": 0.002}, "without": {"rehline": "late"},
           "gaps": {"cvxscreen": 1e-7}}
    record = {"machine": "a machine", "versions": {"numpy": "2"}, "commit": "abc", "rows": [row]}
    peers.write(page, peers.table(record))
    text = page.read_text()
    assert text.startswith(f"before\n{peers.BEGIN}\na machine, one thread; commit abc; numpy 2.")
    assert "| set, 1,000 x 2 | hinge | 1 | 1 | LIBLINEAR 2, rehline: late | 2 | 1e-07 |" in text
    assert text.endswith(f"{peers.END}\nafter\n")
    assert "old" not in text


@pytest.fixture
def benchopt(monkeypatch: pytest.MonkeyPatch) -> None:
    """The installed one; without it a base class that does nothing."""
    try:
        import benchopt as _  # noqa: F401
    except ImportError:
        monkeypatch.setitem(sys.modules, "benchopt", SimpleNamespace(BaseSolver=object))


@pytest.mark.usefixtures("benchopt")
def test_the_benchopt_solvers_reach_the_optimum(peers) -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 4))
    y = np.where(X[:, 0] + rng.normal(size=60) > 0, 1.0, -1.0)
    solver = module(FOLDER / "benchopt" / "linear_svm_binary_classif_no_intercept.py").Solver()
    solver.set_objective(X=X, y=y, C=0.5)
    solver.warm_up()
    solver.run(1e-9)
    _, alpha, _ = peers.ours("hinge", X, y, 0.5, 1e-9)
    bound = peers.dual("hinge", (X, y, 0.5), alpha)
    assert peers.gap_of("hinge", (X, y, 0.5), solver.get_result()["beta"], bound) <= 1e-8

    target = X[:, 0] + rng.normal(size=60)
    for intercept in (True, False):
        solver = module(FOLDER / "benchopt" / "quantile_regression.py").Solver()
        solver.set_objective(X=X, y=target, lmbd=0.02, quantile=0.3, fit_intercept=intercept)
        solver.run(1e-9)
        found = solver.get_result()["params"]
        assert found.shape == (4 + intercept,)
        exact = QuantileRegressor(quantile=0.3, alpha=0.02, fit_intercept=intercept).fit(X, target)

        def value(w: np.ndarray, b: float) -> float:
            r = target - X @ w - b
            return float(np.maximum(0.3 * r, -0.7 * r).mean() + 0.02 * np.abs(w).sum())

        ours = value(found[:4], found[4] if intercept else 0.0)
        assert ours <= value(exact.coef_, exact.intercept_) + 1e-7
