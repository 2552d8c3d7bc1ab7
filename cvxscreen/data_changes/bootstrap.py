"""The bootstrap: the fit again on samples drawn with replacement, each from the fit on all of them.

A sample drawn k times is a term of weight k, one that is not drawn leaves the problem. Where the
compiled path takes the problem, the fits are made a block at a time (`Replicates`): quantile
regression on 10,000 x 20 takes 0.4 ms a fit, one fit alone 7 ms. Otherwise, and where a fit of a
block is not certified, the fit on all samples, its slopes scaled with the counts, begins each of
the others and screens it (`cvxscreen.data_changes.reweight`).

In a block the weightings share their passes over the data as matrix products: under other weights
the optimum moves by about the solution of one linear system, and by far most terms stay on the
piece that they are on, a line or a parabola. So each weighting solves for the few hundred terms
near a kink only, with the curvature of all parabolas as one quadratic, and is certified on all
terms (`cvxscreen.certificates.many`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache, cached_property
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple, TypeVar

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray

from cvxscreen._support.compiled import CompileClock, at_hand, compiled
from cvxscreen._support.files import UNREADABLE, why_unreadable, written_whole
from cvxscreen._support.immutable import Immutable
from cvxscreen._support.limits import Limits, Progress
from cvxscreen._support.tables import Record, table
from cvxscreen._support.validation import file_path, one_of, tolerance, whole
from cvxscreen.api import solve
from cvxscreen.certificates.weightings import (
    Around,
    LeftOut,
    Weighed,
    certify_weightings,
    stays_around,
)
from cvxscreen.core.problem import Problem, fingerprint
from cvxscreen.data_changes.reweight import accepted, refit, taken, weighted
from cvxscreen.designs.gram import Gram
from cvxscreen.errors import InvalidInput, NotSaved
from cvxscreen.solvers.compiled_path.loops import Terms, Workspace, newton
from cvxscreen.solvers.compiled_path.segments import PARTS, compile_now, ready
from cvxscreen.solvers.registry import compiled_path
from cvxscreen.solvers.solution import Solution

__all__ = ["Bootstrap", "bootstrap"]

Array = NDArray[np.float64]

BLOCK = 64
"""Weightings that are solved together; always as many, so that a fit does not depend on how many
are asked for."""

BAND = 10
"""Terms near a kink that each weighting solves for, as a multiple of the coordinates.

Quantile regression, 10,000 x 20: the margins move by 0.07 and are foretold up to 0.024, after
two corrections up to 0.011."""

SMOOTHER = 0.25
"""Of that band, where every kink is the end of a parabola: a term that is taken to be on the other
side of one adds the square of its distance only. Huber, squared hinge: 0.8 to 1.0 of the time."""

SLOPES = 40
"""Terms, as a multiple of the coordinates, whose slopes tell the curvature of the sum."""

CORRECTIONS, STEP = 2, 0.7
"""Of what is foretold, by the gradient there; a whole step goes beyond, as the curvature is that of
other terms nearby."""

ROUNDED = 1e-12
"""Share of the curvature of all parabolas that is added to that of some, for a factor."""

ROUNDS = 4
"""How often the terms near a kink are chosen, each time around the last answer."""

SMOOTH = 0.1
"""Width over which kinks are smoothed at first, as a share of the band's."""

SHARE, STEPS = 0.9, 60
"""Of the tolerance for the small problems, and most Newton steps."""

TOGETHER = CompileClock(4.0)
"""Of fits a block at a time, against one after another. Measured: 3 to 4 CPU seconds."""

FRESH = CompileClock(TOGETHER.price + PARTS.price)
"""The same where nothing has been compiled yet: `newton`, which a block calls, comes first."""


def together(problem: Problem) -> bool:
    """Whether a block of fits of `problem` need not wait for a compiler, or has waited enough.

    Sparse rows of few columns that are well filled are made dense, as for a path over C.
    """
    if not compiled_path(problem, "auto", many=True):
        return False
    if FRESH.due and not ready():
        compile_now(PARTS, TOGETHER)
        ready()  # compiles `newton`
    return ready() and (at_hand(small_problems) or TOGETHER.due)


def waiting() -> CompileClock:
    """The clock of what is fitted one after another, until `together` allows blocks."""
    return TOGETHER if ready() else FRESH


Result = TypeVar("Result")
Results = TypeVar("Results", list[Any], Array)


