"""What all tests share: one thread, no screen, fixed seeds, and the long mode behind ``--long``."""

from __future__ import annotations

import gc
import os

# Read by the numerical libraries when they are loaded, hence before the first of them is.
for _threads in (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
):
    os.environ.setdefault(_threads, "1")
os.environ.setdefault("MPLBACKEND", "Agg")

import random  # noqa: E402
from collections import defaultdict  # noqa: E402
from collections.abc import Generator  # noqa: E402
from importlib.metadata import version  # noqa: E402

import numpy as np  # noqa: E402
import pytest  # noqa: E402
from covering import chosen  # noqa: E402
from hypothesis import settings  # noqa: E402

SEED = 20130617

# The same examples in every run, so that a failure is everyone's failure.
settings.register_profile("quick", derandomize=True, deadline=None, max_examples=50)
settings.register_profile("long", derandomize=True, deadline=None, max_examples=500)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the tests marked `long` as well")
    parser.addoption(
        "--every", type=int, default=1, help="run every so many-th test only, of those chosen"
    )


def pytest_configure(config: pytest.Config) -> None:
    if tuple(int(part) for part in version("cvxpy").split(".")[:3]) < (1, 9, 3):
        # It sums memory as it finds it, to learn a shape.
        for word in ("invalid value", "overflow"):
            line = f"ignore:{word} encountered in reduce:RuntimeWarning:numpy._core.fromnumeric"
            config.addinivalue_line("filterwarnings", line)
    if getattr(config.option, "dist", "no") == "load":
        config.option.dist = "worksteal"  # neighbours share what their module has worked out
    settings.load_profile("long" if config.getoption("--long") else "quick")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Importing the tests makes much that lives and nothing that dies: no search for it there.

    Nor later, in what the imports have left behind; and in the rest less often than usual, which
    is 3 % of the time. By the threshold: Dask remembers for ever whether the collector was enabled
    when it was imported.
    """
    gc.set_threshold(0)
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(100_000, 50, 100)


@pytest.fixture(autouse=True, scope="session")
def sparse_methods_at_once() -> None:
    """What a test speaks to must not depend on what this machine has compiled before."""
    from cvxscreen.solvers import (
        dual_active_set,
        dual_coordinate_descent,
        dual_pivots,
        truncated_newton,
    )
    from cvxscreen.solvers.compiled_path.segments import compile_now

    compile_now(dual_active_set.CLOCK, dual_coordinate_descent.CLOCK, dual_pivots.CLOCK)
    compile_now(truncated_newton.CLOCK)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is marked `long`, and most cells of what is marked `table` (`covering`).

    Those that were asked for by name are all run, and what is `long` then says that it waits;
    otherwise it is not even handed out, for thousands of skips cost ten seconds.
    """
    every = config.getoption("--every")
    if every > 1:
        config.hook.pytest_deselected(items=[x for k, x in enumerate(items) if k % every])
        items[:] = items[::every]
    if config.getoption("--long"):
        return
    waiting = {item for item in items if item.get_closest_marker("long")}
    if any("::" in argument for argument in config.args):
        for item in waiting:
            item.add_marker(pytest.mark.skip(reason="long: run with --long"))
        return
    tables = defaultdict[str, list[pytest.Item]](list)
    for item in items:
        if item.get_closest_marker("table") and item not in waiting:
            tables[item.nodeid.partition("[")[0]].append(item)
    for cells in tables.values():
        kept = chosen([cell.callspec.params for cell in cells])
        waiting.update(cells)
        waiting.difference_update(cells[number] for number in kept)
    if waiting:
        items[:] = [item for item in items if item not in waiting]
        config.hook.pytest_deselected(items=list(waiting))


@pytest.fixture(autouse=True, scope="session")
def compiled_at_once() -> None:
    """Take the compiled path from the first problem on, whatever is on disk already."""
    import numba  # noqa: F401 - with it, compiled code is taken wherever there is a choice

    from cvxscreen.solvers.compiled_path import segments

    segments.PARTS.price = segments.LOOP.price = segments.LOADING.price = 0.0


@pytest.fixture(autouse=True, scope="session")
def screened_whatever_its_size() -> None:
    """``method="screen"`` leaves small problems to CVXPY; those of the tests are small."""
    from cvxscreen.cvxpy_plugin import request

    request.STEP_ASIDE = False


@pytest.fixture(autouse=True, scope="session")
def plain_solves_are_known() -> None:
    """The first problem that is not recognised gives a warning; here they are meant."""
    from cvxscreen.cvxpy_plugin import request

    request.ALREADY_SAID.append("the tests know")


@pytest.fixture(autouse=True)
def fixed_seeds() -> None:
    """Seed the two global generators that other libraries still draw from."""
    random.seed(SEED)
    np.random.seed(SEED)  # noqa: NPY002


@pytest.fixture
def rng() -> np.random.Generator:
    """Give a generator that starts at the same place in every test."""
    return np.random.default_rng(SEED)
