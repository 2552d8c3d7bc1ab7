"""Faults of sums of norms of residuals: their step, what a residual costs, what is eliminated."""

from __future__ import annotations

from faults.table import DROPPED, SHRUNK, SIGN, STRICT, of

COST = "certificates/test_residual_norms.py"
cost = of("certificates/residual_norms.py", f"{COST}::test_no_better_point_gains_more",
          f"{COST}::test_the_cost_is_attained",
          f"{COST}::test_what_norms_do_not_bound_is_not_bounded",
          f"{COST}::test_a_bad_answer_is_refused")
STEP = "solvers/test_norm_terms.py"
step = of("solvers/norm_terms.py", f"{STEP}::test_the_step_solves_the_whole_equations",
          f"{STEP}::test_the_face_is_newtons_step",
          "cvxpy_plugin/test_norms_of_residuals.py::test_answers_agree_with_clarabel")
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
    step("the eliminated head of the curvature", SIGN, "ratio = -2.0 * self.w0[owner]",
         "ratio = 2.0 * self.w0[owner]", "steps lead elsewhere"),
    step("the curvature along a residual", DROPPED, "own -= crossed.T @ crossed", "own -= 0.0",
         "steps lead elsewhere"),
    alone("bounds in other rows", DROPPED, "alone &= (uses[heads] == 1) & (scales > 0.0)",
          "alone &= (scales > 0.0)", "a constraint is lost"),
)
