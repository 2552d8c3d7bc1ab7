"""A recognised problem against the user's: the second line behind rules that are exact.

At a few points the helpers are restored, the values are put into the user's variables for a moment,
and the user's own objective and constraints are evaluated by CVXPY: those of many terms at a sample
of them. With random slopes and multipliers, the gradient of the Lagrangian of the whole canonical
problem must be that of the recognised one on the core coordinates. That the data are finite is
looked at in all rows.

*A sample.* An elementwise expression of 100,000 entries need not be evaluated whole to be compared
with what was read off it. CVXPY's own atoms are given the values of their arguments at some of the
entries; the others are 0 where a sum, a norm or a product takes all of them, so that they add
nothing. What every entry *is* does not rest on the sample. All entries of an expression are read by
the same few array operations, broadcast as CVXPY broadcasts them, and which operations these are
the tree of the expression says; no entry is read by a rule of its own. So a wrong operation is
wrong in nearly all entries, or where an entry's own numbers change what is done (a weight of 0, a
slope that vanishes). The entries at which one of these numbers is the least or the largest are in
the sample.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from cvxpy.atoms.elementwise.elementwise import Elementwise
from numpy.typing import NDArray

from cvxscreen._support.extensions import supplied
from cvxscreen._support.immutable import Immutable
from cvxscreen.core.cones import SideConstraints
from cvxscreen.core.losses import Losses, LossTerms, lowest_kink
from cvxscreen.core.penalty import L1
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.cvxpy_plugin.recognise.elimination import MinimisedOut
from cvxscreen.cvxpy_plugin.recognise.expressions import ENTRYWISE, preserved_values
from cvxscreen.cvxpy_plugin.recognise.loss_atoms import Level, LossGroup, Slack, SplitSlack
from cvxscreen.cvxpy_plugin.recognise.matrices import Stack
from cvxscreen.cvxpy_plugin.recognise.recognition import Recognition
from cvxscreen.cvxpy_plugin.recognise.standard import FAMILIAR, Standard, written
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import InvalidInput, NotScreenable
from cvxscreen.solvers.dual_form import distances

Array = NDArray[np.float64]
Index = NDArray[np.intp]

SEED, SAMPLE_SEED = 20240229, 20240301
"""Of the points and of the sample; any numbers will do, but every reading is compared alike."""

FAR = 1e9
"""No helper is looked for beyond this."""

FINE = 2.0**-80
"""Share of an interval of at most 2e9 to which its end is exact up to rounding."""

PARTS, BENDING = 16, 1000
"""What an interval is cut into at a time where at most so many slopes change within it, else two:
of few terms looking costs as much however many points are looked at."""

FEW = 200
"""Rows whose norms say how long rows are where there are `MANY`."""

AGREEMENT = 1e-9
"""Largest relative difference of the two objectives."""

BALANCED = 1e-7
"""What multipliers may leave of the gradient of an eliminated variable; slopes are divisions."""

SOLVED = 1e-6
"""The same where helpers in cones of matrices are put at their best values by a solver of cones,
which ends at 1e-8."""

MANY = 2000
"""Up to so many terms all of them are compared; see `check_points`."""

SAMPLE = 500
"""Entries that are drawn, beside those with extreme numbers. At random margins a term is on each of
three pieces with a probability above 0.3."""


def check_points(recognition: Recognition, some: Problem | None = None) -> Iterator[Array]:
    """Core points to compare at: zero, and random ones that reach all pieces of the losses.

    Of many terms (`MANY`) a single point: a wrong number anywhere shows at almost every point, and
    among so many terms, or a sample of them, all pieces occur: at random margins that are twice as
    large as the kinks a term is on each of three pieces with a probability above 0.3.

    Parameters
    ----------
    some : Problem, optional
        The recognised problem with some of its terms: they say how long rows are.
    """
    problem = recognition.problem
    norms = recognition.standard.canonical.norms
    many = problem.n + sum(len(part.costs) for part in norms) >= MANY
    if not many:
        yield np.zeros(problem.d)
    if some is None:
        some = problem if problem.n <= MANY else sampled(
            problem, np.arange(0, problem.n, problem.n // FEW)
        )
    rng = np.random.default_rng(SEED)
    sizes, knots = some.sizes, np.abs(some.losses.b) + some.losses.e
    if recognition.maxima is not None:
        sizes = np.append(sizes, recognition.maxima.sizes)
        knots = np.append(knots, np.abs(recognition.maxima.heights))
    if not len(sizes) and problem.side is not None:
        sizes, knots = np.abs(problem.side.matrix.data), np.abs(problem.side.offset)
    typical = _middle(sizes) or 1.0
    reach = max(1.0, _middle(knots))
    for scale in (2.0,) if many else (1.0, 5.0):
        x = rng.standard_normal(problem.d) * (scale * reach / typical)
        for step in recognition.steps:
            x = step.within(recognition.core, x)
        yield x


def _middle(values: Array) -> float:
    """The middle one of some numbers, in order."""
    middle = len(values) // 2
    return float(np.partition(values, middle)[middle]) if len(values) else 0.0


def last_check_point(recognition: Recognition) -> Array:
    """The last of the points that `check` compares at, shape (d,)."""
    return list(check_points(recognition))[-1]


class HeldBudgets(NamedTuple):
    """Rows over all columns that the user holds above 0 and the recognised objective falls by.

    Attributes
    ----------
    standard : Standard
        The user's problem.
    rows : Stack, shape (k, N)
        Times the multipliers.
    multipliers : array, shape (k,)
    read : tuple of int or None
        The constraints that losses were read off, by identifier: their rows are what was left.
    """

    standard: Standard
    rows: Stack
    multipliers: Array
    read: tuple[int | None, ...]

    def values(self, z: Array) -> Array:
        """The rows at the columns `z`, losses and all, shape (k,)."""
        out, standard = self.rows.values(z), self.standard
        if not standard.budgets:
            return out
        values = standard.rows.values(z)
        for group, rows in zip(standard.canonical.groups, standard.arguments, strict=True):
            if group.budget is not None:
                k = self.read.index(group.budget)
                out[k] -= self.multipliers[k] * group.value(values[rows])
        return out

    def written(self, z: Array) -> float:
        """The sum of the rows where the user's variables are at `z`, read ones as CVXPY has them.

        Raises
        ------
        NotScreenable
            If one is no constraint of the user's, or another one.
        """
        canonical = self.standard.canonical
        own = {c.id: c for c in canonical.original.constraints}
        own |= {part.id: part for one in canonical.replaced for part, _ in one.parts}
        total, values = 0.0, self.values(z)
        for k, key in enumerate(self.read):
            if key is None:
                total += float(values[k])
                continue
            if key not in own:
                raise NotScreenable("a budget of losses is no constraint of the user's")
            lower, upper = (float(np.squeeze(side.value)) for side in own[key].args)
            written = self.multipliers[k] * (upper - lower)
            size = 1.0 + abs(lower) + abs(upper) + abs(float(self.rows.offset[k]))
            if not abs(written - values[k]) <= AGREEMENT * size * self.multipliers[k]:
                raise NotScreenable("a constraint was not read as it is written")
            total += written
        return total


def check(
    recognition: Recognition, *, at: Array | None = None, budgets: HeldBudgets | None = None,
) -> None:
    """Compare the recognised problem with the user's.

    Parameters
    ----------
    at : array, shape (d,), optional
        A point to compare at instead, for a recognition that differs from a checked one by factors.
    budgets : HeldBudgets, optional
        What the user has in constraints, and the recognised objective.

    Raises
    ------
    NotScreenable
        If objective or eliminated constraints differ somewhere.
    """
    canonical = recognition.standard.canonical
    original = canonical.original
    own = [] if original is None else original.variables()
    read = [] if original is None or canonical.whole is None else canonical.whole.variables()
    helpers = [v for v in read if all(v is not variable for variable in own)]
    in_matrices = helpers_in_matrices(recognition)
    if len(in_matrices) and budgets is not None:
        raise NotScreenable("budgets stand beside helpers of CVXPY in cones of matrices")
    sample = Sample.of(recognition) if budgets is None else None
    part = recognition.problem if sample is None else sample.problem(recognition.problem)
    with preserved_values(own), np.errstate(invalid="ignore", over="ignore"):
        some = None if sample is None else part
        chosen = list(check_points(recognition, some)) if at is None else [at]
        if len(in_matrices):
            chosen = [_where_they_exist(recognition, chosen[-1], in_matrices)]
        points = [
            at_best_helpers(recognition, x, budgets, in_matrices)
            if sample is None or sample.level is None
            else _in_sample(sample.level, recognition, part, x, in_matrices) for x in chosen
        ]
        for x in points:
            z = recognition.columns(x)
            slacks = slack_entries(recognition, z, sample)
            truth = recognition.standard.value(z)
            if original is not None:
                split = recognition.standard.split(z, slacks=sample is None)
                values = canonical.user_values(split)
                for variable in own:
                    if variable.id in values:
                        variable.save_value(values[variable.id])
                for variable in helpers:
                    variable.save_value(split[variable.id].reshape(variable.shape))
                # A loop of many terms takes its time: it is evaluated as it is written once.
                fast = canonical.whole is not None and x is not points[-1]
                if sample is None:
                    said = (canonical.whole if fast else original).objective.value
                else:
                    said = objective_at(recognition, sample, slacks)
                truth = float("nan") if said is None else float(np.asarray(np.real(said)).item())
                if not recognition.as_long(z):
                    raise NotScreenable("a norm of residuals was not read as it is written")
                if not all(one.is_met(AGREEMENT) for one in canonical.epigraphs):
                    raise NotScreenable("the bound of a variable was not read as it is written")
                if at is None and not all(one.is_met(AGREEMENT) for one in canonical.defined):
                    raise NotScreenable("what a variable is was not read as it is written")
                if budgets is not None:
                    truth -= canonical.sign * budgets.written(z)
            if sample is not None and at is None and not _finite(recognition.problem.design, x):
                raise NotScreenable("the data hold NaN or infinity")
            _compare(recognition, x, truth, part, SOLVED if len(in_matrices) else AGREEMENT)
            if recognition.standard.cones:
                _compare_constraints(recognition, z)
            for found in slacks:
                _compare_slacks(recognition, found)
    standard = recognition.standard
    if standard.cones or standard.norms:  # what is restored are multipliers of rows in cones
        _compare_gradients(recognition, x, z, sample, part)
        if sample is None and budgets is None:
            _compare_eliminated(recognition, x, z)


def _in_sample(
    level: Level, recognition: Recognition, part: Problem, x: Array, in_matrices: Index
) -> Array:
    """`x` with its helpers at their best values, the level for the terms of `part` alone."""
    j = recognition.place(level.variable)
    x = at_best_helpers(recognition, x, in_matrices=in_matrices, aside=j).copy()
    x[j] = 0.0
    x[j] = level.among((part.losses.b - part.design.forward(x)) / part.design.column(j))
    return x


MANY_HELPERS = 100
"""From so many on those of absolute values of single coordinates are put there together (2,000, one
after the other: 3.5 s)."""


def at_best_helpers(
    recognition: Recognition, x: Array, budgets: HeldBudgets | None = None,
    in_matrices: Index | None = None, aside: int | None = None,
) -> Array:
    """`x` with CVXPY's own helpers among the coordinates at their best values for the others.

    The user's objective is the minimum over them (the bound of a norm or of a maximum, the level
    of a sum of largest entries). They are put at the lowest point of the objective along their own
    axis, not below what a constraint, or one of `budgets` (see `check`), asks for; `in_matrices`,
    `helpers_in_matrices` where these are known, all together. One may be left `aside`.
    """
    problem, standard = recognition.problem, recognition.standard
    helpers = recognition.helpers()
    if aside is not None:
        helpers = helpers[helpers != aside]
    if standard.canonical.original is None or not len(helpers):
        return x
    x = x.copy()
    if in_matrices is None:
        in_matrices = helpers_in_matrices(recognition)
    others = np.setdiff1d(helpers, _at_residual_norms(problem, x, helpers))
    others = np.setdiff1d(others, in_matrices)
    if len(others):
        others = np.setdiff1d(others, _at_norms(problem, x, others))
    if len(others) >= MANY_HELPERS:
        far = distances(problem)
        x[far.sizes] = far.least(x)
        others = np.setdiff1d(others, far.sizes)
    none, used = np.zeros(0), np.ones(problem.d, dtype=bool)
    if isinstance(problem.design, Rows):
        used[problem.design.stored:] = False
        if used[others].any():
            used = problem.design.used_columns()
    columns = {int(j): problem.design.column(int(j)) if used[j] else none for j in others}
    rises = [] if budgets is None else [
        budgets.rows.adjoint(row)[recognition.core] for row in np.eye(len(budgets.read))
    ]
    frame = None if problem.side is None else sp.csc_array(problem.side.matrix)
    for _ in range(min(len(columns), 2)):  # a helper may bound another one
        for j, column in columns.items():
            margins = problem.design.forward(x) if len(column) else none
            rise = np.array([row[j] for row in rises])
            # A level above budgets costs what the user pays; one within them what they pay.
            away = _lowest_along(problem, x, j, column, margins, float(rise[rise > 0].sum()))
            low = _least_step(problem, x, frame, j, column, margins)
            if budgets is not None and (rise > 0).any():
                levels = budgets.values(recognition.columns(x))
                low = max(low, float(np.max(-levels[rise > 0] / rise[rise > 0])))
                away = max(away, low)
            x[j] += max(away, low) if np.isfinite(max(away, low)) else -x[j]
    return _at_best_in_matrices(problem, x, in_matrices) if len(in_matrices) else x


def _at_norms(problem: Problem, x: Array, helpers: Index) -> Index:
    """Put the `helpers` that hold a norm of a block at that norm, in `x`.

    They cost something, or a budget bounds them; the blocks have none of them. Returns which these
    are.
    """
    if problem.side is None or not len(problem.side.norms):
        return np.zeros(0, dtype=np.intp)
    helper, norms = np.zeros(problem.d, dtype=bool), problem.side.norms
    helper[helpers] = True
    plain = helper & (problem.linear > 0.0)
    limited = norms.heads[norms.limited]
    plain[limited] = helper[limited] & (problem.linear[limited] >= 0.0)
    plain &= problem.column_sizes == 0.0
    form = problem.quadratic
    if not isinstance(form, Quadratic):
        return np.zeros(0, dtype=np.intp)
    plain &= form.untouched
    mixed = np.bincount(norms.owner, helper[norms.coordinates], len(norms)) > 0.0
    norms = norms.take(plain[norms.heads] & ~mixed)
    x[norms.heads] = norms.least(x)
    return norms.heads


def _at_residual_norms(problem: Problem, x: Array, helpers: Index) -> Index:
    """The same of `helpers` that many norms of residuals have for themselves."""
    side, form = problem.side, problem.quadratic
    if side is None or not side.many_cones or not isinstance(form, Quadratic):
        return np.zeros(0, dtype=np.intp)
    norms, helper = side.residual_norms, np.zeros(problem.d, dtype=bool)
    helper[helpers] = True
    plain = helper & (problem.linear > 0.0) & form.untouched & (problem.column_sizes == 0.0)
    rows, owner = norms.tails
    mixed = np.asarray(abs(side.matrix[rows]) @ helper.astype(np.float64)) > 0.0
    taken = plain[norms.heads] & ~(np.bincount(owner, mixed, len(norms.heads)) > 0.0)
    x[norms.heads[taken]] = 0.0
    slack = side.slack(x)[rows]
    length = np.sqrt(np.bincount(owner, slack * slack, len(norms.heads)))
    x[norms.heads[taken]] = (length / norms.scales)[taken]
    return norms.heads[taken]


def helpers_in_matrices(recognition: Recognition) -> Index:
    """CVXPY's own helpers in cones of matrices of the recognised problem, and those tied to them.

    They bound a nuclear norm, or a largest eigenvalue; none has its best value without the others.
    """
    side, helpers = recognition.problem.side, recognition.helpers()
    if side is None or not len(helpers) or not side.has("psd"):
        return np.zeros(0, dtype=np.intp)
    frame = sp.csr_array(side.matrix)[:, helpers]
    flags = np.zeros(len(helpers), dtype=bool)
    for kind, _, rows in side.runs:
        if kind == "psd":
            flags[frame[rows].indices] = True
    while flags.any():
        tied = flags | ((abs(frame).T @ (abs(frame) @ flags)) > 0)
        if (tied == flags).all():
            break
        flags = tied
    return np.asarray(helpers[flags])


def _where_they_exist(recognition: Recognition, x: Array, helpers: Index) -> Array:
    """The point nearest to `x` at which the `helpers` have values, as ``normNuc(W) <= t`` asks."""
    side = recognition.problem.side
    if side is None:
        return x
    rows, dims = _rows_with(side, helpers)
    own = SideConstraints(side.matrix[rows], side.offset[rows], dims)
    return _conic_minimum(np.ones(len(x)), -x, own)


def _at_best_in_matrices(problem: Problem, x: Array, helpers: Index) -> Array:
    """`x` with the `helpers` at their best values for all other coordinates."""
    side = problem.side
    if side is None or any(problem.design.column(int(j)).any() for j in helpers):
        raise NotScreenable("a loss has a helper of CVXPY's in a cone of matrices")
    x = x.copy()
    x[helpers] = 0.0
    rows, dims = _rows_with(side, helpers)
    own = SideConstraints(side.matrix[rows][:, helpers], side.slack(x)[rows], dims)
    x[helpers] = _conic_minimum(np.zeros(len(helpers)), problem.linear[helpers], own)
    return x


def _conic_minimum(diagonal: Array, linear: Array, side: SideConstraints) -> Array:
    """The least of ``1/2 <x, D x> + <q, x>`` under side constraints, by Clarabel.

    Raises
    ------
    NotScreenable
        If it finds none.
    """
    least = supplied("cvxpy.problem")(
        Problem(
            design=Rows(np.zeros((0, len(linear)))), losses=Losses(*np.zeros((5, 0))),
            quadratic=Quadratic(diagonal), linear=linear, side=side, kind="cvxpy",
        )
    )
    (point,) = least.variables()
    with suppress(cp.error.SolverError):
        least.solve(solver="CLARABEL")
    if point.value is None:
        raise NotScreenable("no point was found at which the objective can be compared")
    return np.asarray(point.value, dtype=np.float64)


def _rows_with(side: SideConstraints, some: Index) -> tuple[Index, tuple[tuple[str, int], ...]]:
    """The rows of the constraints that some coordinates are in, and their cones."""
    touches = np.diff(sp.csr_array(sp.csr_array(side.matrix)[:, some]).indptr) > 0
    taken, dims = [], []
    for kind, size, rows in side.blocks():
        at = np.arange(rows.start, rows.stop)
        if kind in ("zero", "nonneg"):
            at = at[touches[rows]]
            size = len(at)
        if len(at) and touches[rows].any():
            taken.append(at)
            dims.append((kind, size))
    return np.concatenate(taken), tuple(dims)


def _least_step(
    problem: Problem, x: Array, frame: Any, j: int, column: Array, margins: Array
) -> float:
    """The smallest step along coordinate j that satisfies what bounds it from below, or -inf.

    `column` and `margins` are empty where no loss has the coordinate.
    """
    found = [-np.inf]
    if len(column) and problem.losses.any_hard:
        bounding = problem.losses.hard & np.isinf(problem.losses.hi) & (column < 0)
        over = margins[bounding] - problem.losses.b[bounding]
        found += [float(np.max(over / -column[bounding], initial=-np.inf))]
    if problem.side is not None:
        slack, own = problem.side.slack(x), np.zeros(frame.shape[0])
        held = slice(frame.indptr[j], frame.indptr[j + 1])
        own[frame.indices[held]] = frame.data[held]
        for kind, size, rows in problem.side.runs:
            if kind == "nonneg":
                rising = own[rows] > 0
                needed = -slack[rows][rising] / own[rows][rising]
                found.append(float(np.max(needed, initial=-np.inf)))
            elif kind == "soc":
                found.append(_least_in_cones(slack[rows].reshape(-1, size),
                                             own[rows].reshape(-1, size)))
    return max(found)


def _least_in_cones(slack: Array, own: Array) -> float:
    """The smallest step that leads from the rows of `slack` into second-order cones, or -inf.

    Steps go along the rows of `own`: along the head, as of ``|x| <= t``, or along the boundary, as
    of ``|x|^2 <= t``; other cones are passed over.
    """
    head, tail, rise, turn = slack[:, 0], slack[:, 1:], own[:, 0], own[:, 1:]
    length = np.linalg.norm(turn, axis=1)
    straight = (rise > 0) & (length == 0)
    short = np.linalg.norm(tail[straight], axis=1) - head[straight]
    parabolic = (rise > 0) & (np.abs(length - rise) <= 1e-12 * rise)
    missing = np.sum(tail[parabolic] ** 2, axis=1) - head[parabolic] ** 2
    gain = rise[parabolic] * head[parabolic] - np.sum(turn[parabolic] * tail[parabolic], axis=1)
    needed = np.concatenate([short / rise[straight], 0.5 * missing / gain])
    return float(np.max(needed, initial=-np.inf))


def _lowest_along(
    problem: Problem, x: Array, j: int, column: Array, margins: Array, more: float
) -> float:
    """The step along coordinate j to the lowest objective; -inf where it only ever falls.

    `more` is what the objective rises by along it beside what the problem says.
    """
    losses, quadratic = problem.losses, problem.quadratic
    first = float(quadratic.apply(x)[j] + problem.linear[j]) + more
    unit = np.zeros(problem.d)
    unit[j] = 1.0
    curve = float(quadratic.apply(unit)[j])
    if not column.any():  # no loss sees it
        level = -(1.0 + abs(float(x[j]))) if first == 0 else -np.inf
        return -first / curve if curve > 0 else level

    at = np.flatnonzero(column)
    whole = len(at) == len(column)
    seen: LossTerms = losses if whole else losses.take(at)
    entries, beside = (column, margins) if whole else (column[at], margins[at])
    directly = lowest_kink(seen, entries, beside, first) if curve == 0.0 else None
    if directly is not None:
        return directly

    def slopes(step: float | Array) -> Array:
        return np.asarray(entries * seen.slope(beside + step * entries))

    def slope(step: Any, of_losses: Array) -> Any:
        return first + curve * step + of_losses.sum(axis=-1)

    ends = []
    for sign in (-1.0, 1.0):
        reach = sign * (1.0 + abs(float(x[j])))
        while slope(reach, found := slopes(reach)) * sign < 0 and abs(reach) < FAR:
            reach *= 2.0
        ends.append((reach, found))
    (low, below), (high, beyond) = ends
    if slope(low, below) > 0 or slope(high, beyond) < 0:
        return -np.inf
    least = FINE * (high - low)
    while high - low > least and low < 0.5 * (low + high) < high:
        # Slopes only rise: those that are equal at both ends are constant in between.
        bent = below != beyond
        first += float(below[~bent].sum())
        seen, entries, beside = seen.take(np.flatnonzero(bent)), entries[bent], beside[bent]
        below, beyond = below[bent], beyond[bent]
        parts = 2 if len(entries) > BENDING else PARTS
        steps = low + (high - low) * np.arange(1, parts) / parts
        found = slopes(steps[:, None])
        falling = int((slope(steps, found) < 0).sum())
        if falling > 0:
            low, below = float(steps[falling - 1]), found[falling - 1]
        if falling < len(steps):
            high, beyond = float(steps[falling]), found[falling]
    return high


def _finite(design: Any, x: Array) -> bool:
    """Whether data that the user has are finite in all rows; copies have been looked at."""
    return design.sparse or bool(np.isfinite(design.matrix @ x[: design.matrix.shape[1]]).all())


def _compare(
    recognition: Recognition, x: Array, truth: float, part: Problem, agreement: float
) -> None:
    """The recognised objective, or the `part` of it in the sample, is the user's."""
    whole, margins = recognition.problem, part.design.forward(x)
    model = part.primal(x, margins)
    if recognition.maxima is not None:
        model += recognition.maxima.value(x)
    model *= recognition.standard.canonical.sign
    parts = abs(float(whole.linear @ x)) + abs(part.constant)
    scale = 1.0 + abs(truth) + parts
    if not np.isfinite(model) and not np.isfinite(margins).all():
        raise NotScreenable("the data hold NaN or infinity")
    if not np.isfinite(truth):
        raise NotScreenable(
            f"the objective is {truth} at a test point: variables may be outside its domain"
        )
    if not abs(model - truth) <= agreement * scale:
        raise NotScreenable(
            f"the recognised objective does not agree with the problem's: {model:.6g} against "
            f"{truth:.6g} at a test point{_unfamiliar(recognition)}"
        )


