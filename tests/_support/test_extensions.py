"""What is loaded at first use, and the collection of garbage meanwhile."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from cvxscreen._support.extensions import uncollected


class Cycle:
    """An object that only the collection of garbage can free."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def nothing_is_frozen() -> Iterator[None]:
    """As in a process that runs no tests; tests/conftest.py freezes what their imports made."""
    gc.unfreeze()
    yield
    gc.freeze()


def test_garbage_is_found_again_after_what_was_imported() -> None:
    with uncollected():
        assert not gc.isenabled()
        before = weakref.ref(Cycle())
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
    gc.collect()
    assert before() is None


def test_who_collects_no_garbage_goes_on_so() -> None:
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_what_was_frozen_stays_frozen() -> None:
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        with pytest.raises(ZeroDivisionError), uncollected():
            _ = 1 / 0
        assert gc.get_freeze_count() == pytest.approx(frozen, rel=0.01)
        assert gc.isenabled()
    finally:
        gc.unfreeze()


def test_new_objects_are_counted_as_old() -> None:
    with uncollected():
        made = [[k] for k in range(20_000)]
    assert gc.get_count()[0] < len(made)
