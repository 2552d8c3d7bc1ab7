"""From a ``cvxpy.Problem`` to its cone form, still symbolic, by CVXPY's own reductions.

The chain turns every spelling (``pos``, ``maximum``, ``norm(w, 2)**2``, slack variables, attributes
such as ``nonneg=True``) into affine constraints and an objective that is affine but for squares of
variables. No number is computed here; `Canonical.invert` is CVXPY's own way back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import cvxpy as cp
import numpy as np
from cvxpy.atoms.affine.wraps import psd_wrap, symmetric_wrap
from cvxpy.reductions.chain import Chain
from cvxpy.reductions.cvx_attr2constr import CvxAttr2Constr
from cvxpy.reductions.dcp2cone.dcp2cone import Dcp2Cone
from cvxpy.reductions.flip_objective import FlipObjective
from cvxpy.reductions.solution import Solution

from cvxscreen.cvxpy_plugin.recognise.loss_atoms import (
    LossGroup,
    read_losses,
    same,
    take_losses,
)
from cvxscreen.cvxpy_plugin.recognise.python_loops import Bundle, bundled, vectorised
from cvxscreen.cvxpy_plugin.recognise.variable_values import (
    free_entries,
    full_value,
    preserved_values,
)
from cvxscreen.errors import NotScreenable


@dataclass(frozen=True, eq=False)
class Canonical:
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
        The user's problem with its loops vectorised, where it has any.
    bundles : tuple of Bundle
        Constraints of the user's that are one in `whole`.
    groups : tuple of LossGroup
        Losses of the objective that are not in `problem`.
    """

    original: Any
    problem: Any
    chain: Any
    inverse: list[Any]
    own: dict[int, Any]
    whole: Any = None
    bundles: tuple[Bundle, ...] = ()
    groups: tuple[LossGroup, ...] = ()

    @property
    def sign(self) -> float:
        """The canonical objective divided by the user's: -1 for a maximisation."""
        return -1.0 if isinstance(self.original.objective, cp.Maximize) else 1.0

    def invert(self, solution: Solution) -> Solution:
        """A solution of the cone form as one of the user's problem."""
        found = self.chain.invert(solution, self.inverse)
        for bundle in self.bundles:
            if found.dual_vars is not None:
                found.dual_vars = bundle.apart(found.dual_vars)
        return found

    def user_values(self, values: dict[int, np.ndarray]) -> dict[int, Any]:
        """Values of the canonical variables as values of the user's, without any projection.

        Parameters
        ----------
        values : dict of int to array
            By identifier of the canonical variable.

        Returns
        -------
        dict of int to array
            By identifier of the user's variable.
        """
        return {
            variable.id: full_value(variable, values[key])
            for key, variable in self.own.items()
        }

    def with_current_groups(self) -> Canonical | None:
        """The same with the groups' numbers read anew; None where they are other groups now."""
        if not self.groups:
            return self
        found = read_losses(self.whole or self.original)
        alike = len(found) == len(self.groups) and all(
            same(new.argument, old.argument) and new.sign == old.sign
            for new, old in zip(found, self.groups, strict=True)
        )
        return replace(self, groups=found) if alike else None

    def user_constraints(self) -> dict[int, Any]:
        """The user's constraint behind each canonical one that has one, by its position."""
        marks = {c.id: np.array(float(k)) for k, c in enumerate(self.problem.constraints)}
        found = self.chain.invert(Solution(cp.OPTIMAL, 0.0, {}, marks, {}), self.inverse)
        own = {c.id: c for c in self.original.constraints}
        own |= {bundle.whole.id: bundle.parts[0] for bundle in self.bundles}
        return {int(k): own[key] for key, k in found.dual_vars.items() if key in own}

    def current(self) -> dict[int, np.ndarray] | None:
        """The values that the user's variables have now, by identifier of the canonical variable.

        None where the problem has not been solved before, or some value is missing.
        """
        solved = self.original.status in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE)
        if not solved or any(v.value is None for v in self.own.values()):
            return None
        return {
            key: free_entries(variable, variable.value)
            for key, variable in self.own.items()
        }


def canonicalise(problem: Any) -> Canonical:
    """Take `problem` to cone form.

    Raises
    ------
    NotScreenable
        If it is not DCP, has integer, boolean, complex or sparse variables, or a parameter without
        a value.
    """
    whole, bundles = bundled(vectorised(problem))
    reason = refusal(whole)
    if reason:
        raise NotScreenable(reason)
    small, groups = take_losses(whole)
    maximise = isinstance(problem.objective, cp.Maximize)
    lower = CvxAttr2Constr(reduce_bounds=True)
    steps = [Dcp2Cone(quad_obj=True), lower]
    chain = Chain(reductions=[FlipObjective(), *steps] if maximise else steps)
    with preserved_values(problem.variables()):
        for variable in problem.variables():
            # CVXPY gives its helpers values too, and refuses its own within bounds that it derives.
            variable.save_value(None)
        cone, inverse = chain.apply(without_bare_attributes(small))
    renamed = inverse[-1][0] if inverse[-1] else {}
    own = {renamed[v.id].id if v.id in renamed else v.id: v for v in problem.variables()}
    present = {v.id for v in cone.variables()}
    lost = [v.name() for key, v in own.items() if key not in present]
    if lost:
        raise NotScreenable(f"variable {lost[0]} does not appear in the cone form")
    return Canonical(
        problem, cone, chain, inverse, own, None if whole is problem else whole, bundles,
        groups,
    )


def refusal(problem: Any, *, quick: bool = False) -> str:
    """Why `problem` cannot be taken to cone form for screening, or an empty text.

    `quick` asks only what may have changed since the problem was last accepted.
    """
    missing = [p.name() for p in problem.parameters() if p.value is None]
    if missing:
        return f"parameter {missing[0]} has no value"
    if quick:
        return ""
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