def _compare_constraints(recognition: Recognition, z: Array) -> None:
    """The rows that were taken out hold."""
    constrained = recognition.standard.rows.part(0, recognition.standard.constrained)
    values = constrained.values(z)
    left = _eliminated(recognition, values)
    if left > 1e-8 * (1.0 + float(np.abs(values).max(initial=0.0)) + float(np.abs(z).max())):
        raise NotScreenable(
            f"the recognised problem violates a constraint of the original by {left:.3g} at a "
            "test point"
        )


def _compare_slacks(recognition: Recognition, found: SlackEntries) -> None:
    """Every constraint of a slack variable is the bound, or the equality, that it was read as.

    The user's other variables have their values. With a slack at its largest bound that also says
    that it is feasible, and no larger than it must be.
    """
    original, slack, index = recognition.standard.canonical.original, found.slack, found.index
    own = {} if original is None else {c.id: c for c in original.constraints}
    level = max(float(np.abs(part).max()) for part in found.values.values())
    excesses = slack.excesses(found.arguments, index)
    for constraint, ours in zip(slack.constraints, excesses, strict=True):
        sides = own.get(constraint.id, constraint).args  # as the user wrote it
        shape = constraint.shape
        lower, upper = (
            entries_at(arg, index if arg.shape == shape else np.zeros(1, dtype=np.intp),
                       found.values)
            for arg in sides
        )
        said = np.asarray(lower - upper, dtype=np.float64)
        size = 1.0 + level + float(np.abs(ours).max())
        if not float(np.abs(said - ours).max()) <= AGREEMENT * size:
            raise NotScreenable(
                f"the constraint {written(constraint)} is no bound of a slack variable"
            )


