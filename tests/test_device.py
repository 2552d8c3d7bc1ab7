"""Arrays of other libraries on devices that numpy cannot read, played by array_api_strict."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cvxscreen
from cvxscreen import on_device
from cvxscreen.chunk_loops import STRIP
from cvxscreen.chunk_rows import Chunk
from cvxscreen.chunks import Chunks
from cvxscreen.errors import InvalidInput
from cvxscreen.sources.device import DeviceBlock, elsewhere, fetched
from cvxscreen.sources.known import opened
from cvxscreen.sources.memory import Blocks

xp = pytest.importorskip("array_api_strict")
DEVICE = xp.Device("device1")


def there(values: Any, device: Any = DEVICE) -> Any:
    return xp.asarray(np.asarray(values), device=device)


def test_only_arrays_that_numpy_cannot_read_are_left_where_they_are() -> None:
    X = np.ones((4, 2))
    assert elsewhere(there(X))
    assert opened(there(X)) is not None
    assert opened(xp.asarray(X)) is None  # in this process's memory: an ordinary matrix
    assert opened(X) is None
    assert opened([[1.0, 2.0]]) is None
    assert np.array_equal(fetched(there(X)), X)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("n", [7, STRIP, 3 * STRIP + 5])
def test_products_are_within_the_bounds_of_double_precision(kind: Any, n: int) -> None:
    rng = np.random.default_rng(0)
    X = (rng.standard_normal((n, 9)) * 10.0 ** rng.uniform(-6, 6, (n, 1))).astype(kind)
    x, theta, sign = rng.standard_normal(10), rng.standard_normal(n), rng.choice([-1.0, 1.0], n)
    source, engine = on_device(there(X), chunk_bytes=1500 * 9 * X.itemsize)
    design = Chunks(source, engine, sign, intercept=True)
    exact = np.column_stack([X, np.ones(n)]).astype(np.longdouble) * sign[:, None]
    size = np.abs(exact)
    for found, wanted, room in (
        (design.forward(x), exact @ x, design.forward_factor * (size @ np.abs(x))),
        (design.adjoint(theta), exact.T @ theta, design.adjoint_factor * (size.T @ np.abs(theta))),
        (design.weighted_squares(x**2), exact**2 @ x**2, 1e-14 * (exact**2 @ x**2)),
    ):
        assert isinstance(found, np.ndarray)
        assert found.dtype == np.float64
        assert (np.abs(found - wanted) <= room).all()
    assert np.abs(design.forward(x) - exact @ x).max() > 0  # so the test sees rounding
    some = np.array([0, n // 2, n - 1])
    assert np.array_equal(design.dense(some), np.asarray(exact[some], dtype=np.float64))


def test_a_strip_is_summed_before_it_joins_the_others() -> None:
    n = 5 * STRIP
    rows = np.zeros((n, 1))
    rows[0], rows[STRIP::STRIP] = 2.0**53, 1.0
    rows[STRIP + 1 :: STRIP] = 1.0
    block = DeviceBlock(xp, there(rows))
    # 1 + 1 within a strip survives beside 2^53; one at a time they would be rounded away.
    assert Chunk.of(block, None, False).adjoint(np.ones(n))[0] == 2.0**53 + 8


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_the_same_optimum_as_in_memory(kind: Any) -> None:
    X, y = cvxscreen.datasets.two_gaussians(3000, 5, seed=1)
    X = X.astype(kind)
    target = X @ np.arange(5) + np.random.default_rng(0).standard_normal(len(X))
    bytes_ = 700 * 5 * X.itemsize
    far, near = on_device(there(X), chunk_bytes=bytes_), Blocks((X[:700], X[700:]))
    for build, labels in (
        (lambda A, b: cvxscreen.svm(A, b, C=0.1, intercept=True), y),
        (lambda A, b: cvxscreen.svm(A, b, C=0.1, loss="squared_hinge"), y),
        (lambda A, b: cvxscreen.regression(A, b, C=0.1), target),
        (lambda A, b: cvxscreen.sparse_svm(A, b, 0.01), y),
    ):
        found = cvxscreen.solve(build(far, there(labels)))
        wanted = cvxscreen.solve(build(near, labels))
        plain = cvxscreen.solve(build(X, labels))
        assert found.status == "optimal"
        assert isinstance(found.x, np.ndarray)
        assert found.certificate.ok
        assert found.value == pytest.approx(wanted.value, rel=2e-6)
        assert found.value == pytest.approx(plain.value, rel=2e-6)


def test_a_wrong_answer_is_refused() -> None:
    X, y = cvxscreen.datasets.two_gaussians(500, 3, seed=2)
    problem = cvxscreen.svm(there(X), y, C=0.1)
    found = cvxscreen.solve(problem)
    assert cvxscreen.certify(problem, found.x, found.theta).ok
    assert not cvxscreen.certify(problem, 1.01 * found.x, found.theta).ok


def test_weights_may_lie_on_the_device() -> None:
    X, y = cvxscreen.datasets.two_gaussians(500, 3, seed=2)
    weight = np.linspace(0, 1, 500)
    found = cvxscreen.solve(cvxscreen.svm(there(X), there(y), sample_weight=there(weight)))
    plain = cvxscreen.solve(cvxscreen.svm(X, y, sample_weight=weight))
    assert found.value == pytest.approx(plain.value, rel=2e-6)


def test_pytorch() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("array_api_compat")
    X, y = cvxscreen.datasets.two_gaussians(3000, 5, seed=1)
    wanted = cvxscreen.solve(cvxscreen.svm(X, y, C=0.1, intercept=True))
    for name in ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]:
        rows = torch.asarray(X, device=name).requires_grad_(True)
        labels = torch.asarray(y, device=name)
        assert elsewhere(rows.detach()) is (name != "cpu")
        far = on_device(rows, chunk_bytes=1500 * 5 * 8)
        found = cvxscreen.solve(cvxscreen.svm(far, labels, C=0.1, intercept=True))
        assert found.certificate.ok
        assert found.value == pytest.approx(wanted.value, rel=2e-6)


def test_integers_are_converted() -> None:
    X = np.arange(12).reshape(6, 2)
    source, engine = on_device(there(X))
    assert np.array_equal(engine.gather(source, np.arange(6)), X)
    assert source.load(0)[np.array([1])].dtype == np.float64


@pytest.mark.parametrize(
    ("X", "words"),
    [
        (there(np.ones(3)), r"shape \(3,\)"),
        (there(np.ones((0, 3))), r"shape \(0, 3\)"),
        (there(np.ones((3, 2)) * 1j), "dtype .*complex"),
        (there(np.ones((3, 2), np.float32), xp.Device("no_float64")), "no double precision"),
        ("rows", "does not follow the array API standard"),
    ],
)
def test_refuses(X: Any, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        on_device(X)


def test_nan_is_found_and_its_row_named() -> None:
    X = np.ones((2000, 2))
    X[1234, 1] = np.nan
    with pytest.raises(InvalidInput, match="row 1234"):
        cvxscreen.svm(there(X), np.where(np.arange(2000) % 2, 1, -1))
