"""From a ``cvxpy.Problem`` to its cone form as numbers, with nothing left out.

`canonicalise` applies CVXPY's own reductions. They turn every spelling (``pos``, ``maximum``,
``norm(w, 2)**2``, slack variables, attributes such as ``nonneg=True``) into affine constraints and
an objective that is affine but for squares of variables; `Canonical.invert` is CVXPY's own way
back. `standardise` then reads the numbers::

    minimise over z    1/2 <z, P z> + <q, z> + constant
    subject to         A z + offset in K_1 x K_2 x ...

Losses that were read off the objective before (`loss_atoms`) are added to it; their arguments are
rows behind those of the cones, which constrain nothing. Behind these are the cones of norms that
were read off it (`row_norms`), and behind the canonical variables the bounds of these.

``z`` stacks the canonical variables column-major. Each cone remembers the constraint it comes from,
so that multipliers can be handed back. With ``L = objective - <multipliers, A z + offset>`` the
multipliers are CVXPY's dual values, up to the sign of equalities.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from cvxpy.atoms.affine.wraps import psd_wrap, symmetric_wrap
from cvxpy.reductions.chain import Chain
from cvxpy.reductions.cvx_attr2constr import CvxAttr2Constr
from cvxpy.reductions.dcp2cone.dcp2cone import Dcp2Cone
from cvxpy.reductions.flip_objective import FlipObjective
from cvxpy.reductions.solution import Solution
from numpy.typing import NDArray

from cvxscreen.core.cones import height
from cvxscreen.cvxpy_plugin.recognise.auxiliary_variables import (
    DefinedVariable,
    EpigraphVariable,
    LevelVariable,
    are_read,
    without_defined_variables,
    without_epigraph_variables,
    without_level_variables,
)
from cvxscreen.cvxpy_plugin.recognise.budget_losses import (
    budgets_above_levels,
    read_budgets,
    take_budgets,
)
from cvxscreen.cvxpy_plugin.recognise.constraint_forms import Rewritten, in_two_forms
from cvxscreen.cvxpy_plugin.recognise.expressions import (
    Affine,
    free_entries,
    full_value,
    is_quadratic_as_written,
    preserved_values,
    read_affine,
    read_objective,
)
from cvxscreen.cvxpy_plugin.recognise.loss_atoms import (
    Level,
    LossGroup,
    Slack,
    SplitSlack,
    above_levels,
    in_simpler_atoms,
    read_losses,
    same,
    same_slack,
    take_losses,
)
from cvxscreen.cvxpy_plugin.recognise.matrices import (
    Diagonal,
    Stack,
    assemble,
    below_each_other,
    stack,
    take_rows,
)
from cvxscreen.cvxpy_plugin.recognise.python_loops import Bundle, bundled, vectorised
from cvxscreen.cvxpy_plugin.recognise.row_norms import (
    RowNorms,
    numbers_of,
    read_row_norms,
    take_row_norms,
)
from cvxscreen.cvxpy_plugin.recognise.shifted_squares import Shifted, without_shared_squares
from cvxscreen.cvxpy_plugin.recognise.triangular import Shortened, lengthened, with_triangles
from cvxscreen.cvxpy_plugin.size import EXPONENTIAL
from cvxscreen.errors import NotScreenable

Array = NDArray[np.float64]
Index = NDArray[np.intp]


class Canonical(NamedTuple):
    """A problem in cone form, with the way back to the user's problem.

    Attributes
    ----------
    original : cvxpy.Problem
        The user's problem; never changed.
    problem : cvxpy.Problem
        Minimisation with affine constraints in cones.
    chain : cvxpy.reductions.chain.Chain
        The reductions that made `problem`.
    inverse : list
        Their inverse data.
    own : dict of int to cvxpy.Variable
        Identifier of a variable of `problem` to the user's variable that it stands for.
    whole : cvxpy.Problem or None
        The user's problem as it is read: loops vectorised, some atoms in simpler ones.
    bundles : tuple of Bundle
        Constraints of the user's, or of those in their place, that are one in `whole`.
    replaced : tuple of Rewritten
        Constraints of the user's with others in their place.
    groups : tuple of LossGroup
        Losses of the objective, and behind them of constraints, that are not in `problem`.
    shifted : Shifted or None
        A variable of the user's that another one of `problem` stands for up to a square.
    free : tuple of cvxpy.Variable
        Variables of the user's that are in arguments of `groups` alone, hence not in `problem`.
    levels : tuple of Level
        All that `whole` has beyond the user's problem; empty where it differs in other ways, too.
    shortened : tuple of Shortened
        Which long residuals `whole` has triangles in place of.
    epigraphs : tuple of EpigraphVariable or LevelVariable
        Variables of the user's that `whole` has functions in place of.
    norms : tuple of RowNorms
        Norms in the objective that are not in `problem`.
    defined : tuple of DefinedVariable
        Variables of the user's that `whole` has what an equation says of them in place of.
    """

    original: Any
    problem: Any
    chain: Any
    inverse: list[Any]
    own: dict[int, Any]
    whole: Any = None
    bundles: tuple[Bundle, ...] = ()
    groups: tuple[LossGroup, ...] = ()
    shifted: Shifted | None = None
    free: tuple[Any, ...] = ()
    levels: tuple[Level, ...] = ()
    shortened: tuple[Shortened, ...] = ()
    epigraphs: tuple[EpigraphVariable | LevelVariable, ...] = ()
    norms: tuple[RowNorms, ...] = ()
    replaced: tuple[Rewritten, ...] = ()
    defined: tuple[DefinedVariable, ...] = ()

    @property
    def variables(self) -> tuple[Any, ...]:
        """The variables that have columns."""
        return (*self.problem.variables(), *self.free, *(part.bounds for part in self.norms))

    @property
    def slacks(self) -> tuple[Any, ...]:
        """The user's variables that are losses: they have no columns."""
        slacks = (group.slack for group in self.groups)
        return tuple(v for slack in slacks if slack is not None for v in slack.variables)

    @property
    def sign(self) -> float:
        """The canonical objective divided by the user's: -1 for a maximisation."""
        return -1.0 if isinstance(self.original.objective, cp.Maximize) else 1.0

    def invert(self, solution: Solution) -> Solution:
        """A solution of the cone form as one of the user's problem.

        Dual values of constraints that slacks were taken from are the user's already.
        """
        ours, given_duals = {}, solution.dual_vars or {}
        if given_duals:
            ours = {key: given_duals[key] for key in self.of_slacks}
        found = self.chain.invert(solution, self.inverse)
        found.dual_vars = lengthened(found.dual_vars or {}, self.shortened)
        if ours:
            found.dual_vars = {**(found.dual_vars or {}), **ours}
        given = solution.primal_vars or {}
        apart = {v.id: given[v.id] for v in (*self.free, *self.slacks) if v.id in given}
        values = found.primal_vars = {**(found.primal_vars or {}), **apart}
        if self.shifted is not None and self.shifted.stand_in.id in values:
            level = values.pop(self.shifted.stand_in.id)
            values[self.shifted.variable.id] = self.shifted.value(level, values)
        for epigraph in self.epigraphs if values else ():
            epigraph.write(values, found.dual_vars)
        for bundle in self.bundles:
            if found.dual_vars is not None:
                found.dual_vars = bundle.apart(found.dual_vars)
        for one in self.replaced:
            if found.dual_vars is not None:
                found.dual_vars = one.together(found.dual_vars)
        for defined in reversed(self.defined):
            if values:
                values[defined.variable.id] = defined.value(values)
            if defined.constraint.id in given_duals and found.dual_vars is not None:
                found.dual_vars[defined.constraint.id] = defined.multiplier(
                    self.original, given_duals[defined.constraint.id], found.dual_vars,
                    values or None, self.of_slacks,
                )
        return found

    @property
    def of_slacks(self) -> frozenset[int]:
        """The constraints, by identifier, that losses have in them as slack variables."""
        slacks = (group.slack for group in self.groups)
        return frozenset(c.id for s in slacks if s is not None for c in s.constraints)

    def user_values(self, values: dict[int, np.ndarray]) -> dict[int, Any]:
        """Values of the canonical variables as values of the user's, without any projection.

        Parameters
        ----------
        values : dict of int to array
            By identifier of the canonical variable; of slacks by their own.

        Returns
        -------
        dict of int to array
            By identifier of the user's variable.
        """
        found = {
            variable.id: full_value(variable, values[key])
            for key, variable in self.own.items()
        }
        found |= {v.id: values[v.id] for v in self.slacks if v.id in values}
        if self.shifted is not None:
            level = values[self.shifted.stand_in.id]
            found[self.shifted.variable.id] = self.shifted.value(level, found)
        found |= {one.variable.id: one.value(found) for one in self.epigraphs}
        found |= {one.variable.id: one.value(found) for one in self.defined}
        return found

    def free_values(self) -> dict[int, np.ndarray]:
        """The values that the user's variables have now, by identifier of the canonical one."""
        found = {key: free_entries(v, v.value) for key, v in self.own.items()}
        if self.shifted is not None:
            own = {v.id: v.value for v in self.own.values()}
            shifted = self.shifted
            level = np.asarray(shifted.variable.value) - shifted.square.value(own)
            found[shifted.stand_in.id] = level
        return found

    def with_current_groups(self) -> Canonical | None:
        """The same with the groups' numbers read anew; None where they are other groups now."""
        whole, current = self.whole or self.original, self
        if self.norms:
            norms = read_row_norms(whole)
            alike = len(norms) == len(self.norms) and all(
                old.is_at_other_costs(new) for new, old in zip(norms, self.norms, strict=True)
            )
            if not alike:
                return None
            current = self._replace(norms=tuple(
                replace(old, costs=new.costs) for new, old in zip(norms, self.norms, strict=True)
            ))
        if not self.groups:
            return current
        found = read_losses(whole)
        if any(group.budget is not None for group in self.groups):
            found += read_budgets(whole)
        alike = len(found) == len(self.groups) and all(
            same(new.argument, old.argument) and new.sign == old.sign
            and same_slack(new.slack, old.slack) and new.budget == old.budget
            for new, old in zip(found, self.groups, strict=True)
        )
        return current._replace(groups=found) if alike else None

    def positions(self) -> dict[int, int]:
        """By identifier of a constraint before the reductions: which canonical one it is."""
        marks = {c.id: np.array(float(k)) for k, c in enumerate(self.problem.constraints)}
        found = self.chain.invert(Solution(cp.OPTIMAL, 0.0, {}, marks, {}), self.inverse)
        return {key: int(k) for key, k in found.dual_vars.items()}

    def user_constraints(self) -> dict[int, Any]:
        """The user's constraint behind each canonical one that has one, by its position."""
        own = {c.id: c for c in self.original.constraints}
        own |= {part.id: one.constraint for one in self.replaced for part, _ in one.parts}
        own |= {bundle.whole.id: own[bundle.parts[0].id] for bundle in self.bundles}
        return {k: own[key] for key, k in self.positions().items() if key in own}

    def current(self) -> dict[int, np.ndarray] | None:
        """The values that the user's variables have now, by identifier of the canonical variable.

        None where the problem has not been solved before, or some value is missing.
        """
        solved = self.original.status in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE)
        if not solved or any(v.value is None for v in self.original.variables()):
            return None
        return self.free_values()