def _unfamiliar(recognition: Recognition) -> str:
    """The atoms that may be why, for a message."""
    original = recognition.standard.canonical.original
    atoms = () if original is None else {atom.__name__ for atom in original.atoms()} - FAMILIAR
    source = f" (from {', '.join(sorted(atoms))}, perhaps)" if atoms else ""
    return f"{source}; write losses and squared norms as summands of their own"


def _compare_gradients(
    recognition: Recognition, x: Array, z: Array, sample: Sample | None, part: Problem
) -> None:
    """Both Lagrangians have the same gradient on the core, whatever the multipliers."""
    problem, losses = recognition.problem, part.losses
    rng = np.random.default_rng(SEED + 1)
    low = np.where(np.isfinite(losses.lo), losses.lo, -1.0)
    high = np.where(np.isfinite(losses.hi), losses.hi, 1.0)
    slopes = low + (high - low) * rng.random(part.n)
    theta = slopes
    if sample is not None:
        theta = np.zeros(problem.n)  # 0 is a slope of every loss
        theta[sample.index] = slopes
    side = rng.standard_normal(recognition.side.shape[0])
    model = problem.quadratic.apply(x) + problem.linear + part.design.adjoint(slopes)
    if problem.side is not None:
        model = model - problem.side.adjoint(side)
    penalty_subgradient = None
    if isinstance(problem.penalty, L1):
        penalty_subgradient = problem.penalty.kappa * (2.0 * rng.random(problem.d) - 1.0)
        model = model + penalty_subgradient
    shares = None
    if recognition.maxima is not None:
        shares = recognition.maxima.shares(recognition.maxima.values(x), None)
        model = model + recognition.maxima.rows.T @ shares
    multipliers = recognition.multipliers(z, theta, side, penalty_subgradient, shares)
    truth = recognition.residual(z, multipliers)[recognition.core]
    scale = float(np.abs(model).max()) + _size_of_pulls(part, slopes, multipliers)
    if not float(np.abs(model - truth).max()) <= AGREEMENT * scale:
        raise NotScreenable("the multipliers of the recognised problem are not the original's")


