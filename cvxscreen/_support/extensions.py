"""What the CVXPY plugin supplies to the layers below it: named functions, loaded at first use.

The problem knows how to become a ``cvxpy.Problem`` and the registry of solvers knows those that
CVXPY has installed, but neither imports CVXPY nor the plugin: the package's
`cvxscreen.registration` says here, as strings, where the functions live. So no module imports from
a layer above its own.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_SUPPLIED: dict[str, str] = {}


def supply(name: str, place: str) -> None:
    """Announce that ``"package.module:function"`` is what `name` stands for."""
    _SUPPLIED[name] = place


def supplied(name: str) -> Any:
    """The function announced as `name`; its module is imported now if it was not before."""
    module, function = _SUPPLIED[name].split(":")
    return getattr(import_module(module), function)
