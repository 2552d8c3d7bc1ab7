"""Norms and squares of many residuals of few coordinates, as those of a triangle.

::

    |A x + b| = |R (x, 1)|,      [A, b] = Q R,  Q with orthonormal columns

so a bound of a tracking error, a residual's norm beside penalties, or an ellipsoid written with all
of its data is a cone of as many rows as there are coordinates, however many rows the data have.
Householder's reflections leave an error of a few units of rounding of each column's length (Higham,
"Accuracy and stability of numerical algorithms", 2002, theorem 19.4), which is what evaluating
``A x + b`` costs as well. Both lengths are compared at the points of `check`, and at the answer.

A matrix of residuals with factors on one side, as of several outputs, needs no more than their own
triangle, however many outputs there are::

    |A W + B|_F = |R_1 W + R_2|_F,      [A, B] = Q [R_1, R_2]

Squares in the objective are left where the problem is recognised: they are a quadratic term there,
or losses. Beside terms and variables that no rule takes (an entropy, a nuclear norm, integers)
nothing can be left out, but what squares cost can: `short_squares` has such a problem as CVXPY gets
it.

A cone that is a constraint (`cp.SOC`) has as many dual values as residuals. With ``[A, b] = Q R`` a
short cone's (l, u) are a long one's (l, Q u): Q keeps lengths, and ``A' Q u`` is the short one's
share of the gradient.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen.cvxpy_plugin.recognise.expressions import as_vector, exchanged, read_affine
from cvxscreen.cvxpy_plugin.recognise.matrices import Matrix, expanded, take_rows
from cvxscreen.cvxpy_plugin.size import NORMS, POWERS, SQUARES, is_two

Array = NDArray[np.float64]

TALL = 4
"""Rows for each row of the triangle from which on it is made."""

BLOCK = 4096
"""Rows that are reduced at a time, with the triangle of those before; so many stay in the cache."""

AGREEMENT = 1e-9
"""Largest difference of the two lengths, relative to them and the length of b."""


class Shortened(NamedTuple):
    """Residuals, and the triangle's rows in their place.

    Attributes
    ----------
    kind : str
        What is taken of them, for records.
    residuals, shorter : cvxpy.Expression
    fixed : float
        Length of the residuals where all variables are 0.
    constraint : int or None
        Identifier of the constraint that is their cone.
    """

    kind: str
    residuals: Any
    shorter: Any
    fixed: float
    constraint: int | None = None

    @property
    def text(self) -> str:
        """What has been replaced by what."""
        return f"the {self.kind} of {self.residuals.size:,} residuals as of {self.shorter.size}"

    def agrees(self) -> bool:
        """Whether both are as long at the values that the variables have now.

        Where a variable has none (one of the recogniser's own) only its check can tell.
        """
        long, short = self.residuals.value, self.shorter.value
        if long is None or short is None:
            return True
        first, second = (float(np.linalg.norm(np.ravel(part))) for part in (long, short))
        return abs(first - second) <= AGREEMENT * (max(first, second) + self.fixed)

    def lengthened(self, dual: Array) -> Array:
        """The dual values of the long cone, from those of the short one: bound and residuals."""
        head, short = np.ravel(dual)[0], np.ravel(dual)[1:]
        long, less = (read_affine(expr) for expr in (self.residuals, self.shorter))
        keys = list(less.blocks)
        rows = [expanded(less.blocks[key]) for key in keys]
        dense = [part.toarray() if sp.issparse(part) else np.asarray(part) for part in rows]
        triangle = np.column_stack([*dense, less.constant])
        # The columns' lengths say nothing of which of them depend on others.
        size = np.linalg.norm(triangle, axis=0)
        size[size == 0.0] = 1.0
        share = np.linalg.lstsq(triangle / size, short, rcond=None)[0] / size
        ends = np.cumsum([part.shape[1] for part in dense])
        *parts, last = np.split(share, ends)
        moved = last[0] * long.constant
        for key, part in zip(keys, parts, strict=True):
            moved = moved + expanded(long.blocks[key]) @ part
        return np.append(head, moved)


def with_triangles(
    problem: Any, *, objective: bool = False
) -> tuple[Any, tuple[Shortened, ...]]:
    """`problem` with triangles in place of long residuals under norms, and in bounded squares.

    Parameters
    ----------
    problem : cvxpy.Problem
    objective : bool
        Whether squares of the objective are meant, too.

    Returns
    -------
    cvxpy.Problem
        `problem` itself where it has none. Constraints that are written anew keep their
        identifiers.
    tuple of Shortened
    """
    cones = [constraint for constraint in problem.constraints if _is_one_cone(constraint)]
    if not (cones or (NORMS | SQUARES) & {atom.__name__ for atom in problem.atoms()}):
        return problem, ()
    anew: dict[int, Any] = {}
    made: list[Shortened] = []
    for cone in cones:
        found = _shorter(cone.args[1])
        if found is not None:
            made.append(Shortened("norm", cone.args[1], *found, cone.id))
            anew[id(cone)] = cone.copy([cone.args[0], found[0]])
    roots = [(problem.objective.expr, objective)]
    roots += [(arg, True) for constraint in problem.constraints for arg in constraint.args]
    for root, bounded in roots:
        for node, residuals in squares_and_norms(root, bounded):
            found = _shorter(residuals)
            if found is not None:
                shorter, fixed = found
                kind = "norm" if type(node).__name__ in NORMS else "squares"
                made.append(Shortened(kind, residuals, shorter, fixed))
                summed = type(node).__name__ == "Sum"
                anew[id(node)] = (
                    cp.sum_squares(shorter) if summed else node.copy([shorter, *node.args[1:]])
                )
    if not anew:
        return problem, ()
    least, *constraints = (
        exchanged(part, anew) for part in (problem.objective, *problem.constraints)
    )
    return cp.Problem(least, constraints), tuple(made)


def lengthened(duals: dict[int, Any], shortened: Iterable[Shortened]) -> dict[int, Any]:
    """Dual values by constraint, those of short cones as the long ones'."""
    longer = {
        one.constraint: one.lengthened(duals[one.constraint])
        for one in shortened if one.constraint is not None and one.constraint in duals
    }
    return {**duals, **longer} if longer else duals


def _is_one_cone(constraint: Any) -> bool:
    """Whether a constraint is one second-order cone of affine numbers."""
    if type(constraint) is not cp.SOC:
        return False
    bound, residuals = constraint.args
    return bool(bound.size == 1 and constraint.axis == 0 and residuals.ndim == 1)


def squares_and_norms(expr: Any, bounded: bool) -> Iterator[tuple[Any, Any]]:
    """Norms, and squares where these are `bounded`, with the residuals inside."""
    residuals = _residuals(expr, bounded)
    if residuals is not None:
        yield expr, residuals
    elif bounded or not _is_squared_norm(expr):
        for arg in expr.args:
            yield from squares_and_norms(arg, bounded)


def _residuals(expr: Any, bounded: bool) -> Any:
    """The affine expression of which `expr` is the norm, or the squares; None if it is neither."""
    if expr.size > 1 or not expr.args:
        return None
    name, inner = type(expr).__name__, expr.args[0]
    if name in NORMS:
        taken = is_two(expr.p)
    elif bounded and name == "Sum" and inner.args:
        weight, inner = _weighed(inner)
        taken = type(inner).__name__ in POWERS and is_two(inner.p)
        if taken:
            inner = inner.args[0] if weight is None else cp.multiply(weight, inner.args[0])
    else:
        taken = bounded and name == "quad_over_lin" and expr.args[1].is_constant()
    return inner if taken and inner.is_affine() else None


def _weighed(expr: Any) -> tuple[Any, Any]:
    """The roots of constant weights, and what they multiply entry by entry; None without any."""
    if type(expr).__name__ != "multiply" or expr.parameters():
        return None, expr
    weight, inner = expr.args if expr.args[0].is_constant() else expr.args[::-1]
    if not (weight.is_constant() and weight.is_nonneg()) or weight.shape != inner.shape:
        return None, expr
    value = weight.value
    return np.sqrt(value.toarray() if sp.issparse(value) else np.asarray(value)), inner


def _is_squared_norm(expr: Any) -> bool:
    """Whether `expr` is another spelling of squares."""
    return type(expr).__name__ in POWERS and type(expr.args[0]).__name__ in NORMS


def _shorter(residuals: Any) -> tuple[Any, float] | None:
    """An affine expression as long as `residuals` everywhere, with fewer rows; None without one.

    And its length where all variables are 0.
    """
    if residuals.parameters() or not residuals.is_real():
        return None
    while type(residuals).__name__ == "reshape":
        residuals = residuals.args[0]
    if residuals.ndim == 2 and min(residuals.shape) > 1:
        found = _of_factors(residuals)
        if found is not None:
            return found
    variables = residuals.variables()
    count = sum(variable.size for variable in variables)
    if residuals.size <= TALL * (count + 1):
        return None
    read = read_affine(residuals)
    triangle = triangle_of([read.blocks[variable.id] for variable in variables], read.constant)
    if not np.isfinite(triangle).all():
        return None
    ends = np.cumsum([variable.size for variable in variables])
    parts = np.split(triangle, ends, axis=1)
    linear = [
        part[:, 0] * variable if variable.ndim == 0 else part @ as_vector(variable)
        for part, variable in zip(parts, variables, strict=False)
    ]
    constant = parts[-1][:, 0]
    return sum(linear, constant), float(np.linalg.norm(constant))


def _of_factors(residuals: Any) -> tuple[Any, float] | None:
    """The same of a matrix ``sum_i A_i E_i + B``, by the triangle of ``[A_1, ..., B]``."""
    found = list(_products(residuals, 1.0))
    terms = [term for term in found if term is not None]
    if len(terms) < len(found):
        return None
    n, k = residuals.shape
    moving = [(factor, expr) for factor, expr in terms if expr is not None]
    fixed = sum((factor for factor, expr in terms if expr is None), np.zeros((n, k)))
    factors = [factor for factor, _ in moving]
    count = sum(factor.shape[1] for factor in factors)
    if n <= TALL * (count + k) or not moving:
        return None
    triangle = triangle_of(factors, fixed)
    if not np.isfinite(triangle).all():
        return None
    ends = np.cumsum([factor.shape[1] for factor in factors])
    *parts, constant = np.split(triangle, ends, axis=1)
    linear = [part @ expr for part, (_, expr) in zip(parts, moving, strict=True)]
    return sum(linear, constant), float(np.linalg.norm(constant))


def _products(expr: Any, sign: float) -> Iterator[tuple[Matrix, Any] | None]:
    """The terms of a sum as a constant matrix and what it multiplies; None for any other term.

    Of a constant term there is nothing that it multiplies.
    """
    kind = type(expr).__name__
    if expr.is_constant():
        value = expr.value
        yield sign * (value.toarray() if sp.issparse(value) else np.asarray(value)), None
    elif kind in ("AddExpression", "NegExpression"):
        for arg in expr.args:
            yield from _products(arg, -sign if kind == "NegExpression" else sign)
    elif kind == "MulExpression" and expr.args[0].is_constant() and expr.args[0].ndim == 2:
        factor = expr.args[0].value
        yield sign * (sp.csr_array(factor) if sp.issparse(factor) else factor), expr.args[1]
    elif kind == "broadcast_to" and expr.args[0].size == expr.shape[1]:
        row = cp.reshape(expr.args[0], (1, expr.shape[1]), order="C")
        yield np.full((expr.shape[0], 1), sign), row
    else:
        yield None


def triangle_of(blocks: list[Matrix], constant: Array) -> Array:
    """R of ``[blocks, constant] = Q R``, some rows after the others, shape (k, k) with k columns.

    Parameters
    ----------
    blocks : list of matrix, shape (n, k_i)
    constant : array, shape (n,) or (n, m)
    """
    constant = constant.reshape(len(constant), -1)
    n, k = len(constant), sum(block.shape[1] for block in blocks) + constant.shape[1]
    triangle = np.zeros((0, k))
    for first in range(0, n, BLOCK):
        index = np.arange(first, min(first + BLOCK, n))
        some = [expanded(take_rows(block, index)) for block in blocks]
        rows = [part.toarray() if sp.issparse(part) else part for part in some]
        lengthened = np.vstack([triangle, np.column_stack([*rows, constant[index]])])
        triangle = np.asarray(np.linalg.qr(lengthened, mode="r"))
    return triangle