def in_order(
    problem: Problem, count: int, one: Callable[[int], Results],
    block: Callable[[int], Results] | None, n_jobs: int, first: int = 0, size: int = BLOCK,
    own: tuple[Callable[[Problem], bool], CompileClock] | None = None,
) -> Iterator[Results]:
    """The results of `count` refits from the `first` on in their order, some at a time.

    ``one(k)`` makes a sequence of number k alone; ``block(k)``, k a multiple of `size`, one of k
    and those after it, and is preferred where `problem` can be refitted so and its loops are
    compiled, or due to be. The second refit then tells what the others would cost one by one; the
    first may load what it needs. Blocks that do not go through `Replicates` tell by their `own`
    function whether they can begin, as `together` does, and have a clock of what one refit after
    another has cost.
    """
    if block is None or not (own or compiled_path(problem, "auto", many=True)):
        yield from mapped(one, range(first, count), n_jobs)
        return
    k, compiled = first, own[0] if own else together
    while k < count:
        if compiled(problem):
            begun = k % size
            for results in mapped(block, range(k - begun, count, size), n_jobs):
                yield results[begun:] if begun else results
                begun = 0
            return
        end = k + 1 if k <= first + 1 else min(count, k - k % size + size)
        coming = (count - end) // (end - k) if k > first else 0
        with (own[1] if own else waiting()).rent(coming):
            yield from mapped(one, range(k, end), n_jobs)
        k = end


def mapped(
    work: Callable[[int], Result], numbers: Iterable[int], n_jobs: int
) -> Iterator[Result]:
    """``work(k)`` for each of `numbers`, in their order, by `n_jobs` threads."""
    if n_jobs == 1:
        yield from map(work, numbers)
        return
    many = Parallel(n_jobs=n_jobs, prefer="threads", return_as="generator")
    yield from many(delayed(work)(k) for k in numbers)


class Near(NamedTuple):
    """Terms that may change their piece, and the weightings.

    Attributes
    ----------
    A : array, shape (d, m)
        Their rows as columns.
    b, e, q, lo, hi : array, shape (m,)
        The losses at weight 1.
    flat : mask, shape (m,)
        Where there is no curvature.
    inv : array, shape (m,)
        1 / q, or 0.
    slopes, rates, margins : array, shape (m,)
        The pieces that they are on around the solution (`Around`).
    W, t, theta : array, shape (K, m)
        Weights, margins where the small problems begin, slopes to be filled in.
    bent : mask, shape (K, m)
        Whether the slope changes within the band around the margin, to be filled in.
    """

    A: Array
    b: Array
    e: Array
    q: Array
    lo: Array
    hi: Array
    flat: NDArray[np.bool_]
    inv: Array
    slopes: Array
    rates: Array
    margins: Array
    W: Array
    t: Array
    theta: Array
    bent: NDArray[np.bool_]


@compiled(inline=True)
def slope_of(t: Any, b: Any, e: Any, flat: Any, inv: Any, lo: Any, hi: Any) -> Any:
    """The slope of a loss, 0 at a kink; `inv` is 1 / q, and 0 where it is `flat`."""
    z = t - b
    z -= min(max(z, -e), e)
    end = hi if z > 0.0 else lo if z < 0.0 else 0.0
    bent = min(max(z * inv, lo), hi)
    return end if flat else bent


@compiled(allocates=False)
def weighted_slopes(near: Any, width: Any) -> None:
    """Fill `theta` with the weighted slopes; with 0 where they change within `width`: `bent`.

    Without a width it gets how far the slopes are off those of the pieces around the solution.
    """
    b, e, flat, inv, lo, hi = near.b, near.e, near.flat, near.inv, near.lo, near.hi
    for k in range(near.W.shape[0]):
        w, t, theta, bent = near.W[k], near.t[k], near.theta[k], near.bent[k]
        if width == 0.0:
            for i in range(b.size):
                s = near.slopes[i] + near.rates[i] * (t[i] - near.margins[i])
                theta[i] = slope_of(t[i], b[i], e[i], flat[i], inv[i], lo[i], hi[i]) - s
                theta[i] *= w[i]
            continue
        for i in range(b.size):
            s = slope_of(t[i] - width, b[i], e[i], flat[i], inv[i], lo[i], hi[i])
            other = slope_of(t[i] + width, b[i], e[i], flat[i], inv[i], lo[i], hi[i])
            bent[i] = s != other
            theta[i] = w[i] * (0.0 if bent[i] else s)


