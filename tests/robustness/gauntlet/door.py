"""What a row of the tables is, and the problems that rows share, solved when first asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from gauntlet import bad
from gauntlet.bad import Bad, N, X, Y

import cvxscreen as cs

T = X @ [1.0, 2.0, 3.0] + np.cos(np.arange(N))
FULL = [*bad.MATRIX, *bad.SPARSE, *bad.FRAMES, *bad.EMPTY]
DENSE = [*bad.MATRIX, *bad.FRAMES]


@dataclass(frozen=True)
class Door:
    """One entry point.

    `good` maps every checked argument to a good value, `kinds` the argument to its bad values;
    `says` is what messages call an argument where that is not its name.
    """

    name: str
    call: Callable[..., Any]
    good: Callable[[], Mapping[str, Any]]
    kinds: Mapping[str, list[Bad]]
    covers: tuple[str, ...] = ()
    says: Mapping[str, str] = field(default_factory=dict)


def nothing() -> Mapping[str, Any]:
    """No good values: the door has none that could be told apart from a bad one."""
    return {}


# -- solved once, used by many rows ------------------------------------------------------------


@cache
def plain() -> Any:
    return cs.solve(cs.svm(X, Y), tol=1e-9)


@cache
def metric() -> Any:
    return cs.solve(cs.rtlm(X, cs.triplets(X, Y, k=2), 1.0), tol=1e-6)


@cache
def sparse() -> Any:
    return cs.sparse_svm(X, Y, 0.05)


@cache
def lp() -> Any:
    return cs.solve(cs.sparse_svm(X, Y, 0.05, loss="hinge", l2=0))


@cache
def tasks() -> Any:
    pairs = [(X[:6], Y[:6]), (X[6:], Y[6:])]
    return cs.solve(cs.raso(pairs, h=1, alpha=0.1, beta=0.1), tol=1e-4)


@cache
def kernel() -> Any:
    return cs.solve(cs.svm(X, Y, kernel="rbf", kernel_params={"gamma": 0.1}))


def given(**arguments: Any) -> Callable[[], Mapping[str, Any]]:
    """Arguments as they are; functions of this module (nothing solved yet) are called late."""
    late = {plain, metric, sparse, lp, tasks, kernel}
    return lambda: {k: v() if callable(v) and v in late else v for k, v in arguments.items()}
