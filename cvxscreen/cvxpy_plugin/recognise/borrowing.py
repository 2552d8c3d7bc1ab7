"""The user's variables, lent for a moment: their values come back whatever happens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def borrowed(variables: list[Any]) -> Iterator[None]:
    """Give back the values of `variables` on the way out, whatever happens."""
    before = [(variable, variable.value) for variable in variables]
    try:
        yield
    finally:
        for variable, value in before:
            variable.save_value(value)