def canonicalise(problem: Any, *, budgets: bool = False) -> Canonical:
    """Take `problem` to cone form.

    Parameters
    ----------
    budgets : bool
        Whether losses are read off constraints, too, which are then in `groups` alone.

    Raises
    ------
    NotScreenable
        If it is not DCP, has integer, boolean, complex or sparse variables, or a parameter without
        a value; with `budgets`, where no constraint has losses that are read so.
    """
    written, defined = without_defined_variables(problem)
    if defined:
        try:
            return _canonicalised(problem, written, defined, budgets)
        except NotScreenable:
            pass
    return _canonicalised(problem, problem, (), budgets)


NO_LOSSES_ALONE = "something else than losses has a variable that an equation defines"


def _canonicalised(
    problem: Any, written: Any, defined: tuple[DefinedVariable, ...], budgets: bool
) -> Canonical:
    """The same for `problem`, `written` without the variables that are `defined`."""
    direct, bounding = without_epigraph_variables(written)
    largest, parting = without_level_variables(direct)
    epigraphs: tuple[EpigraphVariable | LevelVariable, ...] = (*bounding, *parting)
    plain, replaced = in_two_forms(largest)
    vectors, bundles = bundled(vectorised(plain))
    simple = in_simpler_atoms(vectors)
    leveled, levels = above_levels(simple)
    if budgets:
        leveled, levels = budgets_above_levels(leveled), ()
    reason = refusal(leveled)
    if reason:
        raise NotScreenable(reason)
    rewritten, shortened = with_triangles(leveled)
    whole, shifted = without_shared_squares(rewritten)
    others, norms, in_norms = take_row_norms(whole)
    if defined and (vectors is not largest or shortened or shifted is not None or norms):
        raise NotScreenable(NO_LOSSES_ALONE)
    small, groups, free = take_budgets(others) if budgets else take_losses(others)
    if defined and not are_read(defined, groups, small):
        raise NotScreenable(NO_LOSSES_ALONE)
    chain, cone, inverse = in_cone_form(small)
    if cone is problem:  # what is kept of a problem must not keep it alive
        cone = cp.Problem(problem.objective, problem.constraints)
    renamed = inverse[-1][0] if inverse and inverse[-1] else {}
    found = Canonical(
        problem, cone, chain, inverse, {}, None if whole is problem else whole, bundles,
        groups, shifted, (*in_norms, *free),
        levels if simple is problem and whole is leveled else (), shortened, epigraphs, norms,
        replaced, defined,
    )
    apart = {variable.id for variable in found.slacks}
    apart |= {one.variable.id for one in (*epigraphs, *defined)}
    if shifted is not None:
        apart.add(shifted.variable.id)
    found.own.update({
        renamed[v.id].id if v.id in renamed else v.id: v
        for v in problem.variables() if v.id not in apart
    })
    present = {v.id for v in found.variables}
    lost = [v.name() for key, v in found.own.items() if key not in present]
    if lost:
        raise NotScreenable(f"variable {lost[0]} does not appear in the cone form")
    return found