def _size_of_pulls(problem: Problem, slopes: Array, multipliers: Array) -> float:
    """What a gradient with these slopes and multipliers is compared in units of."""
    steepest = float(np.abs(slopes).max(initial=0.0))
    longest = float(np.sqrt(problem.n) * problem.sizes.max(initial=0.0) * steepest)
    return 1.0 + float(np.abs(multipliers).max(initial=0.0)) + longest


def _compare_eliminated(recognition: Recognition, x: Array, z: Array) -> None:
    """What was eliminated is balanced by the multipliers that go with the slopes at `x`.

    So it is where it has its best value for the core; a variable whose part in a loss was
    overlooked is not. Where a loss has a kink at `x` any slope will do.
    """
    problem = recognition.problem
    slopes = problem.losses.slope(problem.design.forward(x))
    side, subgradient, shares = np.zeros(recognition.side.shape[0]), None, None
    if isinstance(problem.penalty, L1):
        subgradient = problem.penalty.kappa * np.sign(x)
    if recognition.maxima is not None:
        shares = recognition.maxima.shares(recognition.maxima.values(x), None)
    multipliers = recognition.multipliers(z, slopes, side, subgradient, shares)
    left = recognition.residual(z, multipliers)
    left[recognition.core] = 0.0
    scale = float(np.abs(recognition.standard.quadratic @ z).max(initial=0.0))
    scale += _size_of_pulls(problem, slopes, multipliers)
    if not float(np.abs(left).max()) <= BALANCED * scale:
        raise NotScreenable("a variable was eliminated with something of it overlooked")