@compiled(allocates=False)
def small_problems(
    near: Any, X: Any, rho: Any, factor: Any, unit: Any, smooth: Any, target: Any, free: Any,
    room: Any,
) -> None:
    """Solve each weighting for the terms that are `bent`; fill `X` and their `theta`.

    `rho` is the gradient of all that is fixed where `newton` begins, and changes by ``L L' / unit``
    with x: `factor` are the columns of L, as rows, (K, d or 0, d), of squares that are so many more
    terms, whose slopes begin at 0. `room` are the records that `newton` works in and the positions
    of the terms.
    """
    reduced, work, index = room
    b, e, q, lo, hi = near.b, near.e, near.q, near.lo, near.hi
    d = near.A.shape[0]
    for k in range(near.W.shape[0]):
        m = np.int64(0)
        base = 0.0
        for i in range(b.size):
            w = near.W[k, i]
            if near.bent[k, i] and w > 0.0:
                index[m] = i
                reduced.b[m], reduced.e[m], reduced.q[m] = b[i], e[i], q[i] / w
                reduced.inv[m] = w / max(q[i], 1e-300)
                reduced.lo[m], reduced.hi[m] = lo[i] * w, hi[i] * w
                work.t[m] = near.t[k, i]
                middle = 0.5 * w * (lo[i] + hi[i])
                work.theta0[m] = middle if abs(middle) < np.inf else 0.0
                if free >= 0:
                    base += near.A[free, i] ** 2
                m += 1
        for j in range(d):
            work.x[j], work.rho[j] = X[k, j], rho[k, j]
            for p in range(m):
                reduced.A[j, p] = near.A[j, index[p]]
        more = m + factor.shape[1]
        for p in range(m, more):
            reduced.b[p], reduced.e[p], reduced.q[p], reduced.inv[p] = 0.0, 0.0, unit, 1.0 / unit
            reduced.lo[p], reduced.hi[p] = -np.inf, np.inf
            for j in range(d):
                reduced.A[j, p] = factor[k, p - m, j]
                reduced.b[p] += factor[k, p - m, j] * X[k, j]
            work.t[p], work.theta0[p] = reduced.b[p], 0.0
        newton(more, reduced, work, free, base, smooth, target, np.int64(STEPS))
        for j in range(d):
            X[k, j] = work.best_x[j]
        for p in range(m):
            near.theta[k, index[p]] = work.best_theta[p]


def within_of_a_kink(t: Array, away: Array, terms: float) -> float:
    """Within which of a kink so many terms are, of margins `t` and `away` from one."""
    known = away[np.isfinite(away)]
    nth = min(int(terms), len(known) - 1)
    least = float(np.partition(known, nth)[nth]) if len(known) else 0.0
    return least + 1e-12 * float(np.abs(t).max())


def curvature_of_the_sum(problem: Problem, t: Array, away: Array) -> Array:
    """That of the objective, kinks spread over the width that holds `SLOPES` d of them, (d, d)."""
    losses, d = problem.losses, problem.d
    h = within_of_a_kink(t, away, SLOPES * d)
    bend = np.maximum((losses.slope(t + h) - losses.slope(t - h)) / (2.0 * h), 0.0)
    some = np.flatnonzero(bend)
    H = problem.design.weighted_gram(some, bend[some])
    H.flat[::d + 1] += problem.quadratic.diagonal
    H.flat[::d + 1] += 1e-12 * H.trace() / d
    return np.asarray(H)