def in_cone_form(problem: Any) -> tuple[Chain, Any, list[Any]]:
    """CVXPY's reductions to affine constraints in cones, the problem that they make, inverse data.

    Squares of free variables over linear constraints are in that form as they are.
    """
    if is_in_cone_form(problem):
        return Chain(reductions=[]), problem, []
    steps = [Dcp2Cone(quad_obj=True), CvxAttr2Constr(reduce_bounds=True)]
    maximise = isinstance(problem.objective, cp.Maximize)
    chain = Chain(reductions=[FlipObjective(), *steps] if maximise else steps)
    with preserved_values(problem.variables()):
        for variable in problem.variables():
            # CVXPY gives its helpers values too, and refuses its own within bounds that it derives.
            variable.save_value(None)
        return chain, *chain.apply(without_bare_attributes(problem))


def is_in_cone_form(problem: Any) -> bool:
    """Whether a minimisation of free variables has an objective that is read as it is written.

    And no constraints but affine equalities and inequalities, which are read in the same way.
    """
    free = not any(any(map(bool, v.attributes.values())) for v in problem.variables())
    linear = all(
        type(c).__name__ in ("Equality", "Inequality") and all(arg.is_affine() for arg in c.args)
        for c in problem.constraints
    )
    plain = free and linear and isinstance(problem.objective, cp.Minimize)
    return plain and is_quadratic_as_written(problem.objective.expr)


