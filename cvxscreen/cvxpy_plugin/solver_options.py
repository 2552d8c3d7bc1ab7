"""Which solver of CVXPY is meant, and with which options: names, accuracies, warnings.

Read before anything of a problem is, so that a problem that is left to CVXPY costs next to nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from threading import Lock
from typing import Any

import cvxpy as cp

TIGHT: dict[str, dict[str, Any]] = {
    "SCS": {"eps_abs": 1e-9, "eps_rel": 1e-9, "max_iters": 200_000},
    "OSQP": {"eps_abs": 1e-9, "eps_rel": 1e-9, "max_iter": 200_000, "polishing": True},
}
"""Options for solvers whose defaults are too loose for a certificate, where the user gave none."""

ACCURACY = ("eps", "tol", "max_iter", "feas", "abstol", "reltol", "time_limit", "polish")
"""Parts of option names that say the user has chosen an accuracy."""

GENERAL = frozenset(
    ("verbose", "warm_start", "ignore_dpp", "enforce_dpp", "canon_backend", "bibtex")
)
"""Options of ``prob.solve`` that are CVXPY's own, whatever the solver."""

DEFAULT = "CLARABEL"
"""The solver when the user names none; it comes with CVXPY."""


@cache
def installed() -> tuple[str, ...]:
    """CVXPY's solvers that are installed; it looks for the missing ones anew in every call."""
    return tuple(cp.installed_solvers())


def solver_name(solver: Any) -> str:
    """The name of `solver`: a text, None for the default, or a solver object of CVXPY."""
    if solver is None:
        return DEFAULT
    return solver.upper() if isinstance(solver, str) else str(solver.name())


def chosen_solver(solver: Any, options: dict[str, Any]) -> Any:
    """The solver to name to CVXPY: its own choice where the user gives options but no solver."""
    return DEFAULT if solver is None and set(options) <= GENERAL else solver


_TAKEN: set[str] = set()
"""Solvers with options that they are known to take."""


def check_options(solver: str, options: dict[str, Any]) -> None:
    """Let `solver` refuse options that it does not know, on a problem of one variable.

    The built-in engine may be at the end before a solver of CVXPY is called; a misspelt option is
    an error all the same, and the solver's own.

    Raises
    ------
    TypeError, ValueError, ...
        What the solver raises, but for cvxpy.error.SolverError.
    """
    own = {name: value for name, value in options.items() if name not in GENERAL}
    key = f"{solver.upper()} {sorted(own.items())!r}"
    if not own or key in _TAKEN:
        return
    x = cp.Variable()
    with ignore_warnings(), suppress(cp.error.SolverError):
        cp.Problem(cp.Minimize(x), [x >= 1.0]).solve(solver=solver, **own)
    _TAKEN.add(key)


def options_for(solver: Any, given: dict[str, Any]) -> dict[str, Any]:
    """The options to pass on: those given, and tight tolerances where none are among them."""
    chosen = any(part in name.lower() for name in given for part in ACCURACY)
    tight = {} if chosen else TIGHT.get(solver_name(solver), {})
    return {**tight, **given}


_LOCK = Lock()

_INSIDE: list[Any] = []
"""One entry a thread inside; the first is what restores the filters."""


@contextmanager
def ignore_warnings() -> Iterator[None]:
    """Ignore warnings inside the block; other threads are silent too while it lasts."""
    with _LOCK:
        _INSIDE.append(None if _INSIDE else _start_ignoring())
    try:
        yield
    finally:
        with _LOCK:
            restore = _INSIDE[0]
            _INSIDE.pop()
            if not _INSIDE:
                restore.__exit__(None, None, None)


def _start_ignoring() -> Any:
    saved = warnings.catch_warnings()
    saved.__enter__()
    warnings.simplefilter("ignore")
    return saved
