"""The user's objective at a sample of the entries of its losses.

An elementwise expression of 100,000 entries need not be evaluated whole to be compared with what
was read off it. CVXPY's own atoms are given the values of their arguments at some of the entries;
the others are 0 where a sum, a norm or a product takes all of them, so that they add nothing.

What every entry *is* does not rest on the sample. All entries of an expression are read by the same
few array operations, broadcast as CVXPY broadcasts them, and which operations these are the tree of
the expression says; no entry is read by a rule of its own. So a wrong operation is wrong in nearly
all entries, or where an entry's own numbers change what is done (a weight of 0, a slope that
vanishes). The entries at which one of these numbers is the least or the largest are in the sample.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from cvxpy.atoms.elementwise.elementwise import Elementwise
from numpy.typing import NDArray

from cvxscreen._support.immutable import Immutable
from cvxscreen.core.problem import Problem
from cvxscreen.cvxpy_plugin.recognise.loss_atoms import Level, LossGroup, Slack, SplitSlack
from cvxscreen.cvxpy_plugin.recognise.recognition import Recognition
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import InvalidInput, NotScreenable

Array = NDArray[np.float64]
Index = NDArray[np.intp]

MANY = 2000
"""Up to so many terms all of them are compared; see `check.check_points`."""

SAMPLE = 500
"""Entries that are drawn, beside those with extreme numbers. At random margins a term is on each of
three pieces with a probability above 0.3."""

SEED = 20240301

ENTRYWISE = frozenset(("AddExpression", "NegExpression", "multiply", "DivExpression"))
"""Affine nodes whose entries depend on the same entries of their arguments, or on a number."""


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
        vectorised first) or the largest entries of one, and where the recognised rows are not the
        very arrays that were read, so that one row may be another.
        """
        standard, problem = recognition.standard, recognition.problem
        canonical, groups = standard.canonical, standard.canonical.groups
        if canonical.original is None:
            return None
        levels = canonical.levels
        own = canonical.whole is None or len(levels) == 1
        one = len(groups) == 1 and len(groups[0].weight) == problem.n > MANY
        if not (own and one and canonical.shifted is None and _by_reference(recognition)):
            return None
        group, (rows,) = groups[0], standard.arguments
        drawn = np.random.default_rng(SEED).integers(0, problem.n, SAMPLE)
        index = np.unique(np.concatenate([drawn, _extremes(group, standard.rows.offset[rows])]))
        constant = group.constant - group.constant_at(index)
        if levels and len(recognition.helpers()) > 1:
            return None
        return cls(index, constant, levels[0] if levels else None)

    def problem(self, whole: Problem) -> Problem:
        """The recognised problem with these terms alone."""
        return sampled(whole, self.index, whole.constant - self.constant)


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