def without_value(parameters: Iterable[Any]) -> str:
    """Why a problem with these parameters has no numbers, or an empty text."""
    missing = [parameter.name() for parameter in parameters if parameter.value is None]
    return f"parameter {missing[0]} has no value" if missing else ""


def refusal(problem: Any) -> str:
    """Why `problem` cannot be taken to cone form for screening, or an empty text."""
    reason = without_value(problem.parameters())
    if reason:
        return reason
    if not problem.variables():
        return "the problem has no variables"
    if problem.is_mixed_integer():
        return "the problem has integer or boolean variables"
    if any(leaf.is_complex() for leaf in problem.variables() + problem.parameters()):
        return "the problem has complex variables or parameters"
    if not problem.is_dcp():
        return "the problem does not follow the DCP rules"
    if any(v.attributes["sparsity"] for v in problem.variables()):
        return "the problem has a variable with a sparsity pattern"
    if any(len(v.shape) > 2 for v in problem.variables()):
        return "the problem has a variable with more than two dimensions"
    return ""


SYMMETRIC = {"PSD": psd_wrap, "NSD": symmetric_wrap, "symmetric": symmetric_wrap,
             "diag": symmetric_wrap}
"""Attributes that leave a variable fewer free entries than it has, with what asserts them."""

SAFE = (1, 9, 3)
"""From this version of CVXPY on, squares of variables with such attributes are not lost."""