def _eliminated(recognition: Recognition, values: Array) -> float:
    """Largest violation of the rows that are neither side constraints nor terms."""
    kept = np.zeros(recognition.side.shape[1], dtype=bool)
    kept[recognition.side.indices] = True
    for step in recognition.steps:
        kept[step.still_held()] = True
    worst = 0.0
    for cone in recognition.standard.cones:
        rows, free = values[cone.rows], ~kept[cone.rows]
        if cone.kind == "soc" and not free[0]:
            continue
        if cone.kind == "zero":
            worst = max(worst, float(np.abs(rows[free]).max(initial=0.0)))
        elif cone.kind == "nonneg":
            worst = max(worst, float((-rows[free]).max(initial=0.0)))
        elif cone.kind == "soc" and free.all():
            worst = max(worst, float(np.linalg.norm(rows[1:]) - rows[0]))
    return worst


class Sample(Immutable):
    """Entries of a loss at which a recognition is compared with the user's problem.

    Attributes
    ----------
    index : array of int, shape (k,)
        Positions in the loss's expression, and of the recognised terms; increasing.
    constant : float
        What the other entries add to the objective's constant.
    level : Level or None
        What the loss lies above; the other entries are then there, where they add nothing.
    """

    index: Index
    constant: float
    level: Level | None = None

    @classmethod
    def of(cls, recognition: Recognition) -> Sample | None:
        """A sample; None where all entries are to be compared.

        So it is where they are few, where they are not one expression of the user's own (loops are
        vectorised first) or the largest entries of one, where the recognised rows are not the very
        arrays that were read, so that one row may be another, and where each term has taken up a
        square of a variable that stands elsewhere in the objective, for every entry.
        """
        standard, problem = recognition.standard, recognition.problem
        canonical, groups = standard.canonical, standard.canonical.groups
        if canonical.original is None:
            return None
        if any(isinstance(step, MinimisedOut) for step in recognition.steps):
            return None
        levels = canonical.levels
        own = canonical.whole is None or len(levels) == 1
        one = len(groups) == 1 and len(groups[0].weight) == problem.n > MANY
        if not (own and one and canonical.shifted is None and _by_reference(recognition)):
            return None
        group, (rows,) = groups[0], standard.arguments
        drawn = np.random.default_rng(SAMPLE_SEED).integers(0, problem.n, SAMPLE)
        index = np.unique(np.concatenate([drawn, _extremes(group, standard.rows.offset[rows])]))
        constant = group.constant - group.constant_at(index)
        if levels and not _alone_in_losses(recognition, levels[0]):
            return None
        return cls(index, constant, levels[0] if levels else None)

    def problem(self, whole: Problem) -> Problem:
        """The recognised problem with these terms alone."""
        return sampled(whole, self.index, whole.constant - self.constant)


