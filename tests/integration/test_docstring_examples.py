"""Every public name has an example in its docstring, and it does what it says."""

from __future__ import annotations

import doctest
import inspect
import types
from collections.abc import Iterator

import pytest

import cvxscreen
from cvxscreen import bounds, estimators

WITHOUT = {
    "MissingDependency": "raised where a library is absent; here all of them are installed",
    "NotSaved": "raised where a disk is full",
    "UnsafeEvidence": "raised by a defect of the package only: no input shows it",
}
"""Public names without an example, and why."""


def public() -> Iterator[tuple[str, object]]:
    """Every public name that is no module, with what stands behind it."""
    for package in (cvxscreen, estimators):
        for name in package.__all__:
            found = getattr(package, name)
            if not name.startswith("_") and not isinstance(found, types.ModuleType):
                yield name, found


NAMES = dict(public())
SHOWN = {**NAMES, "bounds.register": bounds.register}


def examples(name: str, found: object) -> list[doctest.DocTest]:
    """The examples in the docstring of `found`, and in those of its own methods."""
    found = inspect.unwrap(found) if callable(found) else found
    finder = doctest.DocTestFinder(exclude_empty=True)
    return [test for test in finder.find(found, name, globs={}) if test.examples]


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_has_an_example(name: str) -> None:
    shown = ">>>" in (inspect.getdoc(NAMES[name]) or "")
    assert shown != (name in WITHOUT), f"`{name}` needs an Examples section, or a reason in WITHOUT"


@pytest.mark.parametrize("name", sorted(set(SHOWN) - set(WITHOUT)))
def test_examples_do_what_they_say(name: str) -> None:
    failures: list[str] = []
    runner = doctest.DocTestRunner(verbose=False)
    for test in examples(name, SHOWN[name]):
        runner.run(test, out=failures.append)
    assert not failures, "".join(failures)