def version() -> tuple[int, ...]:
    """CVXPY's version as numbers, without what follows them."""
    parts = cp.__version__.split(".")[:3]
    return tuple(int(part) if part.isdigit() else 0 for part in parts)


def without_bare_attributes(problem: Any) -> Any:
    """`problem` with no bare variable with such attributes in its objective.

    Before 1.9.3, CVXPY drops ``sum_squares(M)`` of such a variable without a word when it makes
    squares part of the objective (its pull request 3384). Behind a wrap that asserts what the
    attribute says, M is an expression, whose squares are kept.

    Parameters
    ----------
    problem : cvxpy.Problem
        Its constraints are shared, so that dual values find their way back.
    """
    if version() >= SAFE:
        return problem
    wrapped = {}
    for variable in problem.objective.variables():
        for name, wrap in SYMMETRIC.items():
            if variable.attributes[name]:
                wrapped[id(variable)] = wrap(variable)
                break
    if not wrapped:
        return problem
    return cp.Problem(problem.objective.tree_copy(wrapped), problem.constraints)


class Cone(NamedTuple):
    """Consecutive rows in one cone.

    Attributes
    ----------
    kind : str
        ``"zero"``, ``"nonneg"``, ``"soc"`` (head first) or ``"psd"`` (column-major).
    rows : slice
    size : int
        Rows, or the side of a PSD matrix.
    constraint : int
        Position of the constraint among those of the canonical problem.
    """

    kind: str
    rows: slice
    size: int
    constraint: int