def _alone_in_losses(recognition: Recognition, level: Level) -> bool:
    """Whether the losses have no helper but a level: others stand in constraints alone."""
    design, place = recognition.problem.design, recognition.place(level.variable)
    others = np.setdiff1d(recognition.helpers(), place)
    return not len(others) or (isinstance(design, Rows) and bool((others >= design.stored).all()))


def sampled(problem: Problem, terms: Index, constant: float = 0.0) -> Problem:
    """`problem` with some of its terms alone, and another constant."""
    try:
        rows = problem.design.take_rows(terms)
    except InvalidInput:  # which a design that holds the user's data has not been asked before
        raise NotScreenable("the data hold NaN or infinity") from None
    return replace(problem, design=rows, losses=problem.losses.take(terms), constant=constant)


def _by_reference(recognition: Recognition) -> bool:
    """Whether the recognised rows hold the data that were read, not a copy or a part of them."""
    design, rows = recognition.problem.design, recognition.standard.rows
    if not isinstance(design, Rows):
        return False
    if design.sparse:
        return np.shares_memory(design.matrix.data, rows.sparse.data)
    return any(
        design.matrix is block.matrix and _equal(design.scale, block.factor)
        for block in rows.blocks
    )


def _equal(scale: Array | None, factor: Array | None) -> bool:
    """Whether factors of rows are the same, or both absent."""
    if scale is None or factor is None:
        return scale is factor
    return np.array_equal(scale, factor)


