"""A compiled function before and after its first use."""

from __future__ import annotations

import copy
import inspect
import pickle

import numba
import numpy as np

from cvxscreen._support.compiled import SUMS, compiled


@compiled(inline=True)
def _square(value: float) -> float:
    """The square."""
    return value * value


@compiled(fastmath=SUMS, allocates=False)
def squares(values: np.ndarray, scale: float) -> float:
    """The sum of squares, times `scale`."""
    total = 0.0
    for i in range(values.size):
        total += _square(values[i])
    return scale * total


@numba.njit
def of_a_user(values: np.ndarray) -> float:
    """A function that somebody else compiles."""
    return squares(values, 2.0) + 1.0


def test_it_is_a_function_before_anything_is_loaded() -> None:
    fresh = compiled()(squares.py_func)
    assert not fresh.loaded
    assert list(inspect.signature(fresh).parameters) == ["values", "scale"]
    assert inspect.getdoc(fresh) == "The sum of squares, times `scale`."
    assert (fresh.__name__, fresh.__module__) == ("squares", __name__)
    assert np.asarray(fresh).dtype == object
    assert not fresh.loaded


def test_it_compiles_what_it_calls_and_is_compiled_into_what_calls_it() -> None:
    values = np.arange(4.0)
    assert squares(values, 0.5) == squares.py_func(values, 0.5) == 7.0
    assert squares.loaded
    assert squares.signatures
    assert of_a_user(values) == 29.0


def test_it_travels_by_its_name() -> None:
    assert pickle.loads(pickle.dumps(squares)) is squares
    assert copy.deepcopy(squares) is squares