class Replicates:
    """Solver of one problem under many weightings.

    Parameters
    ----------
    solution : Solution
        At weights 1, of a problem that `compiled_path.segments.suits`.
    tol : float
        Relative gap of each answer.

    Attributes
    ----------
    around : Around
        The solution; what else is needed to solve, not only to certify, is made when it is.
    """

    def __init__(self, solution: Solution, tol: float) -> None:
        problem, losses = solution.problem, solution.problem.losses
        self.problem, self.tol, self.x, d = problem, tol, solution.x, problem.d
        self.theta = solution.theta
        problem.compute_row_norms()
        t = problem.design.forward(solution.x)
        away = losses.kink_distance(t)
        self._widest = within_of_a_kink(t, away, BAND * d / 0.63)
        # At a kink itself the slope is the solution's; elsewhere it is the piece's.
        at_kink = away <= 1e-3 * within_of_a_kink(t, away, d)
        slopes = np.where(at_kink, solution.theta, losses.slope(t))
        self._curvature = H = curvature_of_the_sum(problem, t, away)
        self.around = Around.at(problem, solution.x, slopes, H)
        free = problem.free_index
        self.free = int(free[0]) if len(free) else -1
        self.target = SHARE * tol * abs(solution.value)

    @cached_property
    def towards(self) -> Array:
        """The inverse of the curvature of the sum."""
        return np.asarray(np.linalg.inv(self._curvature), dtype=np.float64)

    @cached_property
    def band(self) -> float:
        """How near a kink terms are solved for: the share of the samples that is drawn at all."""
        losses = self.problem.losses
        kinks = ((losses.q == 0.0) & (losses.lo < losses.hi)).any()
        return self._widest * (1.0 if kinks else SMOOTHER)

    @cached_property
    def unit(self) -> float:
        """Curvature of the squares that stand for terms on parabolas."""
        rates = self.around.rates[self.around.rates > 0.0]
        return 1.0 / float(np.median(rates)) if len(rates) else 1.0

    @cached_property
    def smooth(self) -> float:
        """Over which kinks are smoothed at first, of slopes."""
        losses = self.problem.losses
        span = (losses.hi - losses.lo)[losses.hi > losses.lo]
        span = span[np.isfinite(span)]
        # Where slopes have no end (squares), those of the solution say how steep a kink is.
        usual = float(np.median(span)) if len(span) else float(np.abs(self.theta).max())
        return SMOOTH * self.band / (usual or 1.0)

    @cached_property
    def nearest(self) -> NDArray[np.intp]:
        """The terms that may leave their piece first; the last of them last."""
        nth = min(BAND * self.problem.d, self.problem.n - 1)
        return np.argpartition(self.around.room, nth)[:nth + 1]

    @cached_property
    def least(self) -> float:
        """How far those provably stay on it that are not among the nearest."""
        return max(float(self.around.room[self.nearest[-1]]), 0.0)

    def solve(
        self, W: NDArray[Any] | LeftOut, shift: Array | None = None
    ) -> tuple[Array, Array, NDArray[np.bool_]]:
        """The optima under the weights `W`, shape (K, n), their gaps, and which are small enough.

        Every gap is proven, those that are not small enough too. `shift`, shape (K,), is filled
        with how far each unpenalised coordinate may be from that of the optimum.
        """
        problem, around, x = self.problem, self.around, self.x
        diagonal, whole = problem.quadratic.diagonal, around.weighed(W)
        X = x - (whole.At_theta + diagonal * x) @ self.towards
        ok, gap, waiting = np.zeros(len(W), dtype=bool), np.empty(len(W)), np.arange(len(W))
        for attempt in range(ROUNDS):
            here, at = whole.take(waiting), X[waiting]
            rows = self._moving(at)
            near = self._near(here, rows)
            for _ in range(CORRECTIONS if attempt == 0 else 0):
                np.matmul(at, near.A, out=near.t)
                weighted_slopes(near, 0.0)
                gradient = here.At_theta + around.times_hessian(here.hessian, at - x)
                gradient += near.theta @ near.A.T
                at = at - STEP * (gradient + diagonal * at) @ self.towards
            np.matmul(at, near.A, out=near.t)
            # What has left the band again and again is solved for with all that may change; so is
            # everything where the band holds most terms.
            all_near = attempt == ROUNDS - 1 or problem.n <= 2 * BAND * problem.d
            if not all_near:
                left = near.t.min(axis=0) - self.band < around.below[rows]
                left |= near.t.max(axis=0) + self.band > around.above[rows]
                rows = rows[left | np.isin(rows, self.nearest)]
                near = self._near(here, rows)
                np.matmul(at, near.A, out=near.t)
            seen = here.looked_at(around, rows, near.W, near.A)
            weighted_slopes(near, np.inf if all_near else self.band)
            rho = seen.At_theta + around.times_hessian(seen.hessian, at - x) + near.theta @ near.A.T
            factor = self._factors(seen.hessian, here.hessian)
            small_problems(
                near, at, rho, factor, self.unit, self.smooth, self.target, self.free,
                self._room(len(seen.rows) + factor.shape[1]),
            )
            away = None if shift is None else np.empty(len(at))
            proofs = certify_weightings(
                problem, around, here, at, seen, near.theta, tol=self.tol, shift=away
            )
            X[waiting], gap[waiting], ok[waiting] = at, proofs.gap, proofs.ok
            if shift is not None:
                shift[waiting] = away
            waiting = waiting[~proofs.ok]
            if not len(waiting):
                break
        return X, gap, ok

    def _moving(self, X: Array) -> NDArray[np.intp]:
        """Terms that may change their piece."""
        reach = max(self.around.distance(X), self.least)
        moves = ~stays_around(self.around, reach)
        moves[self.nearest] = True  # of squares none does, and one has to take up an imbalance
        return np.flatnonzero(moves)

    def _near(self, weightings: Weighed, rows: NDArray[np.intp]) -> Near:
        W = np.asarray(weightings.weights.take(rows, axis=1), dtype=np.float64)
        f, around = self.problem.losses, self.around
        A = around.as_columns(rows)
        b, e, q, lo, hi = (column[rows] for column in (f.b, f.e, f.q, f.lo, f.hi))
        pieces = (column[rows] for column in (around.slopes, around.rates, around.margins))
        flat = q == 0.0
        inv = np.where(flat, 0.0, 1.0 / np.where(flat, 1.0, q))
        room = np.empty((2, *W.shape))
        bent = np.empty(W.shape, dtype=bool)
        own = [A, b, e, q, lo, hi, flat, inv, *pieces]
        return Near._make([*own, W, room[0], room[1], bent])

    def _factors(self, hessian: Array, whole: Array) -> Array:
        """A factor of each, its columns as rows, (K, d, d); none of them where nothing is bent.

        What is left of the `whole` where all bent terms have been subtracted is rounding.
        """
        d = self.problem.d
        if not hessian.shape[1]:
            return np.empty((len(hessian), 0, d))
        H = self.unit * self.around.square(hessian)
        size = self.unit * np.trace(self.around.square(whole), axis1=1, axis2=2)
        H += (ROUNDED * size + 1e-200)[:, None, None] * np.eye(d)
        return np.ascontiguousarray(np.linalg.cholesky(H).transpose(0, 2, 1))

    def _room(self, m: int) -> tuple[Terms, Workspace, NDArray[np.int64]]:
        d = self.problem.d
        work = Workspace.of_size(d, m)
        return Terms(np.empty((d, m)), *np.empty((6, m))), work, np.empty(m, np.int64)


