"""Stretches of a path over C for problems of few coordinates, solved compiled and certified.

`CompiledPath` prepares the arrays of `loops` once, keeps the state between stretches, and lets
`certify_many` recompute every point before anybody sees it.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dger

from cvxscreen._support.compiled import CompileClock, at_hand, import_numba, on_disk
from cvxscreen._support.immutable import Immutable
from cvxscreen._support.limits import SMALL, each, memory_of_machine
from cvxscreen.core.closed_form import without_loss
from cvxscreen.core.duality import reference_point
from cvxscreen.core.problem import Problem
from cvxscreen.designs.rows import FILLED, Rows
from cvxscreen.solvers import prediction
from cvxscreen.solvers.compiled_path import loops
from cvxscreen.solvers.compiled_path.loops import (
    CERTIFIED,
    COLUMNS,
    OFF,
    PASSES,
    RECORD,
    ROUNDS,
    SAFE,
    STATE,
    Data,
    Margins,
    PathOptions,
    PathOutput,
    Terms,
    Workspace,
    newton,
)
from cvxscreen.solvers.few_terms import Continuation
from cvxscreen.solvers.newton import default_weight, typical_span

if TYPE_CHECKING:
    from cvxscreen.certificates.many import Certificates, PackedSlopes

Array = NDArray[np.float64]

NARROW, WIDTH = 64, 512
"""Most coordinates; more than the first only where there are as many terms.

Of many values of C the ordinary loop takes 0.9 (10,000 x 300) to 2.8 times the time (600 x 200)."""
WIDTH_OF_ONE = 256
"""Most coordinates for a single value of C: BLAS forms the ordinary loop's systems.

Measured, hinge, absolute and Huber's loss: the ordinary loop takes 1.2 to 1.6 times the time at
d = 130, 0.75 (generated) to 1.1 times (dna, digits) at 180 to 256, 0.5 at 300 to 500."""

SPARSE, SMOOTH_FILLED = 150, 0.15
"""Sparse rows of fewer coordinates, `FILLED` of which at least is not 0, are made dense for a path;
the second where every loss is smooth.

CPU seconds of 20 values of C sparse and dense, hinge with intercept: phishing (44 % filled) 1.5 and
0.12, mushrooms (19 %) 3.3 and 0.5, a9a (11 %) 1.7 and 0.6, 20,000 x 100 (4 %) 2.3 and 0.4; squared
hinge 0.44 and 0.17, 0.33 and 0.12, 1.3 and 1.2, 0.7 and 0.4; 20,000 x 300 (4 %) 0.65 and 2.3."""

SYSTEMS, SMOOTH_SYSTEMS = 1.5e8, 7.5e7
"""Most ``n d^2`` with which sparse rows are made dense for a single value of C, and the same where
every loss is smooth: more is dearer than what a call of the ordinary loop costs in any case.

