"""Safeguarded Anderson acceleration of a fixed-point map (the caller accepts or refuses)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

MEMORY = 6
_CONDITION = 1e-10


class Anderson:
    """Least-squares combination of the last few images of ``x -> G(x)``.

    Type II: with residuals ``r_k = G(x_k) - x_k`` the combination of the ``r_k`` with coefficients
    summing to 1 that is smallest, applied to the ``G(x_k)`` (Walker and Ni 2011).
    """

    def __init__(self, memory: int = MEMORY) -> None:
        self.memory = memory
        self.images: list[Array] = []
        self.residuals: list[Array] = []

    def clear(self) -> None:
        """Forget everything."""
        self.images, self.residuals = [], []

    def push(self, x: Array, image: Array) -> Array | None:
        """Record ``G(x) = image``; an extrapolated point, or None while there is no history."""
        self.images.append(image.ravel().copy())
        self.residuals.append((image - x).ravel())
        if len(self.images) > self.memory + 1:
            del self.images[0], self.residuals[0]
        if len(self.images) < 2:
            return None
        last = self.residuals[-1]
        steps = np.column_stack([r - last for r in self.residuals[:-1]])
        moves = np.column_stack([g - self.images[-1] for g in self.images[:-1]])
        weights = np.linalg.lstsq(steps, -last, rcond=_CONDITION)[0]
        return np.asarray((self.images[-1] + moves @ weights).reshape(image.shape))
