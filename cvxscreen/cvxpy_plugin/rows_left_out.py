"""``cvxscreen.leave_one_out(prob)``: the data rows of a CVXPY problem left out, one by one.

The problem is recognised, and the terms of the recognised problem are left out as those of any
other; what is done here is to say which row of the data each term is. That is the entry of the loss
that it was read off, or the row of the constraint in which its slack stands. Where that cannot be
said of every term (several losses, parts of a row elsewhere in the objective) the problem is
refused: a number for something else than the user's row is worse than none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from cvxscreen._support.immutable import Immutable
from cvxscreen._support.validation import tolerance
from cvxscreen.bounds.regions.margins import outward
from cvxscreen.core.losses import LossTerms
from cvxscreen.cvxpy_plugin.plugin import recognise_any, run
from cvxscreen.cvxpy_plugin.recognise.draft import GroupTerms
from cvxscreen.cvxpy_plugin.recognise.epigraph import (
    PiecewiseLinear,
    PiecewiseQuadratic,
)
from cvxscreen.cvxpy_plugin.recognise.recognition import Recognition
from cvxscreen.cvxpy_plugin.recognise.standard import Standard
from cvxscreen.cvxpy_plugin.request import Request, require_cvxpy_problem
from cvxscreen.cvxpy_plugin.solution_cache import cached_recognition
from cvxscreen.data_changes.leave_one_out import LeaveOneOut, group_numbers, terms_left_out
from cvxscreen.data_changes.reweight import accepted
from cvxscreen.errors import InvalidInput, NotScreenable

Array = NDArray[np.float64]
Index = NDArray[np.intp]

ONE_LOSS = (
    "leave_one_out needs one loss over the rows of the data, such as "
    "cp.sum(cp.multiply(weights, cp.pos(1 - margins)))"
)

FINE = 1e-8
"""Relative gap of the solution that is left from, at most: as the refits that are made in blocks,
since the length of every interval goes with its root."""


def rows_left_out(
    problem: Any,
    *,
    refit: bool = True,
    accuracy: float | None = None,
    tol: float = 1e-6,
    mode: str = "certified",
    n_jobs: int = 1,
    progress: bool = False,
    time_limit: float | None = None,
    groups: ArrayLike | None = None,
) -> LeaveOneOut:
    """Where every data row's own margin or residual is when its loss is left out of `problem`.

    Parameters
    ----------
    problem : cvxpy.Problem
        Solved, by whatever solver; the values of its variables stay as they are.
    refit, accuracy, tol, mode, n_jobs, progress, time_limit, groups
        See `cvxscreen.leave_one_out`.

    Returns
    -------
    LeaveOneOut
        In the order of the loss's entries, or of the rows of the constraint with the slacks; its
        `solution` is that of the recognised problem, in the order of that one's terms.

    Raises
    ------
    InvalidInput
        If `problem` has not been solved, or has no optimum.
    NotScreenable
        If `problem` is not recognised, or it cannot be said which row a term is.
    """
    require_cvxpy_problem(problem)
    tolerance(tol)
    missing = [v.name() for v in problem.variables() if v.value is None]
    if problem.status is None or missing:
        raise InvalidInput(
            f"`problem` has no solution yet (its status is {problem.status}): solve it first, with "
            "prob.solve(method='screen') or any solver."
        )
    recognition = _recognised(problem)
    quadratic = recognition.problem.quadratic
    if quadratic.matrix is None and not quadratic.diagonal.any():
        raise NotScreenable(
            "the objective has no squares of the coordinates, so nothing bounds what changes "
            "without a row (`+ 1e-3 * cp.sum_squares(...)` of them gives intervals)"
        )
    rows = loss_rows(recognition)
    losses = recognition.problem.losses
    hinges = _hinges(losses)
    found, _ = run(recognition, Request(tol=min(tol, FINE), always=True))
    if found.answer is None:
        raise InvalidInput(f"`problem` has no optimum (solving it ends with {found.status!r}).")
    accepted(found)
    labels = None
    if groups is not None:
        labels = np.empty(len(rows.term), dtype=np.intp)
        labels[rows.term] = group_numbers(groups, len(rows.term))
    out = terms_left_out(
        found, hinges, _margin_of_zero(losses) if hinges else None,
        refit=refit, accuracy=accuracy, tol=tol, mode=mode, n_jobs=n_jobs, progress=progress,
        time_limit=time_limit, labels=labels,
    )
    low, high, value = out.low, out.high, out.value
    if not hinges:  # the loss's own argument is minus what a target leaves of a prediction
        as_written = rows.sign < 0
        low, high = np.where(as_written, low, -high), np.where(as_written, high, -low)
        value = np.where(as_written, value, -value)
        low, high = outward(low, np.zeros(1))[0], outward(high, np.zeros(1))[1]
    return replace(out, low=low, high=high, value=value).taken(rows.term)


def _recognised(problem: Any) -> Recognition:
    """The recognition of a problem that is nothing but losses and a regulariser."""
    try:
        found = cached_recognition(problem, recognise_any)
    except NotScreenable as refusal:
        raise NotScreenable(f"`problem` is not recognised ({refusal}); {ONE_LOSS}") from None
    if not isinstance(found, Recognition):
        raise NotScreenable(
            f"something stands beside the losses ({', '.join(found.descriptions)}); rows of the "
            "data are left out of a sum of losses and a regulariser only"
        )
    return found


def _hinges(losses: LossTerms) -> bool:
    """Whether all losses are hinges, falling in their argument; else all have two sides."""
    falling = (losses.hi == 0.0) & (losses.lo < 0.0)
    two_sided = (losses.hi > 0.0) & (losses.lo < 0.0)
    if falling.all() or two_sided.all():
        return bool(falling.all())
    raise NotScreenable(
        f"of {len(losses)} terms {int(falling.sum())} are hinges and {int(two_sided.sum())} have "
        f"two sides, so they are neither margins nor residuals together; {ONE_LOSS}"
    )


def _margin_of_zero(losses: LossTerms) -> tuple[Array, Array]:
    """Contain the arguments at which margins are 0, one before the kink of each hinge."""
    reach = 2.0 * np.finfo(np.float64).eps * (np.abs(losses.b) + losses.e + 1.0)
    return outward(losses.b - losses.e - 1.0, reach)


class LossRows(Immutable):
    """Which term each row of the user's data is.

    Attributes
    ----------
    term : array of int, shape (n,)
        Term of the recognised problem, row by row.
    sign : array, shape (n,)
        Term by term: -1 where the term's argument is minus the expression that the user wrote.
    """

    term: Index
    sign: Array


@dataclass(eq=False)
class _Origins:
    """Where the terms found by the rules come from: a loss or a constraint, and its entry.

    Attributes
    ----------
    source, entry : array of int, shape (found,)
        -1 where nothing is known.
    sign : array, shape (found,)
    shapes : dict of int to tuple of int
        Of every loss, and of every constraint with data; losses come first.
    losses : int
        Number of losses: sources below it are losses, from it on constraints.
    """

    source: Index
    entry: Index
    sign: Array
    shapes: dict[int, tuple[int, ...]]
    losses: int

    def place(self, terms: Index, source: Any, entry: Index, sign: float) -> None:
        """Say where `terms` come from."""
        self.source[terms], self.entry[terms], self.sign[terms] = source, entry, sign


def loss_rows(recognition: Recognition) -> LossRows:
    """The term of every row of the data.

    Raises
    ------
    NotScreenable
        Where that cannot be said.
    """
    problem, parts = recognition.problem, recognition.parts
    if problem.linear.any() or parts.loss_slope.any():
        raise NotScreenable(
            "the objective has a linear part beside the losses, which may belong to rows of the "
            f"data and would stay when they are left out; {ONE_LOSS}"
        )
    pairing, l1 = recognition.pairing, recognition.l1_terms
    mine = np.arange(len(pairing.first)) if l1 is None else np.asarray(l1.rest)
    first, second = pairing.first[mine], pairing.second[mine]
    origins = _origins(recognition)
    source, entry = origins.source[first], origins.entry[first]
    if (source < 0).any():
        raise NotScreenable(
            f"{int((source < 0).sum())} of {len(first)} terms are no entries of a loss over data "
            "and no rows of a constraint with one slack each: kinks of the regulariser, as of an "
            f"L1 norm or of total variation, are such; {ONE_LOSS}, beside squares of coordinates"
        )
    paired = second >= 0
    if paired.any():
        other = origins.source[second]
        if not (paired.all() and (other == other[0]).all() and other[0] >= 0
                and (origins.entry[second] == entry).all() and (source == source[0]).all()):
            raise NotScreenable(
                f"two losses look at the same data from both sides, in different order; {ONE_LOSS}"
            )
        origins.shapes.pop(int(other[0]))
    kind = source >= origins.losses
    if kind.any() != kind.all():
        raise NotScreenable(f"some losses have slacks in constraints, others none; {ONE_LOSS}")
    alike = {k: v for k, v in origins.shapes.items() if (k >= origins.losses) == kind[0]}
    position, count = _positions(alike, source, entry)
    if not np.array_equal(np.sort(position), np.arange(count)):
        without = np.setdiff1d(np.arange(count), position)
        raise NotScreenable(
            f"entry {without[0]} of the loss has no weight, so there is nothing to leave out; "
            "take the rows of weight 0 out of the data"
            if len(without) else f"several terms belong to one row of the data; {ONE_LOSS}"
        )
    return LossRows(np.argsort(position), origins.sign[first])


def _positions(
    shapes: dict[int, tuple[int, ...]], source: Index, entry: Index
) -> tuple[Index, int]:
    """Rows of the data and their number: entries of one loss, or the summands of a loop."""
    used = np.unique(source)
    if len(used) == 1:
        shape = shapes[int(used[0])]
        if sum(side > 1 for side in shape) > 1:
            raise NotScreenable(
                f"the loss has shape {shape}, so a row of the data has several terms there; terms "
                "are left out one by one"
            )
        return entry, prod(shape)
    if all(prod(shape) == 1 for shape in shapes.values()):
        return np.searchsorted(sorted(shapes), source), len(shapes)
    raise NotScreenable(
        f"the terms come from {len(used)} losses or constraints, which may be over the same rows "
        f"of the data or over others; {ONE_LOSS}"
    )


def _origins(recognition: Recognition) -> _Origins:
    """What the steps of a recognition say about its terms."""
    standard, count = recognition.standard, recognition.pairing.found
    groups, unknown = standard.canonical.groups, np.full(count, -1, dtype=np.intp)
    row_constraint, shapes = _data_constraints(standard)
    shapes |= {k: group.argument.shape for k, group in enumerate(groups)}
    origins = _Origins(unknown, unknown.copy(), np.ones(count), shapes, len(groups))
    starts = np.array([cone.rows.start for cone in standard.cones], dtype=np.intp)
    for step in recognition.steps:
        if isinstance(step, GroupTerms):
            origins.place(step.terms, step.group, step.paying, groups[step.group].sign)
        elif isinstance(step, PiecewiseLinear | PiecewiseQuadratic):
            row, known = _only_data_rows(step.pieces, row_constraint)
            for terms in step.terms:
                good = known & (terms >= 0)
                cone = row_constraint[row[good]]
                origins.place(terms[good], len(groups) + cone, row[good] - starts[cone], -1.0)
    return origins


def _data_constraints(standard: Standard) -> tuple[Index, dict[int, tuple[int, ...]]]:
    """The cone of each row with data in an inequality that the user wrote, and their shapes.

    The first is -1 for other rows with data, -2 for rows without (bounds of single columns).
    """
    canonical = standard.canonical
    own, first = canonical.user_constraints(), len(canonical.groups)
    out = np.where(standard.rows.counts() > 1, -1, -2)
    shapes: dict[int, tuple[int, ...]] = {}
    for k, cone in enumerate(standard.cones):
        rows = out[cone.rows]
        if cone.constraint in own and cone.kind == "nonneg" and (rows == -1).any():
            rows[rows == -1] = k
            shapes[first + k] = canonical.problem.constraints[cone.constraint].shape
    return out, shapes


def _only_data_rows(pieces: tuple[Any, ...], constraint: Index) -> tuple[Index, NDArray[np.bool_]]:
    """The one row with data that each column's pieces have, and whether there is just one."""
    total = sp.csr_array(sum((abs(piece) for piece in pieces[1:]), abs(pieces[0])))
    data = sp.csr_array(total[:, np.flatnonzero(constraint > -2)])
    data.eliminate_zeros()
    alone = np.diff(data.indptr) == 1
    row = np.zeros(total.shape[0], dtype=np.intp)
    row[alone] = np.flatnonzero(constraint > -2)[data.indices[data.indptr[:-1][alone]]]
    return row, alone & (constraint[row] >= 0)
