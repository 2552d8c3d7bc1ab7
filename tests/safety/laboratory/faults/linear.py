"""Faults of the certificate of linear programs, and of what is taken for a chain."""

from __future__ import annotations

from faults.table import DROPPED, SIGN, STRICT, of

WHERE = "certificates/test_linear_program.py"
proof = of(
    "certificates/linear_program.py", f"{WHERE}::test_an_optimum_is_proven",
    f"{WHERE}::test_the_gap_bounds_what_a_feasible_point_is_above_the_optimum",
    f"{WHERE}::test_a_violated_row_is_no_optimum",
    f"{WHERE}::test_a_violated_equation_is_no_optimum",
    f"{WHERE}::test_a_multiplier_of_the_wrong_sign_is_seen",
    f"{WHERE}::test_what_stationarity_lacks_is_charged",
)
plugin = of(
    "cvxpy_plugin/chained.py", "cvxpy_plugin/test_chained.py::test_a_wrong_answer_is_not_handed_out"
)
sizes = of("cvxpy_plugin/size.py",
           "cvxpy_plugin/test_chained.py::test_losses_above_a_number_of_any_sign_are_not_read")
CHAINS = "solvers/test_chains.py"
chain = of(
    "solvers/chains.py", f"{CHAINS}::test_links_with_three_neighbours_are_no_chain",
    f"{CHAINS}::test_the_optimum_and_its_multipliers",
)

FAULTS = (
    proof("what stationarity lacks", DROPPED,
          "gap = abs(value - bound) + 2.0 * float(np.abs(left) @ np.abs(x))",
          "gap = abs(value - bound)", "multipliers of another objective prove a point"),
    proof("a violated row", SIGN,
          "np.maximum(-s[equal:], 0.0)", "np.maximum(s[equal:], 0.0)",
          "rows that do not hold are not seen"),
    proof("a violated equation", DROPPED,
          "over[equal:] = np.maximum(-s[equal:], 0.0)", "over = np.maximum(-s, 0.0)",
          "an equation may be missed from above"),
    proof("the sign of a multiplier", DROPPED,
          "size(left, signs)", "size(left)", "a negative multiplier is certified"),
    plugin("an answer that is none", STRICT,
           "if not (found.solved and proof.violation <= ENOUGH):", "if not found.solved:",
           "the solver's own word is enough"),
    sizes("a level in a constraint as one of any sign", DROPPED,
          "self.above.keys() - set().union(*self.constrained)", "self.above.keys()",
          "losses that could be screened are not read"),
    sizes("few losses above a level as most of them", DROPPED,
          "chained |= lines >= max(terms, 1.0)", "chained |= lines > 0.0",
          "losses that could be screened are not read"),
    sizes("a norm inside all losses as a kink of each", DROPPED,
          "return int(expr.size == size and not expr.is_affine())", "return 1",
          "losses that could be screened are not read"),
    chain("links with three neighbours", STRICT,
          ".max() <= 1 else None", ".max() <= 1e9 else None",
          "a grid is solved as if it were a chain"),
    chain("slacks of a long row", DROPPED,
          "matrix[g:, g:] -= (of_slacks / self.pivots) @ of_slacks.T", "pass",
          "a budget of all slacks leads nowhere"),
)
