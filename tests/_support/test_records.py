"""Records behave as dataclasses of the standard library do."""

from __future__ import annotations

import dataclasses
import inspect
import pickle
from typing import Any, ClassVar

import pytest

from cvxscreen._support import records


def classes(dataclass: Any) -> tuple[Any, Any]:
    @dataclass(frozen=True, eq=False)
    class Base:
        """Compared by identity."""

        a: int
        b: list[int] = records.field(default_factory=list)
        given: str = "c"
        own: int = 1
        total: int = records.field(init=False, repr=False)
        seen: list[int] = records.field(init=False, default_factory=list)
        kind: ClassVar[str] = "kind"

        def __post_init__(self) -> None:
            object.__setattr__(self, "total", self.a + len(self.b))

    @dataclass(frozen=True)
    class Pair:
        """Compared by value, but for its note."""

        first: float
        second: tuple[int, ...] = ()
        note: str = records.field(default="", compare=False)

    return Base, Pair


OURS, THEIRS = classes(records.dataclass), classes(dataclasses.dataclass)


@records.dataclass(frozen=True, eq=False, repr=False)
class Sent:
    """At the top of its module, as what is pickled must be."""

    value: int


@pytest.mark.parametrize(("ours", "theirs"), [*zip(OURS, THEIRS, strict=True)])
def test_arguments_fields_and_texts_are_those_of_the_standard_library(
    ours: Any, theirs: Any
) -> None:
    said, wanted = (inspect.signature(cls).parameters for cls in (ours, theirs))
    assert [*said] == [*wanted]
    assert [p.annotation for p in said.values()] == [p.annotation for p in wanted.values()]
    names = [[(f.name, f.init, f.default) for f in dataclasses.fields(c)] for c in (ours, theirs)]
    assert names[0] == names[1]
    for arguments in ((1,), (1, [2])):
        assert repr(ours(*arguments)) == repr(theirs(*arguments))
        assert vars(ours(*arguments)) == vars(theirs(*arguments))


def test_defaults_are_made_anew_and_replaced() -> None:
    Base, _ = OURS
    first, second = Base(1), Base(1, [4, 5])
    assert (first.b, second.total) == ([], 3)
    assert first.b is not Base(1).b
    assert first.seen is not Base(1).seen
    changed = records.replace(second, a=7)
    assert (changed.a, changed.b, changed.total) == (7, [4, 5], 9)
    with pytest.raises(TypeError, match="missing"):
        Base()


def test_frozen_is_frozen() -> None:
    for cls in OURS:
        made = cls(1.0)
        name = dataclasses.fields(cls)[0].name
        with pytest.raises(dataclasses.FrozenInstanceError, match=name):
            setattr(made, name, 2.0)
        with pytest.raises(dataclasses.FrozenInstanceError, match=name):
            delattr(made, name)
        assert getattr(made, name) == 1.0


def test_equality_is_that_of_the_standard_library() -> None:
    Base, Pair = OURS
    assert Base(1) != Base(1)
    assert Pair(1.0, (2,), "a") == Pair(1.0, (2,), "b") != Pair(1.0, (3,), "a")
    assert hash(Pair(1.0, (2,), "a")) == hash(Pair(1.0, (2,), "b"))
    assert Pair(1.0) != THEIRS[1](1.0)


def test_subclasses_and_pickles() -> None:
    @records.dataclass(frozen=True, eq=False)
    class Further(Sent):
        other: int = 2

    assert repr(Further(1)).endswith("Further(value=1, other=2)")
    assert pickle.loads(pickle.dumps(Sent(3))).value == 3
