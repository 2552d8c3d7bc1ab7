"""Faults of sums of norms of residuals: their step, what a residual costs, what is eliminated."""

from __future__ import annotations

from faults.table import DROPPED, SHRUNK, SIGN, SLACK, STALE, STRICT, SWAPPED, of

COST = "certificates/test_residual_norms.py"
cost = of("certificates/residual_norms.py", f"{COST}::test_no_better_point_gains_more",
          f"{COST}::test_the_cost_is_attained",
          f"{COST}::test_what_norms_do_not_bound_is_not_bounded",
          f"{COST}::test_a_bad_answer_is_refused",
          f"{COST}::test_a_residual_of_long_sums_is_no_larger_than_its_bound",
          f"{COST}::test_products_that_all_round_the_same_way_are_no_more_than_the_bound")
STEP = "solvers/test_cones.py"
step = of("solvers/cones.py", f"{STEP}::test_the_step_solves_the_whole_equations",
          f"{STEP}::test_the_face_is_newtons_step",
          "cvxpy_plugin/test_norms_of_residuals.py::test_answers_agree_with_clarabel")
blocks = of("core/norm_blocks.py", f"{STEP}::test_the_step_solves_the_whole_equations",
            f"{STEP}::test_the_face_is_newtons_step",
            f"{STEP}::test_of_sparse_blocks_no_dense_ones_are_made")
READ = "cvxpy_plugin/test_row_norms.py"
read = of("cvxpy_plugin/recognise/row_norms.py", f"{READ}::test_the_numbers_are_those_of_the_norms",
          f"{READ}::test_answers_agree_with_clarabel")
start = of("solvers/cones.py", f"{READ}::test_a_start_takes_no_path",
           f"{READ}::test_other_values_of_a_parameter_start_from_the_last_optimum")
unseen = of("core/duality.py",
            "core/test_duality.py::test_coordinates_that_no_term_has_are_left_as_they_are")
alone = of("core/cones.py",
           "cvxpy_plugin/test_norms_of_residuals.py::test_bounds_that_are_not_free_are_not_eliminated",
           "cvxpy_plugin/test_norms_of_residuals.py::test_norms_are_found_by_their_own_bounds")

FAULTS = (
    cost("what a residual of norms costs", SHRUNK, "known.steepest * length / known.least",
         "0.99 * known.steepest * length / known.least", "a bad answer is certified"),
    cost("what a better point may be worth", DROPPED, "* (here + reached) + ratio",
         "* here + ratio", "a bad answer is certified"),
    cost("coordinates that no norm bounds", DROPPED, "if not least > 0.0:", "if False:",
         "a bad answer is certified"),
    cost("bounds that cost nothing", STRICT, "(cost > 0.0).all()", "(cost >= 0.0).all()",
         "a bad answer is certified"),
    cost("how far a linear cost lets better points go", DROPPED,
         "(primal - problem.constant + known.shift) / known.kept",
         "(primal - problem.constant + known.shift)", "a bad answer is certified"),
    cost("what a linear cost is worth where the norms are least", DROPPED,
         "shift = -float(v @ b) + rounding", "shift = 0.0 + rounding", "a bad answer is certified"),
    cost("a linear cost in what a residual is", DROPPED,
         "of_losses[known.others].astype(wide) + problem.linear[known.others]",
         "of_losses[known.others].astype(wide) + 0.0", "a bad answer is certified"),
    step("the eliminated head of the curvature", SIGN, "ratio = -2.0 * self.w0[owner]",
         "ratio = 2.0 * self.w0[owner]", "steps lead elsewhere"),
    blocks("the curvature along a residual", DROPPED, "own -= crossed.T @ crossed", "own -= 0.0",
           "steps lead elsewhere"),
    cost("what rounding hides of a long sum", SLACK, "gamma(CHUNK + 2) +", "0.0 +",
         "a bad answer is certified"),
    read("the costs of norms that are left", STALE, "weight[paying]", "weight[: len(paying)]",
         "norms are weighed by others' weights"),
    read("rows and columns of outputs", SWAPPED, "ladder if atom.axis % 2 == 1 else ladder.T",
         "ladder.T if atom.axis % 2 == 1 else ladder", "norms are of other entries"),
    start("multipliers at the present costs", STALE, "tails * share[self.norms.owner]", "tails",
          "a start is of no use"),
    unseen("what no term has no slope takes up", DROPPED,
           "return _if_exact(problem, theta, target)  # what no term has no slope takes up",
           "return 0.0", "a bad answer is certified"),
    alone("bounds in other rows", DROPPED, "alone &= (uses[heads] == 1) & (scales > 0.0)",
          "alone &= (scales > 0.0)", "a constraint is lost"),
)