class Standard(NamedTuple):
    """The numbers of a canonical problem; see the module's docstring.

    Attributes
    ----------
    canonical : Canonical
    variables : tuple of cvxpy.Variable
        In the order of the columns.
    starts : array of int, shape (v + 1,)
        First column of each variable, and N.
    quadratic : CSR array, shape (N, N)
        ``P``.
    linear : array, shape (N,)
        ``q``.
    constant : float
    rows : Stack
    cones : tuple of Cone
    arguments : tuple of slice
        The rows of each of the canonical problem's groups of losses.
    norms : tuple of slice
        Those of the cones of each of its norms, cone by cone and head first.
    budgets : tuple of int
        By group of losses: the row that bounds them, of which they are the rest; -1 for losses of
        the objective. Empty where all are.
    """

    canonical: Canonical
    variables: tuple[Any, ...]
    starts: Index
    quadratic: Any
    linear: Array
    constant: float
    rows: Stack
    cones: tuple[Cone, ...]
    arguments: tuple[slice, ...] = ()
    norms: tuple[slice, ...] = ()
    budgets: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """Number N of columns."""
        return int(self.starts[-1])

    def owner(self) -> Index:
        """Position of the variable of each column, shape (N,)."""
        return np.repeat(np.arange(len(self.variables)), np.diff(self.starts))

    def own(self) -> NDArray[np.bool_]:
        """Columns of the user's variables, shape (N,)."""
        flags = np.array([v.id in self.canonical.own for v in self.variables], dtype=bool)
        return flags[self.owner()]

    def inside(self, *kinds: str) -> NDArray[np.bool_]:
        """Rows in cones of some kinds, shape (m,)."""
        out = np.zeros(self.rows.shape[0], dtype=bool)
        for cone in self.cones:
            if cone.kind in kinds:
                out[cone.rows] = True
        return out

    def label(self, column: int, place: bool = True) -> str:
        """A name for messages: the user's name of the column's variable.

        A variable without one is told by its shape and, with `place`, by where it occurs.
        """
        variable = self.variables[int(self.owner()[column])]
        own = self.canonical.own.get(variable.id)
        if own is None:
            return "an epigraph variable of CVXPY"
        if own.name() != f"var{own.id}":
            return f"variable {own.name()}"
        kind = f"of shape {own.shape}" if own.shape else "(a scalar)"
        where = _place(self.canonical, own) if place else ""
        return f"the unnamed variable {own.name()} {kind}{where}"

    def labels(self, columns: Index) -> list[str]:
        """The names of the variables of some columns; to write out where one is may take long."""
        _, first = np.unique(self.owner()[columns], return_index=True)
        return sorted({self.label(int(column)) for column in columns[first]})

    @property
    def dims_of_norms(self) -> tuple[tuple[str, int], ...]:
        """The cones of the norms that were read off the objective."""
        parts = [
            (("soc", norms.height),) * len(norms.costs) for norms in self.canonical.norms
        ]
        return tuple(chain.from_iterable(parts))

    @property
    def constrained(self) -> int:
        """Number of rows in cones: those behind them are arguments of losses."""
        if self.arguments:
            return self.arguments[0].start
        return self.cones[-1].rows.stop if self.cones else 0

    def argument_uses(self) -> NDArray[np.int64]:
        """How often each column occurs in arguments of losses, dense data aside, shape (N,)."""
        sparse = self.rows.sparse
        first = sparse.indptr[self.constrained]
        return np.bincount(sparse.indices[first:], minlength=self.size).astype(np.int64)

    def slacks(self) -> Iterator[tuple[LossGroup, Slack | SplitSlack, slice]]:
        """The losses that are slack variables of the user's, and the rows of their arguments."""
        for group, rows in zip(self.canonical.groups, self.arguments, strict=True):
            if group.slack is not None:
                yield group, group.slack, rows

    def budget_of(self, group: LossGroup) -> int:
        """The row that bounds the losses of a group."""
        groups = self.canonical.groups
        return next(row for own, row in zip(groups, self.budgets, strict=True) if own is group)

    def value(self, z: Array) -> float:
        """The canonical objective at `z`, without the losses that were read off it."""
        smooth = 0.5 * float(z @ (self.quadratic @ z)) + float(self.linear @ z)
        return smooth + self.constant

    def join(self, values: dict[int, Array]) -> Array:
        """Values of canonical variables as columns, 0 where there is none; see `split`."""
        z = np.zeros(self.size)
        for variable, start in zip(self.variables, self.starts, strict=False):
            if variable.id in values:
                z[start : start + variable.size] = values[variable.id].flatten(order="F")
        return z

    def split(self, z: Array, slacks: bool = True) -> dict[int, Array]:
        """`z` as values of the canonical variables, and of the slacks, by identifier."""
        found = {
            variable.id: z[start : start + variable.size].reshape(variable.shape, order="F")
            for variable, start in zip(self.variables, self.starts, strict=False)
        }
        if slacks and self.canonical.slacks:
            values = self.rows.values(z)
            for group, slack, rows in self.slacks():
                parts = slack.values(group.sign * values[rows])
                for variable, part in zip(slack.variables, parts, strict=True):
                    found[variable.id] = part.reshape(variable.shape, order="F")
        return found


FAMILIAR = frozenset(
    (
        "abs", "huber", "max", "maximum", "norm1", "pos", "neg", "Pnorm", "PnormApprox", "Power",
        "PowerApprox", "QuadForm", "quad_over_lin", "AddExpression", "NegExpression",
        "MulExpression", "multiply", "DivExpression", "Sum", "Promote", "index", "special_index",
        "reshape", "transpose", "Hstack", "Vstack", "Concatenate", "broadcast_to", "Trace",
        "diag_mat", "diag_vec", "upper_tri", "kron", "cumsum",
    )
)
"""Atoms that are not worth naming in a refusal."""

SHOWN = 80
"""Characters of an expression that a message quotes."""


