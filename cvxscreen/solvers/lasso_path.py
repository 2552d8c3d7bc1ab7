"""A lasso along C or lambda: on the products of its features, all values certified together.

Feature-sign search (Lee et al. 2007): with the signs s of the features A that are not 0 the optimum
is the solution of ``G_AA w = l_A - kappa_A s`` (G the products of the centred features, l those
with the targets). From the last value on, in turns:

1. solve for w; a feature that has just come in with the wrong sign leaves again, one that crosses 0
   stays there where that lowers the objective, else the step ends where the first one does;
2. where no feature crosses, those with ``|l - G w|_j > kappa_j`` come in, in blocks.

The objective falls with every step, so no set of signs comes back. Products cost a pass over the
data when a feature comes in for the first time, or one for all of them where there are few; after
that a value takes some systems of the size of its support, and no pass. Nothing is compiled.

Half of the digits may be lost in products. Nothing is taken from them: points are certified on the
data (`certify_lassos`), and the ordinary loop solves those that this refuses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from cvxscreen._support.immutable import Immutable
from cvxscreen._support.limits import UNLIMITED, Limits, has_room
from cvxscreen.certificates.many import certify_lassos
from cvxscreen.core.lasso import Lasso
from cvxscreen.core.problem import Problem
from cvxscreen.solvers.compiled_path.segments import PathSegment

Array = NDArray[np.float64]
Index = NDArray[np.intp]

ALL_PRODUCTS = 2000
"""Features up to which all products are made at once, if there are as many terms."""
BLOCK = 32
"""Features that come in at once, at least; else as many as there are."""
FEW = 4
"""Share of the features with products, inverse, up to which their rows are copied for a sum."""
STEPS = 200
"""Systems for a value at most."""
RIDGE = 1e-11
"""Share of the products of each feature with itself that is added in a step, so that it ends where
features depend on each other, as they do where there are as many as terms."""
OF_TOLERANCE = 0.3
"""Share of the tolerance that a value is solved to: certificates charge rounding as well."""
SEGMENT = 1e9
"""Products of entries of a pass for all values that are certified together: about half a second."""
ROWS = 1024
"""Rows that are centred at a time."""


class Products:
    """Inner products of the features about their means, in the metric of the weights.

    Parameters
    ----------
    lasso : Lasso

    Attributes
    ----------
    linear : array, shape (d,)
        Those with the targets.
    square : float
        Those of the targets with themselves.
    """

    def __init__(self, lasso: Lasso) -> None:
        self.matrix, self.weights = lasso.rows.matrix, lasso.weights
        (n, d), total = self.matrix.shape, float(lasso.weights.sum())
        self.mean, self.level = np.zeros(d), 0.0
        if lasso.intercept:
            self.mean = lasso.rows.adjoint(self.weights)[:d] / total
            self.level = float(self.weights @ lasso.targets) / total
        left = lasso.targets - self.level
        pulled = self.weights * left
        self.linear = lasso.rows.adjoint(pulled)[:d] - float(pulled.sum()) * self.mean
        self.square = float(pulled @ left)
        self.known = np.full(d, -1)
        self.table = np.empty((0, d))
        self.count = 0
        if d <= min(n, ALL_PRODUCTS):
            self.table, self.known, self.count = self._all(), np.arange(d), d

    def _all(self) -> Array:
        d, root = len(self.mean), np.sqrt(self.weights)
        table = np.zeros((d, d))
        for start in range(0, len(root), ROWS):
            block = self.matrix[start:start + ROWS] - self.mean
            block *= root[start:start + ROWS, None]
            table += block.T @ block
        return table

    def among(self, features: Index) -> Array:
        """Those of some features with each other, shape (k, k)."""
        new = features[self.known[features] < 0]
        if len(new):
            if self.count + len(new) > len(self.table):
                table = np.empty((2 * self.count + len(new), len(self.mean)))
                table[:self.count] = self.table[:self.count]
                self.table = table
            turned = (self.matrix[:, new] - self.mean[new]).T * self.weights
            own = slice(self.count, self.count + len(new))
            self.table[own] = turned @ self.matrix
            self.table[own] -= np.multiply.outer(turned.sum(axis=1), self.mean)
            self.known[new] = np.arange(own.start, own.stop)
            self.count = own.stop
        return np.asarray(self.table[self.known[features][:, None], features])

    def pull(self, features: Index, w: Array) -> Array:
        """What is left of `linear` at a point that is `w` on some features, 0 elsewhere."""
        at = self.known[features]
        if FEW * len(at) < self.count:
            return self.linear - w @ self.table[at]
        every = np.zeros(self.count)  # rows that are taken out are copied
        every[at] = w
        return self.linear - every @ self.table[:self.count]


class LassoPath:
    """The path of one lasso; what `CompiledPath` is for problems of few coordinates.

    Parameters
    ----------
    lasso : Lasso
    over : {"C", "lam"}
        What changes: the weights, or the norm.
    tol : float
        Relative gap.
    limits : Limits
    """

    memory: Sequence[float] = ()

    def __init__(
        self, lasso: Lasso, over: str, tol: float, limits: Limits = UNLIMITED
    ) -> None:
        self.lasso, self.over, self.tol, self.limits = lasso, over, tol, limits
        self.products = Products(lasso)
        self.w = np.zeros(len(lasso.kappa))

    @classmethod
    def of(
        cls, problem: Problem, over: str, tol: float, limits: Limits = UNLIMITED
    ) -> LassoPath | None:
        """That of `problem`; None where it is no lasso over dense rows, or has no room."""
        lasso = Lasso.of(problem)
        if lasso is None or not has_room(8 * problem.n * problem.d):
            return None
        return cls(lasso, over, tol, limits)

    def recall(self, memory: Sequence[float] | None) -> None:
        """Nothing is learnt from value to value."""

    def restart(self, value: float, x: Array, theta: Array) -> None:
        """Go on from a point that was solved elsewhere."""
        self.w = x[:len(self.w)].copy()

    def length(self, left: int) -> int:
        """How many of the `left` points the next stretch takes."""
        n, d = self.lasso.rows.shape
        return max(1, min(left, int(SEGMENT / max(n * d, 1))))

    def solve(self, values: Array) -> PathSegment:
        """The points at `values`, in that order, as far as limits allow."""
        began, d, problem = perf_counter(), len(self.w), self.lasso.problem
        factors, norms = values / problem.C, np.ones(len(values))
        if self.over == "lam":
            factors, norms = norms, values / float(problem.lam or 1.0)
        X, record = np.zeros((len(values), self.lasso.rows.shape[1])), np.zeros((len(values), 4))
        done = 0
        for k, wall in enumerate(norms / factors):
            if self.limits.spent():
                break
            steps = self.search(self.lasso.kappa * wall)
            X[k, :d] = self.w
            if self.lasso.intercept:
                X[k, -1] = self.products.level - self.products.mean @ self.w
            record[k] = problem.n, 0, 0, steps
            done = k + 1
        values, X, record = values[:done], X[:done], record[:done]
        factors, norms = factors[:done], norms[:done]
        proofs = certify_lassos(self.lasso, factors, norms, X, tol=self.tol)
        slopes = LassoSlopes(self.lasso, factors, norms, X)
        features = np.count_nonzero(X[:, :d], axis=1)
        seconds = perf_counter() - began
        return PathSegment(values, X, slopes, record, proofs, seconds, self.over, features)

    def search(self, kappa: Array) -> int:
        """Move `w` to the optimum at other weights of the norm; how many systems that took."""
        at, last, steps = Signs.of(self.w), np.zeros(0, dtype=np.intp), 0
        alone = False
        while steps < STEPS:
            gram, linear = self.products.among(at.features), self.products.linear[at.features]
            steps += 1
            try:
                found = at.settled(gram, linear, kappa[at.features])
            except LinAlgError:  # features that depend on each other
                break
            if found.features is not at.features:
                at = found
                continue
            at = found
            pull = self.products.pull(at.features, at.w)
            ratio = np.abs(pull) / kappa
            ratio[at.features] = 0.0
            if self.close(at, pull, kappa, float(ratio.max(initial=0.0))):
                break
            stuck = bool(steps > 1) and np.array_equal(at.features, last)
            if stuck and alone:
                break
            out, alone, last = np.flatnonzero(ratio > 1.0), stuck, at.features
            room = self.lasso.rows.shape[0] - self.lasso.intercept - len(at.features)
            most = 1 if alone else max(min(BLOCK, room), min(len(at.features), room), 1)
            if len(out) > most:
                out = out[np.argpartition(-ratio[out], most)[:most]]
            at = at.joined(out, np.sign(pull[out]))
        self.w = np.zeros(len(self.w))
        self.w[at.features] = at.w
        return steps

    def close(self, at: Signs, pull: Array, kappa: Array, ratio: float) -> bool:
        """Whether the gap is small enough where ``|pull| / kappa`` is that beside the support."""
        if ratio <= 1.0:
            return True
        missing, norm = 1.0 - 1.0 / ratio, float(kappa[at.features] @ np.abs(at.w))
        own = at.w @ (self.products.linear[at.features] + pull[at.features])
        squares = max(self.products.square - float(own), 0.0)
        gap = 0.5 * missing * missing * squares + missing * norm
        return gap <= OF_TOLERANCE * self.tol * (0.5 * squares + norm)


class Signs(Immutable):
    """The features that are not 0, or are about to leave it, and their signs.

    Attributes
    ----------
    features : array of int, shape (k,)
    w, signs : array, shape (k,)
    """

    features: Index
    w: Array
    signs: Array

    @classmethod
    def of(cls, w: Array) -> Signs:
        """The features that are not 0 at `w`."""
        features = np.flatnonzero(w)
        return cls(features, w[features], np.sign(w[features]))

    def joined(self, features: Index, signs: Array) -> Signs:
        """These, and further features with the signs they will take, at 0 as yet."""
        return Signs(
            np.concatenate([self.features, features]),
            np.concatenate([self.w, np.zeros(len(features))]),
            np.concatenate([self.signs, signs]),
        )

    def kept(self, which: NDArray[np.bool_], w: Array) -> Signs:
        """The features at the mask `which`, at `w`; those at 0 there keep their sign."""
        return Signs(self.features[which], w[which], np.sign(w[which]) + (w[which] == 0.0)
                     * self.signs[which])

    def settled(self, gram: Array, linear: Array, kappa: Array) -> Signs:
        """The optimum with these signs, or fewer features on the way there."""
        if not len(self.features):
            return self
        held = gram + np.diag(RIDGE * gram.diagonal())
        new = self.w + cho_solve(
            cho_factor(held, lower=True, overwrite_a=True, check_finite=False),
            linear - kappa * self.signs - gram @ self.w, check_finite=False,
        )
        wrong = new * self.signs < 0.0
        if not wrong.any():
            return Signs(self.features, new, self.signs)
        early = wrong & (self.w == 0.0)
        if early.any():
            return self.kept(~early, self.w)

        def objective(w: Array) -> float:
            return float(w @ (0.5 * (gram @ w) - linear) + kappa @ np.abs(w))

        stopped = np.where(wrong, 0.0, new)
        if not objective(stopped) < objective(self.w):
            share = self.w[wrong] / (self.w[wrong] - new[wrong])
            stopped = self.w + float(share.min()) * (new - self.w)
            stopped[np.flatnonzero(wrong)[np.argmin(share)]] = 0.0
        return self.kept(stopped != 0.0, stopped)


class LassoSlopes(Immutable):
    """Dual points of a lasso at several factors of its weights and its norm, X the points.

    Each is made from its point when it is asked for.
    """

    lasso: Lasso
    factors: Array
    norms: Array
    X: Array

    def row(self, k: int) -> Array:
        """The dual point of ``X[k]``, shape (n,)."""
        weights, kappa = self.factors[k] * self.lasso.weights, self.norms[k] * self.lasso.kappa
        return replace(self.lasso, weights=weights, kappa=kappa).slopes(self.X[k])
