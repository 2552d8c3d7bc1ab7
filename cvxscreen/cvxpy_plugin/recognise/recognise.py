"""The front of the recogniser: a ``cvxpy.Problem`` in, a `Recognition` or a refusal out.

The rules run one after the other on a `Draft`; what no rule touches stays: columns as core
coordinates, rows as side constraints. The result is exact, because every rule is a minimisation
over the columns that it removes.

It is compared with the user's problem all the same (`check`): at a few points the helpers are
restored, the values are put into the user's variables for a moment, and the user's own objective
and constraints are evaluated by CVXPY. With random slopes and multipliers, the gradient of the
Lagrangian of the whole canonical problem must be that of the recognised one on the core
coordinates. A recognition that fails is refused; it is never solved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen.core.cones import SideConstraints
from cvxscreen.core.losses import Losses
from cvxscreen.core.penalty import L1
from cvxscreen.core.problem import Problem, Quadratic, ZeroQuadratic
from cvxscreen.cvxpy_plugin.recognise.draft import Draft, substitute_defined, without_columns
from cvxscreen.cvxpy_plugin.recognise.elimination import (
    TALL,
    eliminate,
    find_split_variables,
    fold_split_variables,
    keep_squared_residuals,
    minimise_out,
    square_norms,
    substitute_bounds,
)
from cvxscreen.cvxpy_plugin.recognise.epigraph import (
    GroupTerms,
    InequalityTerms,
    OneAboveAtMost,
    chain_bounds,
    fold_epigraphs,
    join_opposite_hinges,
    take_groups,
    take_many_inequalities,
)
from cvxscreen.cvxpy_plugin.recognise.expressions import preserved_values
from cvxscreen.cvxpy_plugin.recognise.matrices import Stack, rows_of, square_block
from cvxscreen.cvxpy_plugin.recognise.max_affine import collect_maxima
from cvxscreen.cvxpy_plugin.recognise.recognition import (
    CostParts,
    Recognition,
    UnusedColumns,
    find_l1_norm,
)
from cvxscreen.cvxpy_plugin.recognise.standard import (
    FAMILIAR,
    Standard,
    canonicalise,
    standardise,
    written,
)
from cvxscreen.cvxpy_plugin.size import CANNOT_PAY
from cvxscreen.errors import InvalidInput, NotScreenable
from cvxscreen.solvers.cones import MANY_CONES

Array = NDArray[np.float64]
Index = NDArray[np.intp]

DENSE_LIMIT = 3000
"""A quadratic term that is not diagonal is taken up to this many coordinates."""


FEWEST = 2
"""Terms for every coordinate below which leaving terms out cannot pay; see `_check_worth`."""

MOST_TRIED = 100
"""Coordinates up to which less is asked: such a problem is small whatever becomes of it."""

HANDFUL = 4
"""Coordinates of a term of differences, first or second ones and in two dimensions."""


class NotStronglyConvex(NotScreenable):
    """Coordinates that the losses or constraints use are not squared: there is no ball to prove by.

    Nothing else stands in the way.
    """


class RefusedByRules(NotScreenable):
    """A problem whose canonical numbers were read, but are no regularised sum of losses.

    Attributes
    ----------
    standard : Standard
        The numbers, for whoever tries another form: reading them is most of the work.
    """

    standard: Standard


def recognise(problem: Any) -> Recognition:
    """Read a CVXPY problem as a regularised sum of losses.

    Parameters
    ----------
    problem : cvxpy.Problem
        Its variables' values are left as they are.

    Raises
    ------
    NotScreenable
        With the reason, naming the part that stands in the way; `RefusedByRules` where the
        problem's numbers could be read.
    """
    with np.errstate(invalid="ignore", over="ignore"):  # data with NaN or infinity are refused
        standard = standardise(canonicalise(problem))
    try:
        return recognise_numbers(standard)
    except NotScreenable as reason:
        refused = RefusedByRules(str(reason))
        refused.standard = standard
        raise refused from None


def recognise_numbers(standard: Standard) -> Recognition:
    """The same from the canonical numbers, checked.

    Raises
    ------
    NotScreenable
        With the reason.
    """
    recognition = recognise_standard(standard, strongly_convex=None)
    check(recognition)
    return recognition


def recognise_in_general(refusal: RefusedByRules) -> Recognition:
    """The refused problem with all that no rule takes as coordinates and side constraints.

    For a problem that is no strongly convex sum of losses beside a few convex terms either.

    Raises
    ------
    NotScreenable
        If there is no loss, or too few terms.
    """
    recognition = recognise_standard(refusal.standard, strongly_convex=False)
    check(recognition)
    return recognition


def recognise_standard(
    standard: Standard, *, composite: bool = False, strongly_convex: bool | None = True
) -> Recognition:
    """Apply all rules to `standard`.

    Parameters
    ----------
    composite : bool
        Whether maxima with different data are taken, as a part beside the losses.
    strongly_convex : bool or None
        Whether the objective has to square what the losses use. Without that whatever no rule
        takes is a coordinate or a side constraint, CVXPY's helpers among them. None: where it can.

    Raises
    ------
    NotScreenable
        If what is left is not a sum of losses; `NotStronglyConvex` where only squares are missing.
    """
    draft = Draft.of(standard, composite=composite, strongly_convex=strongly_convex)
    if not standard.cones:  # all losses were read off the objective, and nothing stands beside them
        take_groups(draft)
        return _finish(draft, 0.0)
    substitute_bounds(draft)
    keep_squared_residuals(draft)
    square_norms(draft)
    pairs = find_split_variables(draft)
    eliminate(draft, pairs.reserved(standard.rows.shape[0]))
    base = draft.constant - standard.constant
    take_groups(draft)
    chain_bounds(draft)
    fold_epigraphs(draft)
    fold_split_variables(draft, pairs)
    return _finish(draft, base)


def _finish(draft: Draft, base: float) -> Recognition:
    """Collect what the rules left; `base` is what they added to the constant before any loss."""
    standard = draft.standard
    m = standard.rows.shape[0]
    if not draft.composite:
        take_many_inequalities(draft)
    arguments, numbers = draft.terms.merged(m)
    if not (len(numbers) or draft.maxima or _many_cones(draft)):
        raise NotScreenable(_no_loss(draft))
    settled = substitute_defined(draft, arguments)
    linear, constant, loss_linear = draft.linear, draft.constant, np.zeros(standard.size)
    if draft.loss_slope.any():
        loss_slope = standard.rows.combine(
            substitute_defined(draft, sp.csr_array(draft.loss_slope[None, :]))
        )
        loss_linear = loss_slope.adjoint(np.ones(1))
        linear, constant = linear + loss_linear, constant + float(loss_slope.offset[0])
    side, dims, held = _side_rows(draft)
    numbers, absorbed = minimise_out(draft, settled, numbers, linear, held)
    if absorbed:
        side, dims, held = _side_rows(draft)
    rows = without_columns(standard.rows.combine(settled), draft.eliminated)
    numbers[:, 0] -= rows.offset
    expressions = [step.terms for step in draft.steps if isinstance(step, GroupTerms)]
    pairing, numbers = join_opposite_hinges(rows, numbers, expressions)
    if len(pairing.first) < pairing.found:
        rows = without_columns(standard.rows.combine(settled[pairing.first]), draft.eliminated)
    core = np.flatnonzero(~draft.eliminated)
    quadratic = square_block(draft.quadratic, core)
    maxima = collect_maxima(draft)
    touched = rows.touched()[core]
    if maxima is not None:
        touched |= np.bincount(maxima.rows.indices, minlength=standard.size)[core] > 0
    loose = np.diff(quadratic.indptr) == 0
    bound = held.touched()[core]
    l1_terms, alone = None, False
    if not (quadratic.nnz or dims or draft.composite or linear[core].any()) and maxima is None:
        alone = find_l1_norm(rows, numbers, core[touched], quadratic) is not None
    drop = ~touched if alone else _check_free(draft, core, touched, loose, bound, linear[core])
    if maxima is None and len(numbers):
        _check_data(rows, touched)
    kept, unused = core[~drop], core[drop]
    steps = list(draft.steps)
    if len(unused):
        steps.append(UnusedColumns(unused, sp.csr_array((len(unused), standard.size))))
    cones = 0 if len(numbers) else sum(kind == "soc" for kind, _ in dims)
    _check_worth(draft, rows, kept, alone, cones)
    square = square_block(draft.quadratic, kept)
    if alone or (square.nnz and not (dims or draft.composite)):
        l1_terms = find_l1_norm(rows, numbers, kept, square)
    if l1_terms is not None:
        numbers = numbers[l1_terms.rest]
        rows = rows.combine(sp.csr_array(sp.eye_array(rows.shape[0], format="csr"))[l1_terms.rest])
    try:
        design, order = rows.design(kept)
        core = kept[order]
        penalty, linear_slopes = None, np.zeros(len(core))
        if l1_terms is not None:
            l1_terms = l1_terms.reordered(order)
            penalty = l1_terms.penalty(len(core))
            linear_slopes = l1_terms.total(l1_terms.linear_slopes, len(core))
        frame = sp.csr_array(held.columns(core)) if dims else None
        problem = Problem(
            design=design,
            losses=Losses(numbers[:, 0], *map(number_or_all, numbers[:, 1:].T)),
            quadratic=ZeroQuadratic(np.zeros(len(core))) if alone else _quadratic(draft, core),
            linear=linear[core] + linear_slopes,
            constant=constant,
            penalty=penalty,
            side=SideConstraints(frame, held.offset, dims) if dims else None,
            kind="cvxpy",
        )
    except (InvalidInput, np.linalg.LinAlgError) as error:
        raise NotScreenable(str(error)) from None
    level = constant - standard.constant - base
    parts = CostParts(draft.linear[core], loss_linear[core] + linear_slopes, base, level)
    if maxima is not None:
        maxima = replace(maxima, rows=sp.csr_array(maxima.rows[:, core]))
    return Recognition(
        problem, standard, core, tuple(steps), side, pairing, parts, l1_terms, maxima
    )


def number_or_all(column: Array) -> Any:
    """One number where all are the same, which `Losses` then looks at once; else all of them."""
    return column[0] if len(column) and (column == column[0]).all() else column


def _many_cones(draft: Draft) -> bool:
    """Whether second-order cones are what may be left out of a problem without losses."""
    if draft.composite or draft.strongly_convex is not False:
        return False
    return has_many_second_order_cones(draft.standard)


def has_many_second_order_cones(standard: Standard) -> bool:
    """Whether the cone form has so many that it may be screened for them."""
    return sum(cone.kind == "soc" for cone in standard.cones) >= MANY_CONES


def _side_rows(draft: Draft) -> tuple[Any, tuple[tuple[str, int], ...], Stack]:
    """The rows that stay constraints: as combinations, their cones, and without defined columns."""
    if not draft.standard.cones:
        return draft.inequalities, (), draft.standard.rows.combine(draft.inequalities)
    zero = draft.current_rows[np.flatnonzero(draft.standard.inside("zero") & ~draft.used_rows)]
    parts, dims = (
        [zero, draft.inequalities],
        [("zero", zero.shape[0]), ("nonneg", draft.inequalities.shape[0])],
    )
    cones = [
        cone for cone in draft.standard.cones
        if cone.kind in ("soc", "psd") and not draft.used_rows[cone.rows.start]
    ]
    if cones:
        rows = np.concatenate([np.arange(c.rows.start, c.rows.stop) for c in cones])
        parts.append(draft.current_rows[rows])
        dims += [(cone.kind, cone.size) for cone in cones]
    stacked = sp.csr_array(sp.vstack(parts, format="csr"))
    held = without_columns(
        draft.standard.rows.combine(substitute_defined(draft, stacked)), draft.eliminated
    )
    return stacked, tuple(entry for entry in dims if entry[1]), held


def _quadratic(draft: Draft, core: Index) -> Quadratic:
    """The quadratic term of the coordinates `core`."""
    matrix = square_block(draft.quadratic, core)
    diagonal_part = matrix.diagonal()
    if not np.isfinite(diagonal_part).all():
        raise NotScreenable("the data hold NaN or infinity")
    if (diagonal_part < 0).any():
        worst = int(diagonal_part.argmin())
        weight = -0.5 * diagonal_part[worst]
        name = draft.standard.label(int(core[worst]))
        raise NotScreenable(
            f"the objective's square of an entry of {name} has a negative weight ({-weight:.3g}): "
            f"it is not convex there (add `+ {weight:.2g} * cp.sum_squares(...)` of that variable "
            "if this is rounding behind a `psd_wrap`)"
        )
    if not matrix.data[rows_of(matrix) != matrix.indices].any():
        return Quadratic(diagonal_part)
    if matrix.shape[0] > DENSE_LIMIT:
        raise NotScreenable(
            f"the quadratic term is not diagonal and has {matrix.shape[0]} coordinates; "
            f"the limit is {DENSE_LIMIT}"
        )
    return Quadratic(np.zeros(matrix.shape[0]), matrix.toarray())


def _check_free(
    draft: Draft, core: Index, touched: Any, loose: Any, bound: Any, linear: Array
) -> NDArray[np.bool_]:
    """The coordinates that nothing depends on; refuses too few penalised ones where that matters.

    Where it is open whether the objective has to be strongly convex, it is settled here.
    """
    if draft.strongly_convex is not False:
        try:
            apart = _check_strongly_convex(draft, core, touched, loose, bound, linear)
            draft.strongly_convex = True
            return apart
        except NotStronglyConvex:
            if draft.strongly_convex:
                raise
            draft.strongly_convex = False
    return np.asarray(loose & ~touched & ~bound & (linear == 0.0))


def _check_strongly_convex(
    draft: Draft, core: Index, touched: Any, loose: Any, bound: Any, linear: Array
) -> NDArray[np.bool_]:
    """Refuse coordinates of losses that no square holds; returns those that nothing depends on."""
    label = draft.standard.label
    if not (touched & ~loose).any():
        own = draft.standard.own()[core]
        names = draft.standard.labels(core[touched & own]) or ["what the losses use"]
        hint = f" ({draft.notes[0]})" if draft.notes else ""
        raise NotStronglyConvex(
            f"the objective has no squared norm of {', '.join(names)}: it is not strongly convex "
            "there (a norm that is not squared, or an L1 norm, does not count; "
            f"`+ 1e-6 * cp.sum_squares(...)` of it makes it so){hint}"
        )
    foreign = core[(touched | bound) & ~draft.standard.own()[core]]
    if len(foreign):
        # With a cost they are part of the objective, which may be better kept beside the losses.
        costly = (draft.linear[foreign] != 0.0) | (np.diff(draft.quadratic.indptr)[foreign] > 0)
        beside = costly.any() and not _quadratic(draft, core).singular
        kind = NotScreenable if beside else NotStronglyConvex
        raise kind(_stuck(draft, int(foreign[0])))
    unpenalised = core[touched & loose]
    if len(unpenalised) > int((touched & ~loose).sum()):
        raise NotStronglyConvex(
            f"the objective does not square {len(unpenalised)} coordinates that the losses use, "
            f"among them {label(int(unpenalised[0]))}: more than it squares"
        )
    apart = loose & ~touched
    held = core[apart & (bound | (linear != 0.0))]
    if len(held):
        raise NotStronglyConvex(_stuck(draft, int(held[0])))
    return np.asarray(apart)


def _check_worth(draft: Draft, rows: Stack, kept: Index, alone: bool, cones: int) -> None:
    """Refuse what cannot pay: terms that are about as few as the coordinates.

    A solution has as many terms at a kink as it has coordinates to fix, unless squares or an L1
    norm hold them: then that is so of terms in a handful of coordinates each (differences of
    neighbours), as every one of them is bent somewhere. Helpers of CVXPY that are many times the
    user's own coordinates are losses in a constraint, which are better read as a budget.
    """
    coordinates = len(kept)
    helpers = int(np.count_nonzero(~draft.standard.own()[kept]))
    if helpers > max(MOST_TRIED, HANDFUL * (coordinates - helpers)):
        raise NotScreenable(
            f"there are {coordinates - helpers} coordinates and {helpers} helpers of CVXPY's that "
            "no loss accounts for"
        )
    fewest = FEWEST if coordinates > MOST_TRIED else 0 if draft.strongly_convex else 1
    terms = rows.shape[0] + cones
    if alone or draft.composite or terms >= fewest * coordinates:
        return
    if draft.strongly_convex and rows.filled().sum() > HANDFUL * terms:
        return
    raise NotScreenable(
        f"there are {coordinates} coordinates and {terms} terms: with about as many of the "
        f"one as of the other nearly all terms decide the solution, and {CANNOT_PAY}"
    )


def _check_data(rows: Stack, touched: Any) -> None:
    """Refuse penalties on single coordinates alone: there is no loss over data."""
    if rows.shape[0] <= 2 * int(touched.sum()) and rows.filled().max(initial=0) <= 1:
        raise NotScreenable(
            "the objective has no loss over data, only penalties on single coordinates (squares "
            f"over data, as in least squares, are taken with {TALL} rows for each coordinate, or "
            "where an L1 norm holds every coordinate: no intercept and no constraint beside it)"
        )


def _stuck(draft: Draft, column: int) -> str:
    """Why a column is neither a helper nor penalised."""
    standard = draft.standard
    where = _binding(draft, column)
    name = standard.label(column, place=not where)
    note = f"; {draft.notes[0]}" if draft.notes else ""
    if not standard.own()[column]:
        atoms = {atom.__name__ for atom in standard.canonical.original.atoms()} - FAMILIAR
        source = f" (from {', '.join(sorted(atoms))})" if atoms else ""
        return f"{name}{source} is no loss of one argument{where}{note}"
    if draft.linear[column] > 0.0:
        return (
            f"{name} costs something but is no loss of its own: it is shared, or bounded from "
            f"above{where}{note}"
        )
    return (
        f"{name} is not squared in the objective and is tied by constraints{where} "
        f"(`+ 1e-6 * cp.sum_squares(...)` of it makes the problem screenable){note}"
    )


def _binding(draft: Draft, column: int) -> str:
    """The text of a constraint that stands in the way, for messages."""
    standard = draft.standard
    entries = sp.csc_array(standard.rows.sparse)[:, [column]].tocoo()
    rows = entries.row[entries.data < 0] if (entries.data < 0).any() else entries.row
    canonical = standard.canonical
    if canonical.original is None:
        return ""
    own = canonical.user_constraints()
    for row in rows:
        for cone in standard.cones:
            if cone.rows.start <= row < cone.rows.stop:
                found = own.get(cone.constraint)
                if found is not None:
                    return f" in the constraint {written(found)}"
    return ""


def _no_loss(draft: Draft) -> str:
    """Why no loss term was found."""
    if draft.notes:
        return f"no loss term was found: {draft.notes[0]}"
    plain = ~draft.eliminated & (draft.quadratic.diagonal() == 0) & draft.standard.own()
    for column in np.flatnonzero(plain & (draft.linear > 0.0)):
        where = _binding(draft, int(column))
        if where:
            name = draft.standard.label(int(column), place=False)
            return (
                f"no loss term was found: {name} is shared or bounded from above{where} (a slack "
                "variable is a loss where it has a cost, `xi >= 0` and one lower bound a term)"
            )
    rows = sp.csr_array(draft.inequalities @ draft.standard.rows.sparse)
    for k in np.flatnonzero(np.diff(rows.indptr) > 1):
        span = slice(rows.indptr[k], rows.indptr[k + 1])
        columns, data = rows.indices[span], rows.data[span]
        if (data < 0).all() and plain[columns].all():
            where = _binding(draft, int(columns[0]))
            name = draft.standard.label(int(columns[0]), place=not where)
            return f"no loss term was found: {name} has no cost but a shared budget{where}"
    return (
        "no loss term was found: the objective has no sum of hinge, absolute, pinball, "
        "epsilon-insensitive, Huber or squared-hinge terms (squares over data, as in least "
        f"squares, are taken with {TALL} rows for each coordinate, or beside an L1 norm of every "
        "coordinate)"
    )


# -- the check ------------------------------------------------------------------------------------


SEED = 20240229

FAR = 1e9
"""No helper is looked for beyond this."""

HALVINGS = 80
"""Of an interval of at most 2e9: its end is then exact up to rounding."""

MANY = 2000
"""From this many terms on one point is enough: at random margins that are twice as large as the
kinks a term is on each of three pieces with a probability above 0.3."""

AGREEMENT = 1e-9
"""Largest relative difference of the two objectives."""


def check_points(recognition: Recognition) -> Iterator[Array]:
    """Core points to compare at: zero, and random ones that reach all pieces of the losses.

    Of many terms (`MANY`) a single point: a wrong number anywhere shows at almost every point, and
    among so many terms all pieces occur.
    """
    problem = recognition.problem
    many = problem.n >= MANY
    if not many:
        yield np.zeros(problem.d)
    rng = np.random.default_rng(SEED)
    some = slice(None, None, max(problem.n // MANY, 1))
    sizes, knots = _sizes(problem), np.abs(problem.losses.b[some]) + problem.losses.e[some]
    if recognition.maxima is not None:
        sizes = np.append(sizes, recognition.maxima.sizes)
        knots = np.append(knots, np.abs(recognition.maxima.heights))
    if not len(sizes) and problem.side is not None:
        sizes, knots = np.abs(problem.side.matrix.data), np.abs(problem.side.offset)
    typical = float(np.median(sizes)) or 1.0
    reach = max(1.0, float(np.median(knots)))
    for scale in (2.0,) if many else (1.0, 5.0):
        x = rng.standard_normal(problem.d) * (scale * reach / typical)
        for step in recognition.steps:
            if isinstance(step, OneAboveAtMost):  # a loss only within these bounds
                x = step.within(recognition.core, x)
        yield x


def _sizes(problem: Problem) -> Array:
    """Norms of the rows, of some of them where there are many."""
    every = max(problem.n // MANY, 1)
    if every == 1:
        return problem.sizes
    some = problem.design.take_rows(np.arange(0, problem.n, every))
    return np.sqrt(some.weighted_squares(np.ones(problem.d)))


def last_check_point(recognition: Recognition) -> Array:
    """The last of the points that `check` compares at, shape (d,)."""
    return list(check_points(recognition))[-1]


def check(
    recognition: Recognition, *, at: Array | None = None,
    beyond: Callable[[Array], float] | None = None,
) -> None:
    """Compare the recognised problem with the user's.

    Parameters
    ----------
    at : array, shape (d,), optional
        A point to compare at instead, for a recognition that differs from a checked one by factors.
    beyond : callable, optional
        From all columns to what the recognised objective has beyond the user's (to be minimised).

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
    with preserved_values(own):
        chosen = check_points(recognition) if at is None else [at]
        points = [at_best_helpers(recognition, x) for x in chosen]
        for x in points:
            z = recognition.columns(x)
            truth = recognition.standard.value(z)
            if original is not None:
                split = recognition.standard.split(z)
                values = canonical.user_values(split)
                for variable in own:
                    variable.save_value(values[variable.id])
                for variable in helpers:
                    variable.save_value(split[variable.id].reshape(variable.shape))
                # A loop of many terms takes its time: it is evaluated as it is written once.
                fast = canonical.whole is not None and x is not points[-1]
                said = (canonical.whole if fast else original).objective.value
                truth = float("nan") if said is None else float(np.real(said))
                if beyond is not None:
                    truth += canonical.sign * beyond(z)
            _compare(recognition, x, z, truth)
            _compare_slacks(recognition, z)
    if recognition.standard.cones:  # what is restored are multipliers of rows in cones
        _compare_gradients(recognition, x, z)


