"""Many small problems over the points of one kernel: a class against the rest, or another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import cast

import numpy as np
from numpy.typing import NDArray

from cvxscreen.core.problem import Problem
from cvxscreen.designs.gram import Gram

Array = NDArray[np.float64]
Index = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class KernelParts:
    """K problems ``1/2 ||w||^2 + sum_i f_i(s_i (<z_i, w> + b))``, their terms one after another.

    Attributes
    ----------
    whole : Problem
        Over all N points, whose kernel is `filled`: losses are of points, the same in every problem
        that has them.
    index : array of int, shape (m,)
        The point of each term; no point twice in one problem.
    sign : array, shape (m,)
    first : array of int, shape (K + 1,)
        Where the terms of each problem begin.
    """

    whole: Problem
    index: Index
    sign: Array
    first: Index

    @classmethod
    def of(
        cls, whole: Problem, rows: Sequence[Index], signs: Sequence[Array]
    ) -> KernelParts:
        """From the points and the signs of each problem."""
        first = np.cumsum([0, *map(len, rows)])
        return cls(whole, np.concatenate(rows), np.concatenate(signs), first)

    @property
    def gram(self) -> Gram:
        """Of all points."""
        return cast(Gram, self.whole.design)

    def __len__(self) -> int:
        return len(self.first) - 1

    @cached_property
    def matrix(self) -> Array:
        """The kernel's, of all points."""
        return cast(Array, self.gram.kernel.matrix())

    def problem(self, k: int) -> Problem:
        """Problem k, its coordinates the coefficients of all N points."""
        own = self.terms(k)
        gram = Gram(self.gram.kernel, self.sign[own], self.gram.intercept, self.index[own])
        return replace(self.whole, design=gram, losses=self.whole.losses.take(self.index[own]))

    @cached_property
    def squares(self) -> Array:
        """Squared norms of all points, rounded up, shape (N,)."""
        return Gram(self.gram.kernel).squares

    def terms(self, k: int) -> slice:
        """Where the terms of problem k are."""
        return slice(int(self.first[k]), int(self.first[k + 1]))
