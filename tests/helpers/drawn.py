"""Small problems drawn by hypothesis: entries, losses, weights and points that it can shrink."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cvxscreen.core.problem import Problem
from cvxscreen.models.linear import regression, sparse_svm, svm
from cvxscreen.models.samples import CLASSIFICATION, REGRESSION

SHAPES: dict[str, dict[str, float]] = {
    "smoothed_hinge": {"gamma": 0.5}, "quantile": {"tau": 0.25}, "epsilon": {"epsilon": 0.5},
    "smoothed_epsilon": {"epsilon": 0.5, "gamma": 0.25}, "huber": {"delta": 0.75},
}
LOSSES = (*CLASSIFICATION, *REGRESSION)

# Quarters and a few sizes: representable in single precision, ties and zeros are common.
entries = st.one_of(
    st.integers(-12, 12).map(lambda k: k / 4.0),
    st.floats(-100.0, 100.0, width=32).map(lambda v: v if abs(v) > 1e-6 else 0.0),
)


@dataclass(frozen=True, eq=False)
class Drawn:
    """The parts of a problem, to be put together in more than one way."""

    loss: str
    X: np.ndarray
    y: np.ndarray
    C: float
    intercept: bool
    weight: np.ndarray | None = None

    def build(self, **change: Any) -> Problem:
        """The problem, with some of its parts changed; `storage` is a function of X."""
        parts = {
            "X": self.X, "y": self.y, "C": self.C, "intercept": self.intercept,
            "sample_weight": self.weight, **change,
        }
        door = svm if self.loss in CLASSIFICATION else regression
        X, y = parts.pop("X"), parts.pop("y")
        return door(X, y, loss=self.loss, **SHAPES.get(self.loss, {}), **parts)


@st.composite
def drawn(
    draw: st.DrawFn, *, weights: bool = False, intercept: bool | None = None,
    losses: tuple[str, ...] = LOSSES,
) -> Drawn:
    """Up to nine samples of up to four features, any loss."""
    loss = draw(st.sampled_from(losses))
    n, d = draw(st.integers(2, 9)), draw(st.integers(1, 4))
    X = draw(arrays(np.float64, (n, d), elements=entries))
    if loss in CLASSIFICATION:
        y = draw(arrays(np.float64, n, elements=st.sampled_from([-1.0, 1.0])))
        y[:2] = (1.0, -1.0)
    else:
        y = draw(arrays(np.float64, n, elements=entries))
    C = 2.0 ** draw(st.integers(-8, 6))
    weight = None
    if weights:
        weight = draw(arrays(np.float64, n, elements=st.integers(0, 4).map(float)))
        weight[:2] = np.maximum(weight[:2], 1.0)
    free = draw(st.booleans()) if intercept is None else intercept
    return Drawn(loss, X, y, C, free, weight)


@st.composite
def pairs(draw: st.DrawFn, problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """A primal point, and slopes inside the boxes."""
    scale = 2.0 ** draw(st.integers(-12, 2))
    x = scale * draw(arrays(np.float64, problem.d, elements=entries))
    share = draw(arrays(np.float64, problem.n, elements=st.sampled_from(
        [0.0, 0.125, 0.5, 0.75, 1.0])))
    low = np.maximum(problem.losses.lo, -8.0)
    return x, low + share * (np.minimum(problem.losses.hi, 8.0) - low)


@st.composite
def elastic(draw: st.DrawFn) -> Problem:
    """A small problem under an L1 term."""
    parts = draw(drawn(intercept=False, losses=("smoothed_hinge", "squared_hinge")))
    lam = 2.0 ** draw(st.integers(-8, 2))
    return sparse_svm(parts.X, parts.y, lam, loss=parts.loss)


def sparse(X: np.ndarray) -> Any:
    """The same numbers as CSR."""
    return sp.csr_matrix(X)
