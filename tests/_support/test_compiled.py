"""A compiled function before and after its first use."""

from __future__ import annotations

import copy
import inspect
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import numba
import numpy as np

from cvxscreen._support.compiled import SUMS, compiled, read_only


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


INNER = """
from typing import NamedTuple
from cvxscreen._support.compiled import compiled
class Record{0}(NamedTuple):
    number: int
record = Record{0}({0})
@compiled()
def inner(record):
    return {0} * record.number
"""
OUTER = """
from cvxscreen._support.compiled import compiled, on_disk
from inner import inner, record
@compiled()
def outer(record):
    return inner(record)
print(on_disk(outer), outer(record), bool(outer.stats.cache_hits))
"""


ANEW = """
import importlib, sys
from pathlib import Path
for inner in sys.argv[1:]:
    Path("inner.py").write_text(inner)
    for name in ("inner", "outer"):
        sys.modules.pop(name, None)
    importlib.invalidate_caches()
    importlib.import_module("outer")
"""


def test_what_it_calls_is_compiled_anew_when_its_source_has_changed(tmp_path: Path) -> None:
    """Numba alone would go on with the old function of another file, or look for its records."""
    (tmp_path / "outer.py").write_text(OUTER)
    lines = []
    for numbers in ((1,), (1,), (2, 2)):
        run = subprocess.run(
            [sys.executable, "-B", "-c", ANEW, *map(INNER.format, numbers)], cwd=tmp_path,
            capture_output=True, text=True, check=True, env=os.environ | {"NUMBA_CACHE_DIR": ""},
        )
        lines += [line.split() for line in run.stdout.splitlines()]
    assert [line[1] for line in lines] == ["1", "1", "4", "4"]
    assert [line[0] for line in lines] == ["False", "True", "False", "True"]
    assert [line[2] for line in lines] == ["False", "True", "False", "True"]


@compiled(allocates=False)
def long_sum(terms: int) -> float:
    total, value = 0.0, 1.0
    for _ in range(terms):
        value = 0.5 * (value + 2.0 / value)
        total += value
    return total


def test_one_version_is_compiled_whatever_the_arrays_are() -> None:
    """Kept, fresh, every other entry of one, one number n times; the caller's stay as they were."""
    fresh = compiled()(squares.py_func)
    kept, whole = np.arange(4.0), np.arange(8.0)
    kept.flags.writeable = False
    forms = (kept, np.arange(4.0), 0.5 * whole[::2], whole[::2], np.broadcast_to(1.0, 4))
    found = [fresh(*read_only(form), 1.0) for form in forms]
    assert found == [14.0, 14.0, 14.0, 56.0, 4.0]
    assert len(fresh.signatures) == 1
    assert [form.flags.writeable for form in forms] == [False, True, True, True, False]
    table = np.ones((3, 2), order="F")
    (same,) = read_only(table)
    assert np.shares_memory(same, table)  # tables may be as large as the data


def test_other_threads_run_meanwhile() -> None:
    """Classes and folds that threads share have a core each: the interpreter is not held."""
    long_sum(1)
    inside, over, ticks = threading.Event(), threading.Event(), [0]

    def tick() -> None:
        while not over.wait(1e-3):
            ticks[0] += inside.is_set()

    ticker = threading.Thread(target=tick)
    ticker.start()
    inside.set()
    before = ticks[0]
    long_sum(100_000_000)
    seen = ticks[0] - before
    over.set()
    ticker.join()
    assert seen >= 10
