"""A plugin of pytest: every ``prob.solve()`` without a method goes through ``method="screen"``.

For CVXPY's own tests; ``python -m pytest -p screened_by_default --pyargs cvxpy.tests``. Nothing is
too small to be screened there, and no warning says what is not recognised. What a first screened
solve imports is imported beforehand: one of these tests gives each of its examples 200 ms.
"""

from __future__ import annotations

from typing import Any

import cvxpy as cp

import cvxscreen
import cvxscreen.cvxpy_plugin.composite
import cvxscreen.cvxpy_plugin.plugin
from cvxscreen.cvxpy_plugin import request

cvxscreen.registration.register()
request.STEP_ASIDE = False
request.ALREADY_SAID.append("none of these problems is meant to be screened")
_plain = cp.Problem.solve


def _solve(self: Any, *args: Any, **options: Any) -> Any:
    """``Problem.solve`` with another default; CVXPY's calls from within the method stay plain."""
    if "method" in options or _INSIDE:
        return _plain(self, *args, **options)
    _INSIDE.append(self)
    try:
        return _plain(self, *args, method="screen", **options)
    finally:
        _INSIDE.pop()


_INSIDE: list[Any] = []

cp.Problem.solve = _solve