def at_best_helpers(recognition: Recognition, x: Array) -> Array:
    """`x` with CVXPY's own helpers among the coordinates at their best values for the others.

    The user's objective is the minimum over them (the bound of a norm or of a maximum, the level
    of a sum of largest entries). They are put at the lowest point of the objective along their own
    axis, not below what a constraint asks for.
    """
    problem, standard = recognition.problem, recognition.standard
    helpers = np.flatnonzero(~standard.own()[recognition.core])
    if standard.canonical.original is None or not len(helpers):
        return x
    x = x.copy()
    columns = {int(j): problem.design.column(int(j)) for j in helpers}
    frame = None if problem.side is None else sp.csc_array(problem.side.matrix)
    for _ in range(2):  # a helper may bound another one
        for j, column in columns.items():
            margins = problem.design.forward(x) if column.any() else np.zeros(problem.n)
            away = _lowest_along(problem, x, j, column, margins)
            low = _least_step(problem, x, frame, j, column, margins)
            x[j] += max(away, low) if np.isfinite(away) else max(low, -x[j])
    return x


def _least_step(
    problem: Problem, x: Array, frame: Any, j: int, column: Array, margins: Array
) -> float:
    """The smallest step along coordinate j that satisfies what bounds it from below, or -inf."""
    found = [-np.inf]
    if problem.losses.any_hard:
        bounding = problem.losses.hard & np.isinf(problem.losses.hi) & (column < 0)
        over = margins[bounding] - problem.losses.b[bounding]
        found += [float(np.max(over / -column[bounding], initial=-np.inf))]
    if problem.side is not None:
        slack, own = problem.side.slack(x), frame[:, [j]].toarray().ravel()
        for kind, size, rows in problem.side.runs():
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


