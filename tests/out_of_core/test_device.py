"""Arrays of other libraries on devices that numpy cannot read.

array_api_strict plays one everywhere; where a GPU is found, PyTorch, CuPy and JAX with their rows
on it are tested as well.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cvxscreen
from cvxscreen import on_device
from cvxscreen.designs.chunks import Chunk, Chunks
from cvxscreen.errors import InvalidInput, MissingDependency
from cvxscreen.out_of_core.device import DeviceBlock, on_another_device, to_host
from cvxscreen.out_of_core.streams import STRIP, Blocks, opened

xp = pytest.importorskip("array_api_strict")
DEVICE = xp.Device("device1")


def there(values: Any, device: Any = DEVICE) -> Any:
    return xp.asarray(np.asarray(values), device=device)


def _found(library: str) -> Callable[[Any], Any] | None:
    """What carries values to the GPU with this library; None where either is missing."""
    try:
        module: Any = importlib.import_module(library)
        if library == "torch":
            module.zeros(1, device="cuda")
            importlib.import_module("array_api_compat")
            return lambda values: module.asarray(np.asarray(values), device="cuda")
        if library == "cupy":
            module.zeros(1)
            return lambda values: module.asarray(np.asarray(values))
        module.config.update("jax_enable_x64", True)
        gpu = module.devices("gpu")[0]
        return lambda values: module.device_put(np.asarray(values), gpu)
    except Exception:  # each library has its own way to say that there is no GPU
        return None


PLACES = {"array_api_strict": there} | {
    f"{name} on a GPU": put for name in ("torch", "cupy", "jax") if (put := _found(name))
}


@pytest.fixture(params=PLACES)
def put(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    return PLACES[request.param]


def test_only_arrays_that_numpy_cannot_read_are_left_where_they_are() -> None:
    X = np.ones((4, 2))
    assert on_another_device(there(X))
    assert opened(there(X)) is not None
    assert opened(xp.asarray(X)) is None  # in this process's memory: an ordinary matrix
    assert opened(X) is None
    assert opened([[1.0, 2.0]]) is None
    assert np.array_equal(to_host(there(X)), X)


def test_what_a_library_lends_to_read_is_copied_before_it_is_scaled() -> None:
    class Lent:  # as JAX does
        def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
            values = np.arange(3.0)
            values.flags.writeable = False
            return values

    held = to_host(Lent())
    held *= -1.0
    assert np.array_equal(held, [0.0, -1.0, -2.0])


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("n", [7, STRIP, 3 * STRIP + 5])
def test_products_are_within_the_bounds_of_double_precision(put: Any, kind: Any, n: int) -> None:
    rng = np.random.default_rng(0)
    X = (rng.standard_normal((n, 9)) * 10.0 ** rng.uniform(-6, 6, (n, 1))).astype(kind)
    x, theta, sign = rng.standard_normal(10), rng.standard_normal(n), rng.choice([-1.0, 1.0], n)
    source, engine = on_device(put(X), chunk_bytes=1500 * 9 * X.itemsize)
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
def test_the_same_optimum_as_in_memory(put: Any, kind: Any) -> None:
    X, y = cvxscreen.datasets.two_gaussians(3000, 5, seed=1)
    X = X.astype(kind)
    target = X @ np.arange(5) + np.random.default_rng(0).standard_normal(len(X))
    bytes_ = 700 * 5 * X.itemsize
    far, near = on_device(put(X), chunk_bytes=bytes_), Blocks((X[:700], X[700:]))
    for build, labels in (
        (lambda A, b: cvxscreen.svm(A, b, C=0.1, intercept=True), y),
        (lambda A, b: cvxscreen.svm(A, b, C=0.1, loss="squared_hinge"), y),
        (lambda A, b: cvxscreen.regression(A, b, C=0.1), target),
        (lambda A, b: cvxscreen.sparse_svm(A, b, 0.01), y),
    ):
        found = cvxscreen.solve(build(far, put(labels)))
        wanted = cvxscreen.solve(build(near, labels))
        plain = cvxscreen.solve(build(X, labels))
        assert found.status == "optimal"
        assert isinstance(found.x, np.ndarray)
        assert found.certificate.ok
        assert found.value == pytest.approx(wanted.value, rel=2e-6)
        assert found.value == pytest.approx(plain.value, rel=2e-6)


def test_threads_change_no_bit(put: Any) -> None:
    X, y = cvxscreen.datasets.two_gaussians(3000, 5, seed=1)
    assert on_another_device(put(X))
    assert on_another_device(put(y))
    one, three = (
        cvxscreen.solve(cvxscreen.svm(on_device(put(X), chunk_bytes=9600, workers=k), y, C=0.1))
        for k in (1, 3)
    )
    assert len(on_device(put(X), chunk_bytes=9600)[0].bounds) > 4
    assert np.array_equal(one.x, three.x)
    assert one.certificate == three.certificate
    with pytest.raises(InvalidInput, match="`workers` is 0"):
        on_device(put(X), workers=0)


def test_a_wrong_answer_is_refused(put: Any) -> None:
    X, y = cvxscreen.datasets.two_gaussians(500, 3, seed=2)
    problem = cvxscreen.svm(put(X), y, C=0.1)
    found = cvxscreen.solve(problem)
    assert cvxscreen.certify(problem, found.x, found.theta).ok
    assert not cvxscreen.certify(problem, 1.01 * found.x, found.theta).ok


def test_weights_may_lie_on_the_device(put: Any) -> None:
    X, y = cvxscreen.datasets.two_gaussians(500, 3, seed=2)
    weight = np.linspace(0, 1, 500)
    found = cvxscreen.solve(cvxscreen.svm(put(X), put(y), sample_weight=put(weight)))
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
        assert on_another_device(rows.detach()) is (name != "cpu")
        far = on_device(rows, chunk_bytes=1500 * 5 * 8)
        found = cvxscreen.solve(cvxscreen.svm(far, labels, C=0.1, intercept=True))
        assert found.certificate.ok
        assert found.value == pytest.approx(wanted.value, rel=2e-6)


def test_integers_are_converted(put: Any) -> None:
    X = np.arange(12).reshape(6, 2)
    source, engine = on_device(put(X))
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


def test_libraries_that_need_a_translation_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "array_api_compat", None)
    for library in ("cupy", "torch"):
        kind = type("ndarray", (), {"__module__": library, "ndim": 2, "shape": (3, 2)})
        with pytest.raises(MissingDependency, match=rf"{library}\.ndarray, .*cvxscreen\[gpu\]"):
            on_device(kind())


def test_nan_is_found_and_its_row_named(put: Any) -> None:
    X = np.ones((2000, 2))
    X[1234, 1] = np.nan
    with pytest.raises(InvalidInput, match="row 1234"):
        cvxscreen.svm(put(X), np.where(np.arange(2000) % 2, 1, -1))