def _extremes(group: LossGroup, offset: Array) -> Index:
    """The entries of a group at which one of its numbers is the least or the largest."""
    columns = map(np.asarray, (group.weight, *group.numbers, group.level, offset))
    varied = [part for part in columns if part.ndim and any(part.strides)]
    found = [at for part in varied for at in (part.argmin(), part.argmax())]
    return np.array(found, dtype=np.intp)


class SlackEntries(Immutable):
    """A group of losses that are slack variables, with values in the sample.

    Attributes
    ----------
    slack : Slack or SplitSlack
    index : array of int, shape (k,)
        The entries.
    arguments : array, shape (k,)
        Of the losses there.
    values : dict of int to array, shape (k,)
        The slack variables there, by their identity as objects.
    """

    slack: Slack | SplitSlack
    index: Index
    arguments: Array
    values: Mapping[int, Array]


def slack_entries(recognition: Recognition, z: Array, sample: Sample | None) -> list[SlackEntries]:
    """The slack variables at the columns `z`: in the sample, or whole."""
    standard, out = recognition.standard, []
    for group, slack, rows in standard.slacks():
        index = np.arange(len(group.weight)) if sample is None else sample.index
        arguments = group.sign * standard.rows.values_at(rows.start + index, z)
        values = slack.values(arguments, index)
        own = {id(v): part for v, part in zip(slack.variables, values, strict=True)}
        out.append(SlackEntries(slack, index, arguments, own))
    return out


