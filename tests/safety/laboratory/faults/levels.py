"""Faults of the certificates that neighbouring quantile levels share."""

from __future__ import annotations

from faults.table import DROPPED, SIGN, SLACK, STRICT, SWAPPED, of

WHERE = "certificates/test_levels.py"
lines = of(
    "certificates/levels.py", f"{WHERE}::test_a_line_that_does_not_belong_to_its_margin_is_refused",
    f"{WHERE}::test_a_margin_within_its_rounding_of_the_kink_is_not_taken_to_be_on_a_side",
    f"{WHERE}::test_the_linear_term_is_within_what_is_charged_of_the_exact_one",
    f"{WHERE}::test_a_gap_is_judged_by_the_objective_of_all_terms",
    f"{WHERE}::test_the_gap_bounds_what_is_lost",
)

FAULTS = (
    lines("whether margins are on their lines", DROPPED,
          "holds and proof.ok", "proof.ok", "a wrong prediction is certified"),
    lines("the side that a line is on", SIGN,
          "np.where(codes == Piece.HIGH, 1.0, -1.0)",
          "np.where(codes == Piece.HIGH, 1.0, 1.0)",
          "terms below their kinks are not looked at"),
    lines("the rounding of a margin beside its line", SLACK,
          "own + (unit * length) * sizes[rows]", "own",
          "a margin may be on the other side than it seems"),
    lines("which lines rise", SWAPPED,
          "np.where(codes == Piece.HIGH, weight, 0.0)", "np.where(codes == Piece.LOW, weight, 0.0)",
          "the smaller problem is no relaxation"),
    lines("the rounding of the lines' sum", SLACK,
          "unsure = 2.0 * design.adjoint_factor + 16.0 * EPS", "unsure = 0.0",
          "a residual that rounding hides is not charged"),
    lines("a level whose gap is too large", STRICT,
          "relative <= proof.tolerance", "relative <= 1e3 * proof.tolerance",
          "a point beyond the tolerance is called optimal"),
    lines("what a level is certified against", DROPPED,
          "near = not np.isinf(proof.within)", "near = False",
          "what holds for points nearby is said of all"),
    lines("the objective of all terms", DROPPED,
          "primal = float(rising[k] - level * total[k])",
          "primal = proof.primal", "constants that cancel are taken for the objective"),
)
