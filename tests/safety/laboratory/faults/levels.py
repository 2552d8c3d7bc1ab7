"""Faults of the certificates that neighbouring quantile levels share."""

from __future__ import annotations

from faults.table import DROPPED, SIGN, SLACK, STRICT, SWAPPED, of

WHERE = "certificates/test_levels.py"
sides = of(
    "certificates/many.py", f"{WHERE}::test_a_side_that_is_not_that_of_the_margin_is_refused",
    f"{WHERE}::test_two_wrong_sides_that_balance_each_other_are_refused",
    f"{WHERE}::test_a_margin_within_its_rounding_of_the_kink_is_charged",
    f"{WHERE}::test_the_residual_is_at_least_the_exact_one",
    f"{WHERE}::test_a_gap_beyond_the_tolerance_is_refused",
    f"{WHERE}::test_slopes_beyond_their_ends_are_refused",
    f"{WHERE}::test_the_gap_bounds_what_is_lost",
    f"{WHERE}::test_what_is_proven_together_is_what_is_proven_alone",
)

FAULTS = (
    sides("whether margins are on their sides", DROPPED,
          "if wrong[k] or (below", "if (below", "a wrong prediction is certified"),
    sides("the side that a term is on", SIGN,
          "np.where(high, error, -error)", "np.where(high, error, error)",
          "terms below their kinks are on their side though rounding may hide that"),
    sides("the rounding of a margin on its side", SLACK,
          "(unsure & near) @ (w * error[rows])", "0.0 * (near @ w)",
          "a margin may be on the other side than it seems"),
    sides("which terms rise", SWAPPED,
          "slopes[0], slopes[1] = w * side, w * mine", "slopes[0], slopes[1] = w * mine, w * mine",
          "the slopes that are judged are not those of the sides"),
    sides("the rounding of A' theta", SLACK,
          "unsure = (3.0 * design.adjoint_factor + 16.0 * EPS)", "unsure = 0.0",
          "a residual that rounding hides is not charged"),
    sides("a level whose gap is too large", STRICT,
          "0.0, tol, relative <= tol,", "0.0, tol, relative <= 1e3 * tol,",
          "a point beyond the tolerance is called optimal"),
    sides("slopes within their ends", DROPPED,
          "if wrong[k] or (below < 0.0).any() or (above < 0.0).any():", "if wrong[k]:",
          "a conjugate that is infinite is not looked at"),
    sides("which terms lose", SWAPPED,
          "np.maximum(above * (z + off), below * (off - z))",
          "np.maximum(above * (off - z), below * (z + off))",
          "terms lose on the wrong side of their kinks"),
)