def counts(seed: int, first: int, n: int) -> NDArray[np.uint8]:
    """How often each of n samples is drawn in the fits `first`, ... of a block, (BLOCK, n).

    As ``numpy.random.default_rng((seed, k)).integers(0, n, n)`` draws them, from the same bits:
    half of its time goes to handing out one number after another. None is drawn 256 times.
    """
    out = np.zeros((BLOCK, n), dtype=np.uint8)
    for k in range(BLOCK):
        bits = np.random.PCG64((seed, first + k)).random_raw(n // 2 + 16 + n // 256)
        if not tally(bits.view(np.uint32), out[k]):
            drawn = np.random.default_rng((seed, first + k)).integers(0, n, n)
            out[k] = np.bincount(drawn, minlength=n)
    return out


@compiled(allocates=False)
def tally(bits: Any, out: Any) -> Any:
    """Count to `out` how often each number is drawn; whether there are `bits` enough.

    Lemire (2019): the high half of a product with n, without those low halves that would make some
    numbers more likely than others.
    """
    n, drawn = np.uint64(out.size), 0
    least = (np.uint64(2**32) - n) % n
    for word in bits:
        product = np.uint64(word) * n
        if (product & np.uint64(2**32 - 1)) >= least:
            out[product >> np.uint64(32)] += 1
            drawn += 1
            if drawn == out.size:
                return True
    return False


SHOWN = 20
"""Coefficients that are printed."""


class Bootstrap(Record, Immutable):
    """Coefficients of the fits on drawn samples.

    Attributes
    ----------
    solution : Solution
        Of all samples.
    coefficients : array, shape (B, d)
        One fit a row, an intercept last; of finished fits only.
    certified : mask, shape (B,)
        Which of them have a certificate.
    level : float
        Of the intervals.
    finished : bool
        False where a limit or Ctrl-C ended the call early.

    Examples
    --------
    >>> import cvxscreen
    >>> X, y = cvxscreen.datasets.two_gaussians(200, 3)
    >>> fits = cvxscreen.bootstrap(cvxscreen.svm(X, y, C=0.1), B=50)
    >>> low, high = fits.intervals()
    >>> fits.coefficients.shape, bool((low < high).all()), bool(fits.certified.all())
    ((50, 3), True, True)
    """

    solution: Solution
    coefficients: Array
    certified: NDArray[np.bool_]
    level: float
    finished: bool = True

    @property
    def standard_error(self) -> Array:
        """Standard deviation of each coefficient over the fits, shape (d,)."""
        if len(self.coefficients) < 2:
            return np.full(self.coefficients.shape[1], np.nan)
        return np.asarray(self.coefficients.std(axis=0, ddof=1))

    def intervals(self, level: float | None = None) -> tuple[Array, Array]:
        """Percentile intervals of the coefficients, two arrays (d,); of `self.level` by default.

        Raises
        ------
        InvalidInput
            For a level outside (0, 1).
        """
        chosen = self.level if level is None else tolerance(level, "level")
        if not len(self.coefficients):
            nothing = np.full(self.coefficients.shape[1], np.nan)
            return nothing, nothing
        ends = 0.5 * (1.0 - chosen), 0.5 * (1.0 + chosen)
        low, high = np.quantile(self.coefficients, ends, axis=0)
        return low, high

    def __str__(self) -> str:
        low, high = self.intervals()
        error, x = self.standard_error, self.solution.x
        rows = [(j, x[j], error[j], low[j], high[j]) for j in range(min(len(x), SHOWN))]
        state = "" if self.finished else ", cut short"
        more = "" if len(x) <= SHOWN else f"\n({len(x) - SHOWN} more coefficients)"
        head = ("coefficient", "estimate", "standard error", "low", "high")
        title = f"Bootstrap, {len(self.coefficients)} fits, {self.level:.0%} intervals{state}"
        return table(head, rows, title=title) + more


def bootstrap(
    problem: Problem | Solution,
    B: int = 1000,
    seed: int = 0,
    *,
    level: float = 0.95,
    tol: float = 1e-6,
    n_jobs: int = 1,
    progress: bool = False,
    time_limit: float | None = None,
    checkpoint: str | Path | None = None,
) -> Bootstrap:
    """Fit again on `B` samples drawn with replacement.

    Parameters
    ----------
    problem : Problem or Solution
        Of `svm`, `regression`, `sparse_svm` or `sparse_svr`, without a kernel; a solution saves the
        first fit.
    B : int
        Number of fits.
    seed : int
        Fit number k depends on `seed` and k alone, whatever `n_jobs` is.
    level : float
        Of the percentile intervals, in (0, 1).
    tol : float
        Relative duality gap of each fit.
    n_jobs : int
        Threads, as in joblib.
    progress : bool
        Whether to show how many fits are done.
    time_limit : float, optional
        Wall seconds after which no further fit begins; so does Ctrl-C. The record keeps what is
        done.
    checkpoint : str or Path, optional
        A file that is written as fits are finished, and at a limit or Ctrl-C. A later call with the
        same problem, seed and tolerance goes on from it, whatever its `B` is.

    Returns
    -------
    Bootstrap

    Raises
    ------
    InvalidInput
        For numbers out of range, kernels, what `leave_one_out` refuses, and a checkpoint that is of
        other data, another seed or tolerance, or cannot be read.
    NotSaved
        If the checkpoint cannot be written.

    Notes
    -----
    Efron and Tibshirani (1993), the pairs bootstrap with percentile intervals.

    Examples
    --------
    >>> import cvxscreen
    >>> X, y = cvxscreen.datasets.heavy_tailed_regression(100, 3)
    >>> problem = cvxscreen.regression(X, y, loss="huber")
    >>> print(cvxscreen.bootstrap(problem, B=50, seed=1, tol=1e-10))
    Bootstrap, 50 fits, 95% intervals
    coefficient  estimate  standard error     low     high
    -----------  --------  --------------  ------  -------
              0     1.051          0.1165  0.8128     1.21
              1   -0.7658          0.2001  -1.083  -0.3676
              2     0.895          0.1026  0.7136    1.098
    """
    one_of("problem", problem, (Problem, Solution), "a problem or its solution is needed")
    B, seed, chosen = whole("B", B, 1), whole("seed", seed, 0), tolerance(level, "level")
    whole("n_jobs", n_jobs if n_jobs != -1 else 1, 1)
    tol, limits = tolerance(tol), Limits(time_limit, None)
    solution = solve(problem, tol=tol) if isinstance(problem, Problem) else problem
    base = accepted(solution)
    if isinstance(base.design, Gram):
        raise InvalidInput("`problem` has a kernel, and no coefficients of features to look at.")
    base.compute_row_norms()
    file = None if checkpoint is None else file_path("checkpoint", checkpoint)
    mark = "" if file is None else fingerprint(base, tol, f"bootstrap {seed}", np.array([base.C]))
    rows = [] if file is None else _read(file, mark, base.d)[:B]
    finished, saved = True, perf_counter()
    with Progress(B, "fits", shown=progress) as bar:
        for _ in rows:
            bar.step()
        try:
            for row in _fits(solution, B, seed, tol, n_jobs, len(rows)):
                rows.append(row)
                bar.step()
                if file is not None and perf_counter() > saved + EVERY:
                    _write(file, mark, rows, base.d)
                    saved = perf_counter()
                if limits.spent():
                    finished = len(rows) == B
                    break
        except KeyboardInterrupt:
            finished = False
    if file is not None:
        _write(file, mark, rows, base.d)
    X = np.array([x for x, _ in rows]).reshape(len(rows), base.d)
    return Bootstrap(solution, X, np.array([ok for _, ok in rows], dtype=bool), chosen, finished)


EVERY = 5.0
"""Seconds between two writes of a checkpoint."""


def _read(file: Path, mark: str, d: int) -> list[tuple[Array, bool]]:
    """The fits that a checkpoint holds; none where there is no such file yet."""
    if not file.parent.is_dir():
        raise InvalidInput(f"`checkpoint`: the folder {str(file.parent)!r} does not exist.")
    if not file.exists():
        return []
    try:
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as data:
            same = str(data["mark"]) == mark
            X, ok = np.asarray(data["coefficients"], float), np.asarray(data["certified"], bool)
            whole = X.shape == (len(ok), d) and bool(np.isfinite(X).all())
    except UNREADABLE as error:
        raise InvalidInput(
            f"`checkpoint`: {str(file)!r} is not a readable file of fits "
            f"({why_unreadable(error)}); name another file."
        ) from None
    if not (same and whole):
        raise InvalidInput(
            f"`checkpoint`: {str(file)!r} belongs to other data, another seed or another "
            "tolerance; name another file."
        )
    return [(x, bool(good)) for x, good in zip(X, ok, strict=True)]


def _write(file: Path, mark: str, rows: list[tuple[Array, bool]], d: int) -> None:
    """Replace the file by one with all fits; the old one stays whole until the new one is."""
    X, ok = np.array([x for x, _ in rows]).reshape(len(rows), d), np.array([g for _, g in rows])
    try:
        with written_whole(file) as stream:
            np.savez(stream, mark=np.array(mark), coefficients=X, certified=ok)
    except OSError as error:
        raise NotSaved(
            f"{len(rows)} fits could not be written to {str(file)!r} ({error}); make room, or name "
            "another file."
        ) from error


def _fits(
    solution: Solution, B: int, seed: int, tol: float, n_jobs: int, first: int
) -> Iterator[tuple[Array, bool]]:
    """The fits from the `first` on, as they are finished; what no block certifies is made alone."""
    problem = solution.problem
    solver = cache(lambda: Replicates(solution, tol))

    def block(start: int) -> list[tuple[Array, bool]]:
        X, _, ok = solver().solve(counts(seed, start, problem.n))
        return [
            (X[k], True) if ok[k] else _fit(solution, seed, start + k, tol)
            for k in range(min(B - start, BLOCK))
        ]

    def alone(k: int) -> list[tuple[Array, bool]]:
        return [_fit(solution, seed, k, tol)]

    for some in in_order(problem, B, alone, block, n_jobs, first):
        yield from some


def _fit(solution: Solution, seed: int, k: int, tol: float) -> tuple[Array, bool]:
    """Coefficients of fit `k`, and whether they are certified."""
    problem = solution.problem
    drawn = np.random.default_rng((seed, k)).integers(0, problem.n, problem.n)
    counts = np.bincount(drawn, minlength=problem.n).astype(np.float64)
    used = np.flatnonzero(counts)
    here = weighted(taken(problem, used), counts[used])
    if compiled_path(here, "auto") and ready():
        found = solve(here, tol=tol)
    else:
        found = refit(solution, here, counts[used] * solution.theta[used], tol, "certified")
    return found.x, found.certificate.ok