Measured, C from 0.01 to 100, 5 to 44 % filled, of the time of the ordinary loop: hinge, 1,000 x 40
to 100,000 x 20 and 8,000 x 120, 0.1 to 1.4, in the mean 0.5; 20,000 x 140 and 40,000 x 100 0.9 to
2.5; squared hinge 0.2 to 1.4, in the mean 0.7, 8,000 x 120 1.0, 20,000 x 140 1.0 to 1.7."""

COPIES, SHARE = 16, 0.25
"""Bytes that are held for each number of the data (all rows as columns, and those kept), and the
most of the machine's memory that they may take. There is no other limit: 400,000 x 50 takes 1.0 s
against 3.7."""

TURNED = 262_144
"""Numbers that are turned at a time: 2 MiB, a second-level cache. (20,640 x 8 in blocks of 2,048
rows cost a Huber fit half as much again: a call a block.)"""

HUGE = 1 << 22
"""Bytes from which numpy asks for huge pages."""

SLOPES = 10_000_000
"""Most numbers in the dual points of one stretch."""

SECONDS = 0.3
"""How long a stretch may take, so that progress is shown and an interrupt is heard."""

PASS = 1e-9
"""Seconds of a pass over the data, for each of its entries and ten more in a row (2,000 x 5 to
500,000 x 50: 0.5 to 2.5 times what was measured)."""

NEARBY, MOST_KEPT = 0.4, 1 << 27
"""A step in log C up to which a point of a kept path goes on from the last one (2,000 x 20 to
100,000 x 10, hinge and absolute values: 1.2 times as quick as a cold start after a step of 0.2,
five to eight times from the fourth such step on; half as quick after one of 0.7 and more); and the
bytes that are kept."""

SAMPLE = 2500
"""Terms of the sample that a cold start looks at first, about."""

NEAR = 16
"""The band after it holds one term in so many."""

TANGENT = 1e-6
"""Share of the weight that terms at a kink have as curvature in a tangent."""

OUT = 0.03
"""Share of the ball that a guess reaches beside a tangent."""

OFF_CENTRE = 0.1
"""Features are centred from this share of their root mean square that is their mean."""

SCREENS = {"off": OFF, "safe": SAFE, "certified": CERTIFIED}


def suits(problem: Problem) -> bool:
    """Whether `CompiledPath` takes `problem`: dense rows, few coordinates, ``M`` the identity.

    One coordinate may be unpenalised. A problem that is solved without a step needs no path.
    """
    return isinstance(problem.design, Rows) and not problem.design.sparse and _simple(problem)


def suits_many(problem: Problem) -> bool:
    """Whether `CompiledPath` is also the quickest over many values of C on sparse data.

    What it makes of them is dense, which pays while the columns are few and well filled.
    """
    return _filled(problem, FILLED, SMOOTH_FILLED) and _simple(problem)


def suits_one(problem: Problem) -> bool:
    """The same for one value of C, where coordinate descent on the rows as they are gives up."""
    if not _filled(problem, FILLED, FILLED):
        return False
    most = SYSTEMS if _kinked(problem) else SMOOTH_SYSTEMS
    return problem.n * problem.d**2 <= most and _simple(problem)


def _kinked(problem: Problem) -> bool:
    """Whether some loss has a kink."""
    return problem.losses.ends("q")[0] == 0.0


def _filled(problem: Problem, kinked: float, smooth: float) -> bool:
    """Whether rows are sparse, of few coordinates, and at least so large a share of them filled.

    Beside a kink, and without. Losses are looked at last: streamed data have none in memory.
    """
    design = problem.design
    if not isinstance(design, Rows) or not design.sparse or problem.d >= SPARSE:
        return False
    return design.filled >= (kinked if _kinked(problem) else smooth)


def _simple(problem: Problem) -> bool:
    """Few coordinates, ``M`` the identity, finite losses of rows, and memory for them.

    No iterate satisfies many constraints to the last digit, and the gap of all others is infinite.
    """
    diagonal = problem.quadratic.diagonal
    return (
        0 < problem.d <= min(WIDTH, max(NARROW, problem.n))
        and problem.side is None
        and problem.penalty is None
        and problem.quadratic.matrix is None
        and bool(((diagonal == 1.0) | (diagonal == 0.0)).all())
        and int((diagonal == 0.0).sum()) <= 1
        and not problem.linear.any()
        and problem.drift == problem.imbalance == 0.0
        and not problem.losses.any_hard
        and without_loss(problem) is None
        and _fits(COPIES * problem.n * problem.d)
    )


def _fits(size: int) -> bool:
    """Whether `size` bytes are a small part of what there is."""
    there = None if size <= SMALL else memory_of_machine()
    return there is None or size <= SHARE * there


class DualPoints(Protocol):
    """Dual points, each an array when it is asked for."""

    def row(self, k: int) -> Array:
        """Dual point k, shape (n,)."""
        ...


class PathSegment(Immutable):
    """Points that were solved together, K of them.

    Attributes
    ----------
    values : array, shape (K,)
        The parameter at each.
    X : array, shape (K, d)
    theta : DualPoints
    record : array, shape (K, len(COLUMNS))
        What the loop says about its work; of the columns at least the first four.
    proofs : Certificates
        Of all K points.
    seconds : float
        Wall time of the stretch.
    over : str
        Whose the values are.
    features : array of int, shape (K,), optional
        Coordinates that are not 0, where an L1 norm screens them.
    """

    values: Array
    X: Array
    theta: DualPoints
    record: Array
    proofs: Certificates
    seconds: float
    over: str = "C"
    features: NDArray[np.intp] | None = None

    def __len__(self) -> int:
        return len(self.values)


class Uncertified(NamedTuple):
    """What the loop says: `PathSegment` without proofs."""

    values: Array
    X: Array
    theta: PackedSlopes
    record: Array


def _own(array: Array) -> Array:
    """As compiled loops take it, whatever flags it has: every problem by the same code."""
    if array.flags.carray and array.dtype == np.float64:
        return array
    return np.array(array, dtype=np.float64, order="C")


def _features(design: Rows) -> Array:
    """``A'`` of its own, shape (d, n): features along the first axis, the only copy of the data."""
    n, d = design.shape
    A = np.empty((d, n))
    rows = max(1, TURNED // d)

    def turn(start: int) -> None:  # what is turned stays in the cache
        block = slice(start, start + rows)
        design.dense(block, A[:, block].T)

    each(turn, range(0, n, rows))
    return A


def _room(d: int, n: int) -> Array:
    """Room for the kept terms, shape (d, n), of which only the first columns are ever written.

    From 4 MiB on numpy asks for pages of 2 MiB; the first number of each row would fill one of them
    (1,000,000 x 50: 102 MB for the 28,000 terms that stay). Pages of a map are small, and private.
    """
    if 8 * d * n < HUGE or not hasattr(mmap, "MAP_PRIVATE"):
        return np.empty((d, n))
    pages = mmap.mmap(-1, 8 * d * n, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return np.frombuffer(pages, dtype=np.float64).reshape(d, n)


class CompiledPath:
    """The compiled path of one problem.

    Parameters
    ----------
    problem : Problem
        One that `suits`.
    screen : {"certified", "safe", "off"}
        What may be fixed before a point is solved. ``"certified"`` guesses from the ball of the
        point before, reduced to a share of its radius that adapts; ``"safe"`` fixes what that ball
        proves (nothing with an unpenalised coordinate); ``"off"`` nothing.
    tol : float
        Relative gap.
    """

    def __init__(self, problem: Problem, screen: str, tol: float) -> None:
        self.problem, self.screen, self.tol = problem, SCREENS[screen], tol
        self.kinked = _kinked(problem)
        losses, (n, d) = problem.losses, problem.design.shape
        columns = (losses.b, losses.e, losses.q, 1.0 / np.maximum(losses.q, 1e-300), losses.lo,
                   losses.hi)
        free = problem.free_index
        one = int(free[0]) if len(free) else -1
        A = _features(cast(Rows, problem.design))
        self.centre = self._centred(A, one) if len(free) else None
        terms = Terms(A, *map(_own, columns))
        base = float(np.square(terms.A[one]).sum()) if len(free) else 0.0
        # A guess is about all coordinates, a proof about the penalised ones.
        norms = problem.norms if self.screen == SAFE or not len(free) else problem.sizes
        if self.centre is not None and self.screen != SAFE:
            norms = np.sqrt(np.einsum("ji,ji->i", A, A))
        falls, rises = losses.lo < 0.0, losses.hi > 0.0
        ends = ((falls, -np.inf), (falls, -np.inf), (rises, np.inf), (rises, np.inf))
        knots = np.array([
            np.where(there, knot, none)
            for knot, (there, none) in zip(losses.knots, ends, strict=True)
        ])
        error = losses.knot_error
        self.data = Data(terms, _own(norms), _own(error), knots, one, base)
        self.work, self.along = Workspace.of_size(d, n), Margins.of_size(n)
        self.reduced = Terms(_room(d, n), *np.empty((6, n)))
        self.x, self.theta, self.t = self.work.x, self.along.theta, self.along.t
        self.recall(None)
        self.pace = self.seconds_of(10.0)  # a point's, until one has been solved

    @staticmethod
    def _centred(A: Array, free: int) -> Array | None:
        """Centre the features against the unpenalised one e, a row of `A` as they are, in place.

        ``<a_i, x> = <a_i - e_i mu, x> + e_i <mu, x>``: the same problem, whose unpenalised
        coordinate is larger by ``<mu, x>``. Features far from 0 against their spread would make
        Newton's systems nearly singular. Returns mu, shape (d,), with 0 for e itself; None where
        the features are near enough to their centre as they are.
        """
        column = A[free].copy()
        size = float(column @ column)
        if not size > 0.0:
            return None
        mean = A @ column / size
        mean[free] = 0.0
        spread = np.sqrt(np.einsum("ji,ji->j", A, A) / size)
        if not (np.abs(mean) > OFF_CENTRE * spread).any():
            return None
        dger(-1.0, column, mean, a=A.T, overwrite_a=True)
        return np.asarray(mean)

    def recall(self, memory: Sequence[float] | None) -> None:
        """Take over what another run had learnt; the beginner's guesses when None."""
        state: Any = np.zeros(1, RECORD)[0]
        self.state = state
        if memory is not None and len(memory) == len(STATE.names or ()):
            for name, value in zip(STATE.names or (), memory, strict=True):
                state[name] = value
            return
        losses = self.problem.losses
        span = typical_span(losses)
        weight = default_weight(losses, span)
        # As entries: numpy sets an attribute in 5 us.
        state["weight"], state["share"], state["begin"] = weight, 0.5, 1e-5
        state["unit"] = 1.0 if span is None else 1.0 / (span * weight)

    @property
    def memory(self) -> list[float]:
        """The state that `recall` takes up in another solve."""
        return [float(self.state[name]) for name in STATE.names or ()]

    def restart(self, value: float, x: Array, theta: Array) -> None:
        """Go on from a point that was solved elsewhere, at C = `value`."""
        point = reference_point(self.problem.with_(C=value), x, theta)
        self.x[:], self.theta[:], self.t[:] = point.x, point.theta, point.margins
        if self.centre is not None:
            self.x[self.data.free] += self.centre @ point.x
        state, reach = self.state, point.primal_dual_distance * (1.0 + 1e-14) + point.dual_error
        state.factor, state.primal = value / self.problem.C, point.primal
        state.terms, state.distance, state.stride = point.terms, reach, 0.0

    def length(self, left: int) -> int:
        """How many of the `left` points the next stretch takes."""
        return max(1, min(left, SLOPES // self.problem.n, int(SECONDS / max(self.pace, 1e-9))))

    def solve(self, values: Array) -> PathSegment:
        """The points at `values`, in that order; the stretch ends after a point that was missed."""
        from cvxscreen.certificates.many import certify_many

        began = perf_counter()
        found = self.points(values)
        proofs = certify_many(self.problem, found.values, found.X, found.theta, tol=self.tol)
        seconds = perf_counter() - began
        if len(found.values):
            self.pace = self.seconds_of(float(found.record[:, PASSES].mean()))
        return PathSegment(*found, proofs, seconds)

    def seconds_of(self, passes: float) -> float:
        """About how long a point takes that takes so many passes over the data.

        Counted, not measured: where a stretch ends sums are made anew, and the same program gives
        the same bits in every run.
        """
        return 1e-5 + PASS * passes * self.problem.n * (self.problem.d + 10)

    def points(self, values: Array) -> Uncertified:
        """The same points as the loop found them."""
        from cvxscreen.certificates.many import PackedSlopes

        losses, K, n = self.problem.losses, len(values), self.problem.n
        X, record = np.empty((K, self.problem.d)), np.zeros((K, len(COLUMNS)))
        factors, codes = values / self.problem.C, np.empty((K, n), dtype=np.int8)
        pool, first = np.empty(K * n), np.zeros(K, dtype=np.int64)  # what is not used costs nothing
        count = self.follow(factors, PathOutput(X, codes, pool, first, record))
        if self.centre is not None:
            X[:count, self.data.free] -= X[:count] @ self.centre
        theta = PackedSlopes(losses.lo, losses.hi, factors, codes, pool, first)
        theta = theta if count == K else theta.head(count)
        return Uncertified(values[:count], X[:count], theta, record[:count])

    def follow(self, factors: Array, found: PathOutput) -> int:
        """Fill `found`; how many points are done."""
        k, share = 0, 1.0
        if len(factors) and self.state["factor"] == 0.0 and self.screen == CERTIFIED:
            share = self.begin_at_sample(float(factors[0]))
        rough = loops.PILOT if self.kinked else 0.0
        request = PathOptions(factors, self.screen, self.tol, share, rough)
        arguments = (self.data, self.reduced, self.work, self.along, self.state, request, found)
        while k < len(factors):
            if k or (self.state["factor"] > 0.0 and np.isfinite(self.state["stride"])):
                self.look_back(float(factors[k]))
            k = run(arguments, k)
            if k < len(factors) and found.record[k, ROUNDS]:
                break
        return k

    def begin_at_sample(self, factor: float) -> float:
        """Solve roughly for one term in so many, each in place of them all, and begin there.

        A small part of the cost of a solve begins it near its end. Where terms are many a second,
        larger sample goes on from the first: how far it moves the margins tells how far all terms
        still will (`guess_from_samples`), and no pass solves for all of them. Returns the share of
        the weight whose band holds one term in `NEAR` then.
        """
        terms, n = self.data.terms, self.problem.n
        if n < 4 * SAMPLE:
            return 1.0
        every = max(n // SAMPLE, 1)
        self.work.x[:] = 0.0
        if n >= prediction.PILOT:
            for every in (prediction.SHARE * prediction.NESTED, prediction.SHARE):
                first = self.work.x.copy()
                self.solve_sample(factor, every)
            self.guess_from_samples(factor, first)
        else:
            self.solve_sample(factor, every)
            loops.margins(n, terms.A, self.work.x, self.t)
        away = np.abs(np.abs(self.t[::every] - terms.b[::every]) - terms.e[::every])
        rank = len(away) // NEAR
        return float(loops.band(self.state, np.partition(away, rank)[rank]))

    def solve_sample(self, factor: float, every: int) -> None:
        """Solve for one term in `every`, from ``work.x`` on."""
        terms, work, grown = self.data.terms, self.work, factor * every
        chosen = Terms(*map(_own, (
            terms.A[:, ::every], terms.b[::every], terms.e[::every],
            terms.q[::every] / grown, terms.inv[::every] * grown, terms.lo[::every] * grown,
            terms.hi[::every] * grown,
        )))
        m = len(chosen.b)
        loops.margins(m, chosen.A, work.x, work.t)
        work.theta0[:m] = work.rho[:] = 0.0
        y = np.clip(-chosen.b, -chosen.e, chosen.e)
        r = np.clip((-chosen.b - y) * chosen.inv, chosen.lo, chosen.hi)
        scale = float((-chosen.b * r - chosen.e * abs(r) - 0.5 * chosen.q * r * r).sum())
        aim = max(self.tol, loops.PILOT) * scale  # of the loss at x = 0
        weight = float(self.state.weight) / grown
        newton(m, chosen, work, self.data.free, self.data.base / every, weight, aim, 100)
        work.x[:] = work.best_x

    def guess_from_samples(self, factor: float, first: Array) -> None:
        """Let ``work.x``, of the second of two samples, be a point at `factor` to guess from."""
        terms, state, along = self.data.terms, self.state, self.along
        loops.margins(self.problem.n, terms.A, self.work.x, self.t)
        y = self.t - terms.b
        y -= np.clip(y, -terms.e, terms.e)
        self.theta[:] = factor * np.clip(y * terms.inv, terms.lo, terms.hi)
        moved = np.abs((self.work.x - first) @ terms.A[:, ::prediction.SHARE])
        norms = np.maximum(self.data.norms[::prediction.SHARE], 1e-300)
        apart = np.sqrt(prediction.NESTED - 1.0)  # see `prediction.PredictionRadius.from_samples`
        far = float(np.quantile(moved / norms, prediction.QUANTILE))
        state.error = prediction.MARGIN * far / apart
        state.begin = loops.band(state, np.sqrt(np.square(moved).mean()) / apart)
        state.factor, state.stride, state.follow, state.steps = factor, np.inf, 0.0, np.inf
        state.primal, state.terms = loops.evaluate(self.t, self.theta, terms, factor)
        state.primal += 0.5 * loops.length(self.work.x, self.data.free) ** 2
        state.distance = 0.0
        along.older[:] = self.t

    def look_back(self, factor: float) -> None:
        """Make up the margins one step back where only the last point's are known.

        As if the last step had been along the path's tangent: while no term changes its piece, the
        slopes of linear pieces grow as C and ``dx/dlog C`` solves
        ``(M + sum_K a_i a_i' / q_i) dx = M x``, K the terms with curvature (at a kink `TANGENT`).
        """
        state, terms, n = self.state, self.data.terms, self.problem.n
        ratio = factor / float(state.factor)
        stride = float(np.log(ratio))
        coarse = abs(stride) > loops.COARSE or n > loops.FEW
        if self.screen != CERTIFIED or stride == 0.0 or state.stride != 0.0 or not coarse:
            return
        last, s = float(state.factor), self.theta
        bent = np.flatnonzero(
            (s > terms.lo * last) & (s < terms.hi * last) & ((terms.e == 0.0) | (s != 0.0))
        )
        weight = TANGENT * float(state.weight) / last
        rows = (terms.A[:, bent] / np.sqrt(terms.q[bent] / last + weight)).T
        right, free, work = self.x.copy(), self.data.free, self.work
        diagonal = np.ones(len(right))
        if free >= 0:
            diagonal[free] = 1e-8 * self.data.base / weight + 1e-12
            right[free] = 0.0
        work.H[:], work.step[:] = rows.T @ rows + np.diag(diagonal), right
        loops.cholesky_solve(work.H, work.step, len(right))
        older = self.along.older
        loops.margins(n, terms.A, work.step, older)
        older *= 1.0 / ratio - 1.0
        older += self.t
        ball = loops.radius(state.terms, ratio, float(np.linalg.norm(self.x)), state.distance)
        state.error, state.stride, state.follow = OUT * ball, stride, ratio


@dataclass(eq=False)
class KeptPath:
    """The compiled path of data that are solved again and again, their losses times a factor.

    Attributes
    ----------
    path : CompiledPath or None
        The last one, where it is small enough to be kept.
    near : Continuation or None
        Where the last solve has ended that was none of the path's, while nothing is loaded.
    solves : int
        How often they were.
    """

    path: CompiledPath | None = None
    near: Continuation | None = None
    solves: int = 0

    def again(self) -> bool:
        """Count one solve more; whether there was one before."""
        self.solves += 1
        return self.solves > 1

    def to(self, problem: Problem, tol: float) -> tuple[CompiledPath, float]:
        """A path, certified mode, and the value of C at which `problem` is on it."""
        known = self.path
        if known is not None and known.tol == tol and known.problem.design is problem.design:
            factor = problem.losses.factor_of(known.problem.losses)
            if factor is not None:
                if not abs(np.log(factor / max(float(known.state.factor), 1e-300))) <= NEARBY:
                    known.recall(None)
                return known, factor * known.problem.C
        path = CompiledPath(problem, "certified", tol)
        self.path = path if COPIES * problem.n * problem.d <= MOST_KEPT else None
        return path, problem.C


# -- compiled when it pays ------------------------------------------------------------------------


PARTS = CompileClock(5.0, newton)
"""Of `newton` and the other parts of the loop, against the ordinary loop of screening.

Measured on a fresh cache: 4 and 3 CPU seconds, each bought in a call of its own."""
OTHER_PARTS = 3.0
"""The second of these."""

LOOP = CompileClock(2.5, loops.follow_path)
"""Of `follow_path`, against the same loop uncompiled over compiled parts. Measured: 2.5 to 3."""


LOADING = CompileClock(0.25)
"""Of importing numba and loading the path from disk (0.3 to 0.7), against numpy's own solvers. It
is charged by `CALL` and `ENTRY`, not by a clock: the same program takes the same engines in every
run. Less than it costs, for those who solve a few times and time the last."""

CALL, ENTRY = 0.01, 1.5e-7
"""CPU seconds of `Newton` for a problem, and for each entry of its data. (Hinge, squared hinge,
LAD, Huber, C from 0.01 to 100: 15 to 25 ms for 4,000 x 12, 30 to 80 for 20,000 x 20 and 10,000 x
40, 60 to 220 for 50,000 x 20.)"""

LIGHT = int((LOADING.price - CALL) / ENTRY)
"""Most entries of the data that are left to numpy rather than load anything: as dear as loading."""


def before_loading(problem: Problem) -> bool:
    """Whether numpy's own solvers are to answer, since nothing compiled is loaded, nor due.

    Loading is rented before it is bought, as compiling is: numba is not even imported.
    """
    return not (newton.loaded or LOADING.due) and stored(problem) <= LIGHT


def stored(problem: Problem) -> float:
    """Entries of the data, those alone that are stored of sparse rows."""
    share = problem.design.filled if isinstance(problem.design, Rows) else 1.0
    return problem.n * problem.d * share


def charge(problem: Problem, call: float = CALL, times: float = 1) -> None:
    """Count that `problem` is solved without what is compiled, `times` over."""
    LOADING.spent += times * (call + ENTRY * stored(problem))


@contextmanager
def charged() -> Iterator[None]:
    """Count what the ordinary loop does for a problem that `suits`: its time, but no loading.

    That has been charged for the problem as a whole; the loop charges it for what it would begin
    by coordinate descent, the problem itself and its samples.
    """
    spent = LOADING.spent
    try:
        with PARTS.rent():
            yield
    finally:
        LOADING.spent = spent


def _interpreted() -> bool:
    """Whether numba has been told to compile nothing."""
    import_numba()
    from numba.core import config

    return bool(config.DISABLE_JIT)


def ready() -> bool:
    """Whether a problem that `suits` need not wait for a compiler, or has waited long enough.

    Where compiling is due, this call compiles the largest part and goes on without; the next one
    compiles the others when it gets to them. So no call pays for all of it, nor does one that
    solves many problems within `one_purchase`.
    """
    made = _MADE.get()
    if _interpreted() or at_hand(newton):
        return not made or PARTS.spent - made[0] >= OTHER_PARTS
    if PARTS.due:
        if made is not None:
            made.append(PARTS.spent)
        from numba import types

        _, (_, terms, work, *_) = _types()
        whole, number = types.int64, types.float64
        newton.compile((whole, terms, work, whole, number, number, number, whole))
    return False


_MADE: ContextVar[list[float] | None] = ContextVar("made", default=None)


@contextmanager
def one_purchase() -> Iterator[None]:
    """Count what is solved inside as one call, which compiles the largest part and goes on without.

    Until that has cost as much as compiling the others.
    """
    token = _MADE.set([])
    try:
        yield
    finally:
        _MADE.reset(token)


def compile_now(*clocks: CompileClock) -> None:
    """Let compiling be due from here on, whatever it costs: by these clocks, or for the path."""
    for clock in clocks or (PARTS, LOOP):
        clock.spent = max(clock.spent, clock.price)


def _kinds(arguments: tuple[Any, ...]) -> list[Any]:
    """What compiled code takes for granted of its arguments: their fields' types and orders."""
    fields: list[Any] = []
    for part in arguments:
        fields.extend(part if isinstance(part, tuple) else (part,))
    return [
        (f.dtype, f.ndim, f.flags.c_contiguous) if isinstance(f, np.ndarray) else type(f)
        for f in fields
    ]


class Entry(NamedTuple):
    """Compiled code behind a call that does not ask for the types of its arguments again.

    Numba's own call works out the types of records in Python, 0.2 ms for those of `follow_path`: a
    quarter of a path over few terms.

    Attributes
    ----------
    call : callable
    kinds : list
        As `_kinds` gives them; arguments of others must not reach `call`.
    checked : callable
        Numba's call, which refuses them.
    newton : Address
        Of `newton`, as `call` takes it.
    """

    call: Any
    kinds: list[Any]
    checked: Any
    newton: Address


class Address:
    """A compiled function as an argument of another one, looked up once.

    Of its own functions numba looks up type and address anew in every call, in Python.
    """

    def __init__(self, function: Any, signature: Any) -> None:
        # By its arguments, as `ready` does: numba keeps apart what a whole signature asks for.
        function.compile(tuple(signature.args))
        found = function.get_compile_result(signature)
        name = found.fndesc.llvm_cfunc_wrapper_name
        self.address, self.function = found.library.get_pointer_to_function(name), function

    def __wrapper_address__(self) -> int:
        """Address of the compiled function, by the name that numba looks for."""
        return int(self.address)


LOADED = Lock()
"""`_compiled_path` is made once, by whichever thread comes first."""


@lru_cache(maxsize=1)
def _compiled_path() -> Entry:
    """`follow_path`, compiled or taken from disk; its arguments always have the same types."""
    from numba import types

    parts, kinds = _types()
    whole, number = types.int64, types.float64
    pair = types.Tuple((number, whole, number))
    signature = pair(whole, kinds[1], kinds[2], whole, number, number, number, whole)
    solver = types.FunctionType(signature)
    loop = loops.follow_path
    loop.compile((solver, *kinds, whole))
    loop.disable_compile()
    [made] = loop.overloads.values()
    address = Address(newton.dispatcher, signature)
    return Entry(made.entry_point, _kinds(parts), loop, address)


@lru_cache(maxsize=1)
def _types() -> tuple[tuple[Any, ...], list[Any]]:
    """Arguments as `follow_path` takes them after the first, and their types."""
    import numba

    line = np.empty(1)
    square = line.reshape(1, 1)
    terms, work, along = Terms(square, *[line] * 6), Workspace.of_size(1, 1), Margins.of_size(1)
    found = PathOutput(square, np.empty((1, 1), np.int8), line, np.empty(1, np.int64), square)
    parts = (
        Data(terms, line, line, square, -1, 0.0), terms, work, along,
        np.zeros(1, RECORD)[0], PathOptions(line, OFF, 0.0, 1.0, 0.0), found,
    )
    return parts, [numba.typeof(part) for part in parts]


def run(arguments: tuple[Any, ...], k: int) -> int:
    """`follow_path` from point `k` on, compiled where that is on disk or due."""
    whole = on_disk(loops.follow_path) or LOOP.due
    if whole and not _interpreted():
        with LOADED:
            entry = _compiled_path()
        if _kinds(arguments) == entry.kinds:
            return int(entry.call(entry.newton, *arguments, k))
        return int(entry.checked(newton.dispatcher, *arguments, k))
    plain = getattr(loops.follow_path, "py_func", loops.follow_path)
    counted = LOOP.rent() if _interpreted() or newton.signatures else nullcontext()
    with counted, np.errstate(all="ignore"):  # as compiled code does
        return int(plain(newton, *arguments, k))
