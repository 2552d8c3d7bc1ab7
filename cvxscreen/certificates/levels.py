"""Certificates of neighbouring quantile levels, in two passes over the data.

Between neighbouring levels most terms stay on one side of their kink. There such a term is its
line, ``f_i(t) = s_i (t - b_i)``, and everywhere else it lies above it: with the terms of a set S
replaced by their lines ``P_S <= P``, and a point x with all margins of S on the assumed side has
``P(x) = P_S(x)``, so that for every y

::

    P(x) - P(y) <= P_S(x) - P_S(y).

What is certified of x for P_S, a problem of the other terms beside a linear one, holds for P. A
line's slope is ``h_i w_i - tau w_i``, ``h_i`` 1 where the term rises and 0 where it falls: the
linear terms of all levels come from one pass over the data (`Lines.of`), and a second one tells at
which levels' points every margin of S is on its side, rounding included (`Lines.over_all`). How far
rounding puts the linear term off is stated as an imbalance of P_S, which its certificate charges;
objectives are summed from all terms.

Nothing is taken from the code that finds the points: neither margins nor sums.

Proofs: ``docs/theory.md``, section 9.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from cvxscreen.certificates.certificate import EPS, Certificate, relative_gap
from cvxscreen.core.losses import Codes, Piece
from cvxscreen.core.problem import Problem
from cvxscreen.designs.rows import Rows

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Lines:
    """A quantile regression with most of its terms replaced by their lines, at any level.

    Attributes
    ----------
    problem : Problem
        Pinball losses alone over rows, at any level.
    codes : array, shape (n,)
        `Piece.LOW` or `Piece.HIGH`, the line of a term; -1 for the others.
    small : Problem
        The others; its linear term is that of no level.
    sums : array, shape (d, 2)
        ``A_S' (h w)`` and ``A_S' w``.
    worth : array, shape (2,)
        ``<b_S, h w>`` and ``<b_S, w>``.
    """

    problem: Problem
    codes: Codes
    small: Problem
    sums: Array
    worth: Array

    @classmethod
    def of(cls, problem: Problem, codes: Codes) -> Lines:
        """One pass over the data."""
        f, design = problem.losses, problem.design
        weight = np.where(codes >= 0, f.hi - f.lo, 0.0)
        both = np.stack([np.where(codes == Piece.HIGH, weight, 0.0), weight])
        kept = np.flatnonzero(codes < 0)
        # Of two sums, of the products they are multiplied with, and of the ends of the boxes.
        unsure = 2.0 * design.adjoint_factor + 16.0 * EPS
        unsure *= float(np.linalg.norm(weight)) * float(problem.column_sizes.max())
        small = replace(
            problem, design=design.take_rows(kept), losses=f.take(kept),
            imbalance=problem.imbalance + unsure * (1.0 + 4.0 * (problem.n + 8) * EPS),
        )
        small.known.inherit_rows(problem.known, kept)
        sums = np.column_stack([design.adjoint(values) for values in both])
        return cls(problem, codes, small, sums, both @ f.b)

    def linear(self, level: float) -> Array:
        """The linear term at `level`."""
        return self.problem.linear + self.sums[:, 0] - level * self.sums[:, 1]

    def at(self, level: float) -> Problem:
        """The problem of the other terms at `level`."""
        here = self.small.with_(tau=level)
        constant = self.problem.constant - float(self.worth[0] - level * self.worth[1])
        known, here = here.known, replace(here, linear=self.linear(level), constant=constant)
        here.known.inherit_rows(known)
        here.known.inherit_columns(known)
        return here

    def over_all(
        self, levels: Array, X: Array, proofs: Sequence[Certificate]
    ) -> tuple[list[Certificate], Array]:
        """Certificates of the whole problem at K levels from those of `at`: one pass over the data.

        Parameters
        ----------
        levels : array, shape (K,)
        X : array, shape (K, d)
            A point for each level.
        proofs : sequence of Certificate
            Of these points for the problems of the kept terms.

        Returns
        -------
        list of Certificate
            Up to the first level where a line is not known to belong to its margin, or where the
            gap, relative to the objective as the sum of all terms, is not within the tolerance.
        array, shape (2, n)
            The margins at the last two levels (at one, where there is but one).
        """
        problem, f = self.problem, self.problem.losses
        design, sizes = cast(Rows, problem.design), problem.sizes
        # Of a margin by its product, and of its difference from b; terms that are kept pass.
        unit = design.forward_factor + 16.0 * EPS
        length = float(np.linalg.norm(X, axis=1).max()) * (1.0 + (problem.d + 8) * EPS)
        last = np.empty((min(len(X), 2), problem.n))
        holding, risen, summed = (dict[int, Array]() for _ in range(3))  # by the first row

        def look(rows: slice, t: Array) -> None:
            codes, b, weight = self.codes[rows], f.b[rows], f.hi[rows] - f.lo[rows]
            last[:, rows] = t[-2:]
            z = t - b
            side = np.where(codes == Piece.HIGH, 1.0, -1.0)
            own = np.where(codes >= 0, 8.0 * EPS * np.abs(b), -np.inf)
            enough = side * z >= own + (unit * length) * sizes[rows]
            holding[rows.start] = np.asarray(enough.all(axis=1))
            risen[rows.start], summed[rows.start] = np.maximum(z, 0.0) @ weight, z @ weight

        design.forward_blocks(X, look)
        starts = sorted(holding)  # the same sums whatever the threads
        on_their_sides = np.all([holding[start] for start in starts], axis=0)
        rising, total = (np.sum([part[s] for s in starts], axis=0) for part in (risen, summed))
        found: list[Certificate] = []
        for k, (level, x, proof) in enumerate(zip(levels, X, proofs, strict=True)):
            holds = bool(on_their_sides[k])
            primal = float(rising[k] - level * total[k])
            primal += float(problem.linear @ x) + problem.constant
            relative = float(relative_gap(proof.gap, primal))
            near = not np.isinf(proof.within)  # said of points nearby only
            if near or not (holds and proof.ok and relative <= proof.tolerance):
                break
            dual = primal - proof.gap
            found.append(replace(proof, primal=primal, dual=dual, relative_gap=relative))
        return found, last