def written(expr: Any) -> str:
    """A CVXPY expression on one line, nearly as it was typed, with ``[..]`` for arrays."""
    text = " ".join(str(expr).split())
    while (shorter := re.sub(r"\[[^\[\]]*[^\[\].][^\[\]]*\]", "[..]", text)) != text:
        text = shorter
    text = re.sub(r"\[(?:\[\.\.\] ?|\.\.\. ?)+\]", "[..]", text).replace("+ -", "- ")
    text = re.sub(r"Promote\(([^(),]*), \([\d, ]*\)\)", r"\1", text)
    text = text.replace("Sum(", "sum(").replace(", None, False)", ")")
    return text if len(text) < SHOWN else text[: SHOWN - 3] + "..."


def _place(canonical: Canonical, variable: Any) -> str:
    """Where the user's problem has `variable`: its first constraint, or the objective."""
    original = canonical.original
    if original is None:
        return ""
    for constraint in original.constraints:
        if any(found.id == variable.id for found in constraint.variables()):
            return f" in the constraint {written(constraint)}"
    return " in the objective"


def standardise(canonical: Canonical) -> Standard:
    """Read all numbers of a canonical problem.

    Raises
    ------
    NotScreenable
        If it needs a cone other than zero, non-negative, second-order and PSD.
    """
    problem = canonical.problem
    variables = canonical.variables
    starts = np.concatenate([[0], np.cumsum([v.size for v in variables])]).astype(np.intp)
    column = {v.id: int(start) for v, start in zip(variables, starts, strict=False)}

    entries, offsets, cones, row = [], [], [], 0
    for position, constraint in enumerate(problem.constraints):
        try:
            kind, part, sizes = _cone_rows(constraint)
        except NotScreenable as refusal:
            atoms = {atom.__name__ for atom in canonical.original.atoms()} & EXPONENTIAL
            extra = f" (from {', '.join(sorted(atoms))})" if atoms else ""
            raise NotScreenable(f"{refusal}{extra}") from None
        entries += [(row, column[key], block) for key, block in part.blocks.items()]
        offsets.append(part.constant)
        for size in sizes:
            stop = row + height(kind, size)
            cones.append(Cone(kind, slice(row, stop), size, position))
            row = stop
    arguments, constrained = [], row
    stands_for = {user.id: key for key, user in canonical.own.items()}
    for group in canonical.groups:
        part = read_affine(group.argument, group.sign)
        entries += [
            (row, column[stands_for.get(key, key)], block) for key, block in part.blocks.items()
        ]
        offsets.append(part.constant)
        arguments.append(slice(row, row + len(part.constant)))
        row = arguments[-1].stop
    offset = offsets[0] if len(offsets) == 1 else np.concatenate([np.zeros(0), *offsets])
    rows = assemble(entries, offset, int(starts[-1]), constrained)
    of_users = {key: column[stands_for.get(key, key)] for key in (*stands_for, *column)}
    parts, norms = [rows], []
    for read in canonical.norms:
        parts.append(numbers_of(read, of_users, int(starts[-1])))
        norms.append(slice(row, row + parts[-1].shape[0]))
        row = norms[-1].stop
    rows = below_each_other(parts)

    quadratic, linear, constant = _objective(canonical, column, int(starts[-1]))
    if not (np.isfinite(linear).all() and rows.finite()):
        raise NotScreenable("the data hold NaN or infinity")
    return Standard(
        canonical, variables, starts, quadratic, linear, constant, rows, tuple(cones),
        tuple(arguments), tuple(norms), _budgets(canonical, cones),
    )


def _budgets(canonical: Canonical, cones: list[Cone]) -> tuple[int, ...]:
    """The rows that bound the losses of each group; see `Standard`."""
    if all(group.budget is None for group in canonical.groups):
        return ()
    heads = {cone.constraint: cone.rows.start for cone in cones}
    at = {key: heads[position] for key, position in canonical.positions().items()}
    return tuple(-1 if g.budget is None else at[g.budget] for g in canonical.groups)


def with_current_costs(standard: Standard) -> Standard | None:
    """`standard` with the objective's numbers read anew, at the parameters' present values.

    None where the objective has other losses than before.

    Raises
    ------
    NotScreenable
        If they hold NaN or infinity.
    """
    canonical = standard.canonical.with_current_groups()
    if canonical is None:
        return None
    weighs_losses = not (canonical.norms or canonical.problem.objective.parameters())
    if weighs_losses:  # whatever parameter has changed
        return standard._replace(canonical=canonical)
    column = {v.id: int(s) for v, s in zip(standard.variables, standard.starts, strict=False)}
    quadratic, linear, constant = _objective(canonical, column, standard.size)
    if not (np.isfinite(linear).all() and np.isfinite(quadratic.data).all()):
        raise NotScreenable("the data hold NaN or infinity")
    return standard._replace(
        canonical=canonical, quadratic=quadratic, linear=linear, constant=constant
    )


