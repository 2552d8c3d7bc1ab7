"""What is loaded at first use: by its place, or as what the CVXPY plugin supplies to lower layers.

The problem knows how to become a ``cvxpy.Problem`` and the registry of solvers knows those that
CVXPY has installed, but neither imports CVXPY nor the plugin: the package's
`cvxscreen.registration` says here, as strings, where the functions live. So no module imports from
a layer above its own. A table of solvers says in the same way where each of them lives, so that a
process imports those that it uses.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import wraps
from importlib import import_module
from inspect import signature
from typing import Any, ParamSpec, Protocol, TypeVar, cast, overload

_SUPPLIED: dict[str, str] = {}


def supply(name: str, place: str) -> None:
    """Announce that ``"package.module:function"`` is what `name` stands for."""
    _SUPPLIED[name] = place


def supplied(name: str) -> Any:
    """The function announced as `name`; its module is imported now if it was not before."""
    return loaded(_SUPPLIED[name])


def loaded(place: str) -> Any:
    """What ``"package.module:name"`` names; the module is imported now if it was not before."""
    module, name = place.split(":")
    with nullcontext() if module in sys.modules else uncollected():
        return getattr(import_module(module), name)


@contextmanager
def uncollected() -> Iterator[None]:
    """No collection of garbage meanwhile: what is imported stays, and none of it is garbage.

    Otherwise so many new objects have Python look through all that CVXPY and SciPy have made,
    which takes as long as half of our imports (0.06 s), and of numba's (0.15 s). The next
    collection would look through the new ones: they are counted as old.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            if not gc.get_freeze_count():  # what somebody else has frozen stays so
                gc.freeze()
                gc.unfreeze()  # to the oldest generation
            gc.enable()


class CvxpyProblem(Protocol):
    """What type checkers tell a ``cvxpy.Problem`` by; CVXPY itself is not imported here."""

    @property
    def objective(self) -> Any:
        """The expression to minimise or maximise."""

    def variables(self) -> list[Any]:
        """The variables of objective and constraints."""

    def parameters(self) -> list[Any]:
        """The parameters of objective and constraints."""


Given = ParamSpec("Given")
Result = TypeVar("Result", covariant=True)


class TakesEither(Protocol[Given, Result]):
    """A function of a problem of ours that takes a ``cvxpy.Problem`` as well."""

    @overload
    def __call__(self, *args: Given.args, **options: Given.kwargs) -> Result: ...

    @overload
    def __call__(self, problem: CvxpyProblem, *args: Any, **options: Any) -> Any: ...


def or_cvxpy(name: str) -> Callable[[Callable[Given, Result]], TakesEither[Given, Result]]:
    """A decorator: where the first argument is a ``cvxpy.Problem``, `supplied(name)` is called."""

    def decorate(function: Callable[Given, Result]) -> TakesEither[Given, Result]:
        first = next(iter(signature(function).parameters))

        @wraps(function)
        def front(*args: Any, **options: Any) -> Any:
            cvxpy = sys.modules.get("cvxpy")  # not loaded just to find out that this is not its
            given = args[0] if args else options.get(first)
            if cvxpy is not None and isinstance(given, cvxpy.Problem):
                options.pop(first, None)
                return supplied(name)(given, *args[1:], **options)
            return function(*args, **options)

        return cast(TakesEither[Given, Result], front)

    return decorate
