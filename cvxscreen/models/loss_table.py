"""The named losses: one row each, from targets and weights to the five numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cvxscreen.errors import InvalidInput
from cvxscreen.inputs import choice, positive
from cvxscreen.losses import Losses

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Shape:
    """The shape parameters of a loss; None means the default of the loss that needs it."""

    gamma: float | None = None
    epsilon: float | None = None
    tau: float | None = None
    delta: float | None = None

    def __post_init__(self) -> None:
        for name in ("gamma", "epsilon", "tau", "delta"):  # also those that the loss does not use
            if getattr(self, name) is not None:
                positive(name, getattr(self, name))


def _width(shape: Shape, name: str, default: float) -> float:
    value = getattr(shape, name)
    return positive(name, default if value is None else value)


def _level(shape: Shape) -> float:
    tau = 0.5 if shape.tau is None else positive("tau", shape.tau)
    if tau >= 1:
        raise InvalidInput(f"`tau` is {tau}; a quantile level strictly between 0 and 1 is needed.")
    return tau


def _row(b: Array, e: float, q: float | Array, lo: float | Array, hi: float | Array) -> Losses:
    return Losses(*np.broadcast_arrays(b, e, q, lo, hi))


# A new loss is one row: name -> (b, weight c, shape) -> (b, e, q, lo, hi).
_ROWS: dict[str, Callable[[Array, Array, Shape], Losses]] = {
    "hinge": lambda b, c, s: _row(b, 0.0, 0.0, -c, 0.0),
    "smoothed_hinge": lambda b, c, s: _row(b, 0.0, _width(s, "gamma", 0.5) / c, -c, 0.0),
    "squared_hinge": lambda b, c, s: _row(b, 0.0, 1.0 / c, -np.inf, 0.0),
    "absolute": lambda b, c, s: _row(b, 0.0, 0.0, -c, c),
    "quantile": lambda b, c, s: _row(b, 0.0, 0.0, -c * _level(s), c * (1.0 - _level(s))),
    "epsilon": lambda b, c, s: _row(b, _width(s, "epsilon", 0.1), 0.0, -c, c),
    "smoothed_epsilon": lambda b, c, s: _row(
        b, _width(s, "epsilon", 0.1), _width(s, "gamma", 0.5) / c, -c, c
    ),
    "huber": lambda b, c, s: _row(
        b, 0.0, 1.0 / c, -c * _width(s, "delta", 1.0), c * _width(s, "delta", 1.0)
    ),
}

CLASSIFICATION = ("hinge", "smoothed_hinge", "squared_hinge")
REGRESSION = ("absolute", "quantile", "epsilon", "smoothed_epsilon", "huber")


def named_loss(
    name: str, b: Array, weight: Array, shape: Shape, among: tuple[str, ...]
) -> Losses:
    """The loss called `name` with kinks at `b` and weights ``weight > 0``.

    Raises
    ------
    UnknownName
        If the name is not one of `among`.
    InvalidInput
        If a shape parameter is not positive (or ``tau`` not below 1).
    """
    choice("loss", name, among)
    return _ROWS[name](b, weight, shape)
