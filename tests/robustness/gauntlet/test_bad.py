"""Every door meets every bad value of its kinds: the error, its words, and nothing touched."""

from __future__ import annotations

import inspect
import re
import warnings
from typing import Any

import pytest
from gauntlet.bad import Bad, Late
from gauntlet.door import Door, nothing
from gauntlet.doors import ARGUMENTS, DOORS, RECORDS
from gauntlet.touch import snapshot

import cvxscreen
from cvxscreen import estimators
from cvxscreen.errors import CvxscreenError
from cvxscreen.multitask import prox


def fault(door: Door, argument: str, bad: Bad) -> str | None:
    """What is wrong with the refusal of one bad value; None if nothing is."""
    value = bad.value.make() if isinstance(bad.value, Late) else bad.value
    called = {**door.good(), argument: value}
    before = snapshot(value)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            door.call(**called)
    except CvxscreenError as error:
        text = str(error)
        if not isinstance(error, bad.error):
            return f"{type(error).__name__} instead of {bad.error.__name__}: {text}"
        named = door.says.get(argument, re.escape(argument))
        wanted = (rf"`?(?:{named})`?", *bad.words)
        missing = [words for words in wanted if not re.search(words, text, re.DOTALL)]
        if missing:
            return f"the message lacks {missing}: {text}"
        if len(text) > 600 or "\n" in text:
            return f"the message is too long to be read: {text}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    else:
        return "not refused"
    return "the caller's value was changed" if snapshot(value) != before else None


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.name)
def test_bad_input_is_refused_by_name(door: Door) -> None:
    faults = [
        f"{argument}, {bad.name}: {found}"
        for argument, kind in door.kinds.items()
        for bad in kind
        if (found := fault(door, argument, bad)) is not None
    ]
    assert not faults, "\n".join(faults)


WITH_GOOD = [door for door in DOORS if door.good is not nothing]


@pytest.mark.parametrize("door", WITH_GOOD, ids=lambda door: door.name)
def test_the_good_arguments_are_good(door: Door) -> None:
    """So that a refusal is due to the bad value, and no row of the table is stale."""
    door.call(**door.good())


def public_names() -> list[str]:
    """Every name that a caller may import from the package's faces."""
    faces: list[Any] = [cvxscreen, prox, cvxscreen.datasets]
    return [name for face in faces for name in face.__all__]


def test_no_public_name_is_without_a_row() -> None:
    """A new name has to be entered in the table, or named with the reason why it is not there."""
    covered = {name for door in DOORS for name in door.covers} | set(RECORDS)
    assert sorted(set(public_names()) - covered) == []
    assert sorted(covered - set(public_names())) == []
    assert sorted(set(RECORDS) & {name for door in DOORS for name in door.covers}) == []


def test_no_argument_of_a_public_function_is_without_bad_values() -> None:
    """A new argument meets what users may give it, or is named with the reason why not."""
    faces: list[Any] = [cvxscreen, prox, cvxscreen.datasets]
    missing: dict[str, set[str]] = {}
    for name in sorted(set(public_names()) - set(RECORDS)):
        made = next(getattr(face, name) for face in faces if hasattr(face, name))
        if not callable(made):
            continue
        doors = [door for door in DOORS if door.call is made or name in door.covers]
        met = {argument for door in doors for argument in door.kinds}
        missing[name] = set(inspect.signature(made).parameters) - met
    assert {name: lacking for name, lacking in missing.items() if lacking} == ARGUMENTS


def test_every_estimator_is_in_its_own_table() -> None:
    from gauntlet.test_estimators import MODELS

    assert {type(row.model()).__name__ for row in MODELS} == set(estimators.__all__)


def test_the_checker_sees_what_it_should() -> None:
    """A door that refuses nothing, refuses without words, or writes into its input is found out."""
    bad = Bad("x", [1, 2], ("two",))

    def silent(a: Any) -> None: ...

    def vague(a: Any) -> None:
        raise cvxscreen.InvalidInput("something is wrong")

    def raw(a: Any) -> None:
        raise TypeError("`a` two")

    def greedy(a: Any) -> None:
        a.append(3)
        raise cvxscreen.InvalidInput("`a` two")

    def fine(a: Any) -> None:
        raise cvxscreen.InvalidInput("`a` two")

    wrong = [fault(Door("d", call, dict, {}), "a", bad) for call in (silent, vague, raw, greedy)]
    assert all(wrong), wrong
    assert fault(Door("d", fine, dict, {}), "a", Bad("x", 1, ("two",))) is None
