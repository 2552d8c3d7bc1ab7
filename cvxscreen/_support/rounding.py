"""Floating-point error constants, in one place.

All decisions are computed in IEEE double precision with unit roundoff ``u = 2**-53``. A sum of
products of ``k`` terms, in any order, has relative error at most ``gamma(k)`` with respect to the
sum of absolute values (Higham, *Accuracy and Stability of Numerical Algorithms*, Lemma 3.1).

Proofs: ``docs/theory.md``, section 11.
"""

from __future__ import annotations

UNIT = 2.0**-53
"""Unit roundoff of double precision."""

TINY = 2.0**-1000
"""Added where a product could underflow; far below anything that matters."""


def gamma(k: float) -> float:
    """Relative error bound ``k u / (1 - k u)`` of a ``k``-term sum of products."""
    ku = float(k) * UNIT
    if ku >= 0.5:
        return float("inf")
    return ku / (1.0 - ku)


def square(value: float) -> float:
    """`value` times itself: infinite where it is too large, for which a power raises an error."""
    return value * value


def up(value: float, operations: int = 8) -> float:
    """A non-negative `value` computed with at most `operations` roundings, rounded outward."""
    return value * (1.0 + 2.0 * operations * UNIT) + TINY
