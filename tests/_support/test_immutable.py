"""Records whose fields are set once behave as frozen dataclasses, and cost less to define."""

from __future__ import annotations

import pickle
from copy import copy, deepcopy
from dataclasses import FrozenInstanceError, field, fields, replace
from functools import cached_property

import numpy as np
import pytest

from cvxscreen._support.immutable import Immutable


class Interval(Immutable):
    """A record with what records have: defaults, something derived, something checked."""

    low: float
    high: float = 1.0
    notes: list[str] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError("empty")

    @cached_property
    def middle(self) -> float:
        """Worked out when somebody looks."""
        return 0.5 * (self.low + self.high)


class Named(Interval):
    """With another field behind those of the record it extends."""

    name: str = "x"


@pytest.mark.parametrize("name", ["low", "high", "middle", "unheard_of"])
def test_nothing_can_be_assigned_or_deleted(name: str) -> None:
    interval = Interval(0.0)
    assert interval.middle == 0.5
    with pytest.raises(FrozenInstanceError, match=name):
        setattr(interval, name, 0.25)
    with pytest.raises(FrozenInstanceError, match=name):
        delattr(interval, name)
    assert (interval.low, interval.high, interval.middle) == (0.0, 1.0, 0.5)
    assert not hasattr(interval, "unheard_of")


def test_what_is_derived_is_worked_out_anew_for_a_changed_one() -> None:
    interval = Interval(0.0)
    assert interval.middle == 0.5
    moved = replace(interval, high=3.0)
    assert (moved.middle, interval.middle) == (1.5, 0.5)
    with pytest.raises(ValueError, match="empty"):
        replace(interval, low=2.0)


def test_a_record_may_extend_another() -> None:
    named = Named(0.25, name="y")
    assert [f.name for f in fields(named)] == ["low", "high", "notes", "name"]
    assert repr(named) == "Named(low=0.25, high=1.0, name='y')"
    assert Named(0.0).notes is not Named(0.0).notes


def test_records_are_compared_by_identity_and_hashed_so() -> None:
    """Their arrays have no truth value, and to compare these would be a pass over the data."""
    class Vector(Immutable):
        entries: np.ndarray

    first, second = Vector(np.zeros(3)), Vector(np.zeros(3))
    assert first == first
    assert first != second
    assert len({first, second, first}) == 2


@pytest.mark.parametrize("again", [copy, deepcopy, lambda r: pickle.loads(pickle.dumps(r))])
def test_copies_are_records_as_well(again: object) -> None:
    made = again(Named(0.25, 0.75, ["a"], "y"))  # type: ignore[operator]
    assert (made.low, made.high, made.notes, made.name) == (0.25, 0.75, ["a"], "y")
    with pytest.raises(FrozenInstanceError):
        made.low = 0.0


def test_one_method_is_compiled_for_each() -> None:
    """What makes them cheap: a frozen dataclass has three to seven."""
    compiled = {name for name, value in vars(Named).items() if callable(value)}
    assert compiled == {"__init__"}
