"""All rules in their order, on a problem that has more to it than one loss.

`by_rules` runs them on a `draft`, collects what they leave, and says of what is no sum of losses
which part stands in the way.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen.core.cones import MANY_CONES, SideConstraints, height
from cvxscreen.core.losses import Losses
from cvxscreen.core.problem import Problem, Quadratic, ZeroQuadratic
from cvxscreen.cvxpy_plugin.recognise.draft import (
    Draft,
    GroupTerms,
    UnusedColumns,
    substitute_defined,
    without_columns,
)
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
    chain_bounds,
    fold_epigraphs,
    join_opposite_hinges,
    take_groups,
    take_many_inequalities,
)
from cvxscreen.cvxpy_plugin.recognise.loss_atoms import number_or_all
from cvxscreen.cvxpy_plugin.recognise.matrices import Stack, rows_of, square_block
from cvxscreen.cvxpy_plugin.recognise.max_affine import collect_maxima
from cvxscreen.cvxpy_plugin.recognise.recognition import (
    CostParts,
    Recognition,
    find_l1_norm,
)
from cvxscreen.cvxpy_plugin.recognise.short_cones import (
    ShortCone,
    shorten_cones,
    with_short_cones,
)
from cvxscreen.cvxpy_plugin.recognise.standard import (
    FAMILIAR,
    Cone,
    Standard,
    written,
)
from cvxscreen.cvxpy_plugin.size import CANNOT_PAY, FEWEST, MOST_TRIED
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import InvalidInput, NotScreenable
from cvxscreen.solvers.loop import bounds_as_terms, held_at_zero
from cvxscreen.solvers.registry import has_norms
from cvxscreen.solvers.second_order import NORMS_PER_COORDINATE

Array = NDArray[np.float64]
Index = NDArray[np.intp]

DENSE_LIMIT = 3000
"""A quadratic term that is not diagonal is taken up to this many coordinates."""

MOST_BESIDE, MATRIX = 600, 30
"""The same of helpers in cones of matrices, and the largest of these: each helper is a coordinate
of all reduced problems (a nuclear norm of 15 x 15: 240 helpers, and a matrix of 30 rows)."""

MOST_HELD = 25_000
"""Coordinates up to which terms of their own, or norms, may hold them: as many as were tried
(absolute losses with an L1 norm, 100 x 20,000, 0.2 s to read and 0.6 to solve; squares with norms
of blocks, 1,000 x 20,000 and 4,000 heads, 8.6 s in all)."""

HANDFUL = 4
"""Coordinates of a term of differences, first or second ones and in two dimensions."""


class NotStronglyConvex(NotScreenable):
    """Coordinates that the losses or constraints use are not squared: there is no ball to prove by.

    Nothing else stands in the way.
    """


def by_rules(
    standard: Standard, *, composite: bool, strongly_convex: bool | None
) -> Recognition:
    """See `recognise.recognise_standard`."""
    largest = max((cone.size for cone in cones_of_helpers(standard)), default=0)
    if largest and strongly_convex is not False:
        raise NotScreenable("what CVXPY writes with a cone of matrices is no loss")
    if largest > MATRIX:
        raise NotScreenable(f"a term needs a matrix of {largest} rows: more than {MATRIX}")
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
    short = shorten_cones(draft)
    shortened = bool(short or standard.canonical.shortened)
    if not (len(numbers) or draft.maxima or _cones_alone(draft, shortened)):
        raise NotScreenable(_no_loss(draft))
    settled = substitute_defined(draft, arguments)
    linear, constant, loss_linear = draft.linear, draft.constant, np.zeros(standard.size)
    if draft.loss_slope.any():
        loss_slope = standard.rows.combine(
            substitute_defined(draft, sp.csr_array(draft.loss_slope[None, :]))
        )
        loss_linear = loss_slope.adjoint(np.ones(1))
        linear, constant = linear + loss_linear, constant + float(loss_slope.offset[0])
    side, dims, held = side_rows(draft, short)
    numbers, absorbed = minimise_out(draft, settled, numbers, linear, held)
    if absorbed:
        side, dims, held = side_rows(draft, short)
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
    beside = maxima is None and len(numbers) and not shortened
    single = beside and _single_coordinates(rows, touched)
    kept, unused = core[~drop], core[drop]
    # Bounds of norms of residuals, which the interior point method eliminates.
    norms = _norms_of_residuals(draft, held, dims, kept)
    if norms is None:
        _check_helpers(draft, kept)
    steps = list(draft.steps)
    if len(unused):
        steps.append(UnusedColumns(unused, sp.csr_array((len(unused), standard.size))))
    cones = 0 if len(numbers) else sum(kind == "soc" for kind, _ in dims)
    found, square = rows, square_block(draft.quadratic, kept)
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
    # A norm of residuals beside, or a bound of it, is a loss over data; equations alone are none.
    if norms is not None:
        if not has_norms(problem):
            raise NotScreenable(norms)
        single = False
    if single and not (held_at_zero(problem) and any(kind == "soc" for kind, _ in dims)):
        raise NotScreenable(
            "the objective has no loss over data, only penalties on single coordinates (squares "
            f"over data, as in least squares, are taken with {TALL} rows for each coordinate, or "
            "where an L1 norm or bounds hold every coordinate: two for each row)"
        )
    if norms is None and not (shortened and problem.n <= len(kept)):
        _check_worth(draft, problem, kept, found, cones, alone)
    level = constant - standard.constant - base
    parts = CostParts(draft.linear[core], loss_linear[core] + linear_slopes, base, level)
    if maxima is not None:
        maxima = replace(maxima, rows=sp.csr_array(maxima.rows[:, core]))
    return Recognition(
        problem, standard, core, tuple(steps), side, pairing, parts, l1_terms, maxima, short
    )


def _cones_alone(draft: Draft, shortened: bool) -> bool:
    """Whether a problem without losses is taken for its second-order cones."""
    if draft.composite or draft.strongly_convex is not False:
        return False
    return shortened or has_many_second_order_cones(draft.standard)


def has_many_second_order_cones(standard: Standard) -> bool:
    """Whether the cone form has so many that it may be screened for them."""
    if standard.norms:
        return True
    return sum(cone.kind == "soc" for cone in standard.cones) >= MANY_CONES


def cones_of_helpers(standard: Standard) -> list[Cone]:
    """Cones of matrices with helpers of CVXPY's, a nuclear norm's say: of terms that are no losses.

    Beside squares such terms are better left word for word (`cvxscreen.cvxpy_plugin.composite`).
    """
    matrices = [cone for cone in standard.cones if cone.kind == "psd"]
    if not matrices:
        return []
    sparse = standard.rows.sparse
    helpers = np.zeros(standard.rows.shape[0], dtype=bool)
    helpers[rows_of(sparse)[~standard.own()[sparse.indices]]] = True
    return [cone for cone in matrices if helpers[cone.rows].any()]


def side_rows(
    draft: Draft, short: tuple[ShortCone, ...]
) -> tuple[Any, tuple[tuple[str, int], ...], Stack]:
    """The rows that stay constraints: as combinations, their cones, and without defined columns."""
    if not (draft.standard.cones or draft.standard.norms):
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
        shorter = {one.head for one in short}
        long = [cone for cone in cones if cone.rows.start not in shorter]
        rows = [np.arange(c.rows.start, c.rows.stop) for c in long]
        rows += [np.array([one.head]) for one in short]
        parts.append(draft.current_rows[np.concatenate(rows)])
        dims += [(cone.kind, cone.size) for cone in long]
    parts += [draft.current_rows[span] for span in draft.standard.norms]
    dims += draft.standard.dims_of_norms
    stacked = sp.csr_array(sp.vstack(parts, format="csr"))
    held = without_columns(
        draft.standard.rows.combine(substitute_defined(draft, stacked)), draft.eliminated
    )
    if short:
        stacked, held = with_short_cones(stacked, held, short)
        dims += [("soc", one.rows.shape[0] + 1) for one in short]
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


NOT_TAKEN = (
    "the norms in the objective are not taken: there are other cones, or their data are sparse"
)


def _norms_of_residuals(
    draft: Draft, held: Stack, dims: tuple[tuple[str, int], ...], kept: Index
) -> str | None:
    """What is to be said where many norms in the objective are not taken after all.

    None where there are no such norms.
    """
    if draft.strongly_convex is not False or not has_many_second_order_cones(draft.standard):
        return None
    if draft.standard.norms:
        return NOT_TAKEN
    heights = np.array([height(*entry) for entry in dims], dtype=np.intp)
    heads = (np.cumsum(heights) - heights)[[kind == "soc" for kind, _ in dims]]
    single = heads[held.filled()[heads] == 1]
    columns = np.unique(sp.csr_array(held.columns(kept))[single].indices)
    count = int((draft.linear[kept][columns] > 0.0).sum())
    coordinates = len(kept) - count
    if count < MANY_CONES or count < NORMS_PER_COORDINATE * coordinates:
        return None
    return (
        f"there are {coordinates} coordinates and {count} norms in the objective, which are not "
        "taken: something else depends on them, there are other cones, or their data are sparse"
    )


def _check_helpers(draft: Draft, kept: Index) -> None:
    """Refuse helpers of CVXPY that are many times the user's own coordinates.

    They are losses in a constraint, which are better read as a budget.
    """
    helpers = int(np.count_nonzero(~draft.standard.own()[kept]))
    coordinates = len(kept) - helpers
    most = MOST_BESIDE if cones_of_helpers(draft.standard) else MOST_TRIED
    if helpers > max(most, HANDFUL * coordinates):
        raise NotScreenable(
            f"there are {coordinates} coordinates and {helpers} helpers of CVXPY's that no loss "
            "accounts for"
        )


def _check_worth(
    draft: Draft, problem: Problem, kept: Index, rows: Stack, cones: int, alone: bool
) -> None:
    """Refuse what cannot pay: terms that are about as few as the coordinates.

    A solution has as many terms at a kink as it has coordinates to fix, unless squares or an L1
    norm hold them: then that is so of terms in a handful of coordinates each (differences of
    neighbours), as every one of them is bent somewhere. Nor is it so where columns can go, held at
    0 by bounds or an L1 norm. `rows` are those of all terms but `cones`.
    """
    coordinates, terms = len(kept), rows.shape[0] + cones
    fewest = FEWEST if coordinates > MOST_TRIED else 0 if draft.strongly_convex else 1
    if alone or draft.composite or terms >= fewest * coordinates:
        return
    if draft.strongly_convex and int(rows.filled().sum()) > HANDFUL * terms:
        return
    if problem.without_curvature and _held_one_by_one(problem):
        return
    if problem.d <= MOST_HELD and (held_at_zero(problem) or bounds_as_terms(problem) is not None):
        return
    raise NotScreenable(
        f"there are {coordinates} coordinates and {terms} terms: with about as many of the "
        f"one as of the other nearly all terms decide the solution, and {CANNOT_PAY}"
    )


def _held_one_by_one(problem: Problem) -> bool:
    """Whether terms of their own, as of an L1 norm, hold at least half of the coordinates.

    Columns are left out then, or the built-in interior point method takes as many as there are: of
    its steps' systems these terms are a diagonal.
    """
    design = problem.design
    if problem.side is not None or problem.d > MOST_HELD or not isinstance(design, Rows):
        return False
    return 2 * len(np.unique(design.single[1])) >= problem.d


def _single_coordinates(rows: Stack, touched: Any) -> bool:
    """Whether all terms are penalties on single coordinates: there is no loss over data."""
    return rows.shape[0] <= 2 * int(touched.sum()) and rows.filled().max(initial=0) <= 1


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
    ends = np.array([cone.rows.stop for cone in standard.cones], dtype=np.int64)
    places = np.searchsorted(ends, rows, side="right")
    for place in np.unique(places[places < len(ends)]):
        found = own.get(standard.cones[place].constraint)
        if found is not None:
            return f" in the constraint {written(found)}"
    return ""


_ASKED = 20
"""Columns of which it is asked whether they explain a refusal: each goes through all rows."""


def _no_loss(draft: Draft) -> str:
    """Why no loss term was found."""
    if draft.notes:
        return f"no loss term was found: {draft.notes[0]}"
    plain = ~draft.eliminated & (draft.quadratic.diagonal() == 0) & draft.standard.own()
    for column in np.flatnonzero(plain & (draft.linear > 0.0))[:_ASKED]:
        where = _binding(draft, int(column))
        if where:
            name = draft.standard.label(int(column), place=False)
            return (
                f"no loss term was found: {name} is shared or bounded from above{where} (a slack "
                "variable is a loss where it has a cost, `xi >= 0` and one lower bound a term)"
            )
    rows = sp.csr_array(draft.inequalities @ draft.standard.rows.sparse)
    other = (rows.data >= 0) | ~plain[rows.indices]
    others = np.bincount(rows_of(rows)[other], minlength=rows.shape[0])
    for k in np.flatnonzero((np.diff(rows.indptr) > 1) & (others == 0)):
        column = int(rows.indices[rows.indptr[k]])
        where = _binding(draft, column)
        name = draft.standard.label(column, place=not where)
        return f"no loss term was found: {name} has no cost but a shared budget{where}"
    return (
        "no loss term was found: the objective has no sum of hinge, absolute, pinball, "
        "epsilon-insensitive, Huber or squared-hinge terms (squares over data, as in least "
        f"squares, are taken with {TALL} rows for each coordinate, or beside an L1 norm of every "
        "coordinate)"
    )