def objective_at(recognition: Recognition, sample: Sample, slacks: list[SlackEntries]) -> Any:
    """The user's objective in the sample, None where something has no value.

    All variables but the slacks have their values.
    """
    canonical = recognition.standard.canonical
    known: dict[int, Any] = {}
    summands: set[int] = set()
    for found in slacks:
        for variable in found.slack.variables:
            part = found.values[id(variable)]
            known[id(variable)] = _alone(part, found.index, variable)
            summands.add(id(variable))
    origin, level, others = canonical.groups[0].origin, sample.level, None
    if level is not None:
        origin = level.atom, level.atom.args[0]
        others = level.others(float(level.variable.value), len(sample.index))
    elif origin is not None:
        origin = tuple(reference() for reference in origin)
    if origin is not None:
        summand, source = origin
        summands.add(id(summand))
        known[id(source)] = _alone(entries_at(source, sample.index), sample.index, source, others)
    return _evaluated(canonical.original.objective.expr, summands, known)


def _alone(entries: Array, index: Index, expr: Any, others: Array | None = None) -> Array:
    """A value of the shape of `expr` that has `entries` at `index`, column-major, else zeros."""
    out = np.zeros(expr.size) if others is None else others
    out[index] = entries
    return out.reshape(expr.shape, order="F")


def _evaluated(expr: Any, summands: set[int], known: dict[int, Any], inside: bool = False) -> Any:
    """The value of `expr` where what is below some summands is known already."""
    inside = inside or id(expr) in summands
    if inside and id(expr) in known:
        return known[id(expr)]
    if not (inside or _holds(expr, summands)) or not expr.args or expr.is_constant():
        return expr.value
    values = [_evaluated(arg, summands, known, inside) for arg in expr.args]
    return None if any(value is None for value in values) else expr.numeric(values)


def _holds(expr: Any, summands: set[int]) -> bool:
    """Whether `expr` is one of the summands or is made of some."""
    return id(expr) in summands or any(_holds(arg, summands) for arg in expr.args)


def entries_at(expr: Any, index: Index, given: Mapping[int, Array] | None = None) -> Any:
    """The value of an expression at some of its entries: a vector, or a number for all of them.

    Parameters
    ----------
    expr : cvxpy.Expression
        Whose variables have values, but for those in `given`.
    index : array of int, shape (k,)
        Positions, column-major.
    given : mapping of int to array, shape (k,), optional
        Values of variables at these entries, by the variables' identity.
    """
    given = given or {}
    if id(expr) in given:
        return given[id(expr)]
    kind = type(expr).__name__
    if kind == "Promote":
        return entries_at(expr.args[0], np.zeros(1, dtype=np.intp), given)
    each = isinstance(expr, Elementwise) or kind in ENTRYWISE
    if each and all(arg.size == 1 or arg.shape == expr.shape for arg in expr.args):
        one = np.zeros(1, dtype=np.intp)
        return expr.numeric([
            entries_at(arg, index if arg.shape == expr.shape else one, given)
            for arg in expr.args
        ])
    if kind == "MulExpression" and expr.args[0].is_constant() and expr.args[0].ndim == 2:
        data, factor = expr.args[0].value, np.asarray(expr.args[1].value)
        if factor.ndim == 1:
            return np.asarray(data[index] @ factor).ravel()
        row, column = np.unravel_index(index, expr.shape, order="F")
        picked = data[row]
        if sp.issparse(picked):
            return np.asarray(picked.multiply(factor.T[column]).sum(axis=1)).ravel()
        return np.einsum("ij,ij->i", picked, factor.T[column])
    value = expr.value
    dense = np.asarray(value.toarray() if sp.issparse(value) else value, dtype=np.float64)
    return dense if dense.ndim == 0 else dense.ravel(order="F")[index]