def _objective(canonical: Canonical, column: dict[int, int], size: int) -> tuple[Any, Array, float]:
    """The objective's squares, slopes and constant over all columns."""
    objective = read_objective(canonical.problem.objective.expr)
    linear = np.zeros(size)
    for key, slope in objective.slopes.items():
        linear[column[key] : column[key] + len(slope)] += slope
    for norms in canonical.norms:
        start = column[norms.bounds.id]
        linear[start : start + len(norms.costs)] = norms.costs
    diagonal, squares = np.zeros(size), []
    for key, square in objective.squares.items():
        if isinstance(square, Diagonal):
            diagonal[column[key] : column[key] + len(square.entries)] = square.entries
        else:
            squares.append((column[key], square.tocoo()))
    at = np.flatnonzero(diagonal)
    if not squares:
        ends = np.concatenate([[0], np.cumsum(diagonal != 0)])
        quadratic = sp.csr_array((diagonal[at], at, ends), shape=(size, size))
        return quadratic, linear, objective.constant
    entries = np.concatenate([diagonal[at], *(part.data for _, part in squares)])
    row = np.concatenate([at, *(part.row + start for start, part in squares)])
    col = np.concatenate([at, *(part.col + start for start, part in squares)])
    quadratic = sp.csr_array((entries, (row, col)), shape=(size, size))
    quadratic.eliminate_zeros()
    return quadratic, linear, objective.constant


def _cone_rows(constraint: Any) -> tuple[str, Affine, list[int]]:
    """Kind, rows and cone sizes of one affine constraint."""
    kind, args = type(constraint).__name__, constraint.args
    if kind == "Inequality":
        return "nonneg", read_affine(args[1] - args[0]), [constraint.size]
    if kind == "NonNeg":
        return "nonneg", read_affine(args[0]), [constraint.size]
    if kind == "NonPos":
        return "nonneg", read_affine(args[0], -1.0), [constraint.size]
    if kind == "Equality":
        return "zero", read_affine(args[0] - args[1]), [constraint.size]
    if kind == "Zero":
        return "zero", read_affine(args[0]), [constraint.size]
    if kind == "SOC":
        return "soc", _second_order(constraint), constraint.cone_sizes()
    if kind == "PSD" and len(args[0].shape) == 2:
        matrix = args[0]  # CVXPY asks of one that is not symmetric that its symmetric part be PSD
        if not matrix.is_symmetric():
            matrix = 0.5 * (matrix + matrix.T)
        return "psd", read_affine(matrix), [matrix.shape[0]]
    raise NotScreenable(_unknown_cone(kind))


def _second_order(constraint: Any) -> Affine:
    """Rows of a second-order constraint, cone by cone and head first."""
    head, tail = read_affine(constraint.args[0]), read_affine(constraint.args[1])
    cones = len(head.constant)
    ladder = np.arange(len(tail.constant))
    by_column = ladder.reshape(cones, -1)
    by_row = ladder.reshape(-1, cones).T
    by_cone = by_row if constraint.axis == 1 else by_column
    order = np.column_stack([np.arange(cones), cones + by_cone]).ravel()
    blocks = {}
    for key in {**head.blocks, **tail.blocks}:
        parts = [(0, head.blocks[key])] if key in head.blocks else []
        parts += [(cones, tail.blocks[key])] if key in tail.blocks else []
        whole = stack(parts, len(order), parts[0][1].shape[1])
        blocks[key] = take_rows(whole, order)
    return Affine(blocks, np.concatenate([head.constant, tail.constant])[order])


def _unknown_cone(kind: str) -> str:
    names = {"ExpCone": "an exponential cone", "PSD": "a stack of PSD cones"}
    return f"the problem needs {names.get(kind, f'a {kind} cone')}, which is not supported"