def _lowest_along(problem: Problem, x: Array, j: int, column: Array, margins: Array) -> float:
    """The step along coordinate j to the lowest objective; -inf where it only ever falls."""
    losses, quadratic = problem.losses, problem.quadratic
    first = float(quadratic.apply(x)[j] + problem.linear[j])
    unit = np.zeros(problem.d)
    unit[j] = 1.0
    curve = float(quadratic.apply(unit)[j])
    if not column.any():  # no loss sees it
        level = -(1.0 + abs(float(x[j]))) if first == 0 else -np.inf
        return -first / curve if curve > 0 else level

    at = np.flatnonzero(column)
    seen, entries, beside = losses.take(at), column[at], margins[at]

    def slopes(step: float) -> Array:
        return np.asarray(entries * seen.slope(beside + step * entries))

    def slope(step: float, of_losses: Array) -> float:
        return first + curve * step + float(of_losses.sum())

    ends = []
    for sign in (-1.0, 1.0):
        reach = sign * (1.0 + abs(float(x[j])))
        while slope(reach, found := slopes(reach)) * sign < 0 and abs(reach) < FAR:
            reach *= 2.0
        ends.append((reach, found))
    (low, below), (high, beyond) = ends
    if slope(low, below) > 0 or slope(high, beyond) < 0:
        return -np.inf
    for _ in range(HALVINGS):
        # Slopes only rise: those that are equal at both ends are constant in between.
        bent = below != beyond
        first += float(below[~bent].sum())
        seen, entries, beside = seen.take(np.flatnonzero(bent)), entries[bent], beside[bent]
        below, beyond = below[bent], beyond[bent]
        middle = 0.5 * (low + high)
        found = slopes(middle)
        if slope(middle, found) < 0:
            low, below = middle, found
        else:
            high, beyond = middle, found
    return high


