"""The front of the recogniser: a ``cvxpy.Problem`` in, a `Recognition` or a refusal out.

One loss over data beside squares, what most problems are, is read at once. In all others the
`rules` run one after the other on a `Draft`; what no rule touches stays: columns as core
coordinates, rows as side constraints. The result is exact, because every rule is a minimisation
over the columns that it removes.

It is compared with the user's problem all the same (`check`); a recognition that fails is refused
and never solved.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen.core.cones import MANY_CONES, SideConstraints
from cvxscreen.core.losses import Losses
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.cvxpy_plugin.recognise.budget_losses import (
    TERMS,
    have_too_few,
    may_have_losses,
)
from cvxscreen.cvxpy_plugin.recognise.check import check
from cvxscreen.cvxpy_plugin.recognise.draft import GRAM_LIMIT, GroupTerms, Pairing
from cvxscreen.cvxpy_plugin.recognise.matrices import Stack, square_block
from cvxscreen.cvxpy_plugin.recognise.recognition import CostParts, Recognition
from cvxscreen.cvxpy_plugin.recognise.standard import Standard, canonicalise, standardise
from cvxscreen.cvxpy_plugin.size import FEWEST, MANY_ROWS
from cvxscreen.errors import InvalidInput, NotScreenable
from cvxscreen.solvers.dual_form import LEAST
from cvxscreen.solvers.second_order import NORMS_PER_COORDINATE

Array = NDArray[np.float64]
Index = NDArray[np.intp]


class RefusedByRules(NotScreenable):
    """A problem whose canonical numbers were read, but are no regularised sum of losses.

    Attributes
    ----------
    standard : Standard
        The numbers, for whoever tries another form: reading them is most of the work.
    """

    standard: Standard


def recognise(problem: Any, *, budgets: bool = True) -> Recognition:
    """Read a CVXPY problem as a regularised sum of losses.

    Parameters
    ----------
    problem : cvxpy.Problem
        Its variables' values are left as they are.
    budgets : bool
        Whether one with many losses in constraints is refused with its numbers for `budgets`, which
        are no problem's without what that adds to them.

    Raises
    ------
    NotScreenable
        With the reason, naming the part that stands in the way; `RefusedByRules` where the
        problem's numbers could be read.
    """
    with np.errstate(invalid="ignore", over="ignore"):  # data with NaN or infinity are refused
        if budgets and (held := with_losses_in_budgets(problem)) is not None:
            refused = RefusedByRules("losses are in constraints")
            refused.standard = held
            raise refused
        standard = standardise(canonicalise(problem))
    try:
        return recognise_numbers(standard)
    except NotScreenable as reason:
        refused = RefusedByRules(str(reason))
        refused.standard = standard
        raise refused from None


def with_losses_in_budgets(problem: Any) -> Standard | None:
    """The numbers of a problem whose constraints bound sums of many losses; None of any other."""
    bounding = list(may_have_losses(problem))
    if not bounding or have_too_few(problem, bounding):
        return None
    try:
        canonical = canonicalise(problem, budgets=True)
        held = sum(len(g.weight) for g in canonical.groups if g.budget is not None)
        size = sum(variable.size for variable in canonical.variables)
        few = held < TERMS * size or canonical.norms or canonical.shifted is not None
        return None if few else standardise(canonical)
    except NotScreenable:
        return None


def recognise_numbers(standard: Standard) -> Recognition:
    """The same from the canonical numbers, checked.

    Raises
    ------
    NotScreenable
        With the reason.
    """
    if standard.norms:
        recognition = recognise_standard(standard, strongly_convex=False)
        check(recognition)
        return recognition
    if not standard.canonical.groups and standard.size >= LEAST:
        from cvxscreen.cvxpy_plugin.recognise.few_rows import with_few_rows

        found = with_few_rows(standard)
        if found is not None:
            check(found)
            return found
    if mostly_norms(standard):
        with suppress(NotScreenable):
            recognition = recognise_standard(standard, strongly_convex=False)
            check(recognition)
            return recognition
    recognition = recognise_standard(standard, strongly_convex=None)
    check(recognition)
    return recognition


def mostly_norms(standard: Standard) -> bool:
    """Whether nearly all columns are bounds of norms that the objective adds up, one of each."""
    heads = np.array([c.rows.start for c in standard.cones if c.kind == "soc"], dtype=np.intp)
    if len(heads) < MANY_CONES:
        return False
    sparse = standard.rows.sparse
    heads = heads[np.diff(sparse.indptr)[heads] == 1]
    bounds = np.unique(sparse.indices[sparse.indptr[heads]])
    count = int((standard.linear[bounds] > 0.0).sum())
    return count >= max(MANY_CONES, NORMS_PER_COORDINATE * (standard.size - count))


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
    if not (composite or strongly_convex is False):
        found = one_loss(standard, strongly_convex)
        if found is not None:
            return found
    from cvxscreen.cvxpy_plugin.recognise.rules import by_rules

    return by_rules(standard, composite=composite, strongly_convex=strongly_convex)


def one_loss(standard: Standard, strongly_convex: bool | None) -> Recognition | None:
    """One loss over data beside squares, where no rule has anything to do.

    What most problems are, a few linear constraints with them, without the steps in which the rules
    would find that out. None where one may apply, or something is to be refused.
    """
    canonical, first, d = standard.canonical, standard.constrained, standard.size
    arguments = standard.rows.part(first, standard.rows.shape[0])
    n = arguments.shape[0]
    if len(canonical.groups) != 1 or n <= FEWEST * d:
        return None
    group, matrix = canonical.groups[0], standard.quadratic
    squares = matrix.diagonal()
    squared = int(np.count_nonzero(squares > 0))
    diagonal = squared == matrix.nnz
    held = (diagonal and 2 * squared >= d) or strongly_convex is None
    plain = diagonal or (
        d <= GRAM_LIMIT and (squares >= 0).all() and np.isfinite(matrix.data).all()
    )
    # What the arguments of the user's losses touch is the user's, or a level of a sum of largest.
    touched = arguments.touched().all()
    if not (plain and held and touched and (group.weight > 0).all()):
        return None
    if standard.cones and not _few_linear(standard):
        return None
    every = np.arange(n)
    b, *others = group.weighed(every)
    b = b - arguments.offset
    if arguments.sparse.nnz and not _beyond_rules(arguments, b, standard.starts):
        return None
    rows = [np.flatnonzero(standard.inside(kind)) for kind in ("zero", "nonneg")]
    order = np.concatenate(rows)
    k = len(order)
    try:
        design, core = arguments.design(np.arange(d))
        quadratic = Quadratic(squares[core]) if diagonal else Quadratic(
            np.zeros(d), square_block(matrix, core).toarray()
        )
        side = None
        if k:
            pick = sp.csr_array((np.ones(k), order, np.arange(k + 1)), shape=(k, first))
            kept = standard.rows.part(0, first).combine(pick)
            dims = [(kind, len(r)) for kind, r in zip(("zero", "nonneg"), rows, strict=True)]
            side = SideConstraints(
                sp.csr_array(kept.columns(core)), kept.offset, tuple(dim for dim in dims if dim[1])
            )
        problem = Problem(
            design=design, losses=Losses(b, *others), quadratic=quadratic,
            linear=standard.linear[core], constant=standard.constant + group.constant,
            side=side, kind="cvxpy",
        )
    except (InvalidInput, np.linalg.LinAlgError) as error:
        raise NotScreenable(str(error)) from None
    nothing = np.zeros(0, dtype=np.intp), sp.csr_array((0, d))
    return Recognition(
        problem,
        standard,
        core,
        (GroupTerms(*nothing, 0, every, first + every if first else every, every),),
        sp.csr_array((np.ones(k), order, np.arange(k + 1)), shape=(k, first + n)),
        Pairing(every, np.full(n, -1, dtype=np.intp), n),
        CostParts(standard.linear[core], np.zeros(d), 0.0, group.constant),
    )


def _few_linear(standard: Standard) -> bool:
    """Whether all cones are a few linear constraints of columns that are data to every rule."""
    linear = all(cone.kind in ("zero", "nonneg") for cone in standard.cones)
    few = int(standard.inside("nonneg").sum()) <= MANY_ROWS * standard.size
    return linear and few and bool(standard.rows.dense_columns().all())


def _beyond_rules(arguments: Stack, b: Array, starts: Index) -> bool:
    """Whether sparse rows hold no term that is an L1 norm's, and no variable to minimise out.

    The former is an absolute value of one coordinate, the latter has each column in one row only.
    """
    sparse = arguments.sparse
    single = (np.diff(sparse.indptr) == 1) & ~arguments.dense_rows()
    once = np.bincount(sparse.indices, minlength=arguments.shape[1]) == 1
    alone = np.logical_and.reduceat(once & ~arguments.dense_columns(), starts[:-1])
    return not ((b[single] == 0).any() or alone.any())