def _compare(recognition: Recognition, x: Array, z: Array, truth: float) -> None:
    model = recognition.problem.primal(x)
    if recognition.maxima is not None:
        model += recognition.maxima.value(x)
    model *= recognition.standard.canonical.sign
    parts = abs(float(recognition.problem.linear @ x)) + abs(recognition.problem.constant)
    scale = 1.0 + abs(truth) + parts
    if not np.isfinite(model) and not np.isfinite(recognition.problem.design.forward(x)).all():
        raise NotScreenable("the data hold NaN or infinity")
    if not np.isfinite(truth):
        raise NotScreenable(
            f"the objective is {truth} at a test point: variables may be outside its domain"
        )
    if not abs(model - truth) <= AGREEMENT * scale:
        raise NotScreenable(
            f"the recognised objective does not agree with the problem's: {model:.6g} against "
            f"{truth:.6g} at a test point{_unfamiliar(recognition)}"
        )
    if not recognition.standard.cones:
        return
    values = recognition.standard.rows.values(z)
    left = _eliminated(recognition, values)
    if left > 1e-8 * (1.0 + float(np.abs(values).max(initial=0.0)) + float(np.abs(z).max())):
        raise NotScreenable(
            f"the recognised problem violates a constraint of the original by {left:.3g} at a "
            "test point"
        )


def _compare_slacks(recognition: Recognition, z: Array) -> None:
    """Every constraint of a slack variable is the bound, or the equality, that it was read as.

    The user's variables have the values of `z`. With a slack at its largest bound that also says
    that it is feasible, and no larger than it must be.
    """
    standard = recognition.standard
    values = standard.rows.values(z) if any(True for _ in standard.slacks()) else np.zeros(0)
    original = standard.canonical.original
    own = {} if original is None else {c.id: c for c in original.constraints}
    for group, slack, rows in standard.slacks():
        arguments = group.sign * values[rows]
        level, shape = slack.values(arguments), slack.variables[0].shape
        for constraint, ours in zip(slack.constraints, slack.excesses(arguments), strict=True):
            sides = own.get(constraint.id, constraint).args  # as the user wrote it
            lower, upper = (np.asarray(arg.value, dtype=np.float64) for arg in sides)
            said = np.broadcast_to(lower - upper, shape).flatten(order="F")
            size = 1.0 + float(np.abs(level).max()) + float(np.abs(ours).max())
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


def _compare_gradients(recognition: Recognition, x: Array, z: Array) -> None:
    """Both Lagrangians have the same gradient on the core, whatever the multipliers."""
    problem, losses = recognition.problem, recognition.problem.losses
    rng = np.random.default_rng(SEED + 1)
    low = np.where(np.isfinite(losses.lo), losses.lo, -1.0)
    high = np.where(np.isfinite(losses.hi), losses.hi, 1.0)
    theta = low + (high - low) * rng.random(problem.n)
    side = rng.standard_normal(recognition.side.shape[0])
    model = problem.quadratic.apply(x) + problem.linear + problem.design.adjoint(theta)
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
    scale = 1.0 + float(np.abs(model).max()) + float(np.abs(multipliers).max(initial=0.0))
    steepest = float(np.abs(theta).max(initial=0.0))
    scale += float(np.sqrt(problem.n) * _sizes(problem).max(initial=0.0) * steepest)
    if not float(np.abs(model - truth).max()) <= AGREEMENT * scale:
        raise NotScreenable("the multipliers of the recognised problem are not the original's")


def _eliminated(recognition: Recognition, values: Array) -> float:
    """Largest violation of the rows that are neither side constraints nor terms."""
    kept = np.zeros(len(values), dtype=bool)
    kept[recognition.side.indices] = True
    for step in recognition.steps:
        if isinstance(step, InequalityTerms):
            kept[step.weights.indices] = True
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
