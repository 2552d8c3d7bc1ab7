"""Faults under an L1 norm without a quadratic term, and in the parts of the bounds beside one."""

from __future__ import annotations

from faults.table import DROPPED, SHRUNK, SIGN, SLACK, of

ALONE = "solvers/test_pure_l1.py"
EXACT = "bounds/test_pure_l1_bounds.py::test_slopes_are_feasible_in_exact_arithmetic"
pulls = of("bounds/features_and_samples.py",
           "bounds/test_features_and_samples.py::test_intervals_contain_the_optimum",
           "solvers/test_rows_and_columns.py::test_a_known_pull_costs_no_pass")
stages = of("bounds/features_and_samples.py",
            "solvers/test_rows_and_columns.py::test_parts_of_a_bound")
pure_l1 = of("core/duality.py", EXACT)
answer = of("solvers/solution.py",
            "solvers/test_rows_and_columns.py::test_slopes_of_an_answer_are_feasible")
proof = of("certificates/certificate.py",
           f"{ALONE}::test_the_certificate_refuses_what_is_not_optimal",
           f"{ALONE}::test_the_gap_bounds_the_distance_from_the_optimum",
           f"{ALONE}::test_slopes_beyond_the_constraint_are_worth_what_is_left_of_them",
           f"{ALONE}::test_a_lambda_below_the_rounding_of_a_pass_proves_nothing",
           f"{ALONE}::test_agrees_with_cvxpy")

FAULTS = (
    pulls("the pull of a pass", SIGN, "v = -(problem.design.adjoint(slopes) + problem.linear)",
          "v = problem.design.adjoint(slopes) + problem.linear", "features are dropped wrongly"),
    pulls("the pull that a point knows", SIGN, "v = -(point.At_theta + problem.linear)",
          "v = point.At_theta + problem.linear", "features are dropped wrongly"),
    stages("the samples' part of a bound on both", DROPPED, "(dual_ball, primal_ball) if",
           "(dual_ball,) if", "half of what a bound proves is never asked"),
    pure_l1("the share of slopes that is feasible", SHRUNK,
            "share = (1.0 - 16.0 * UNIT) / largest",
            "share = 1.01 * (1.0 - 16.0 * UNIT) / largest", "a dual value is too large"),
    pure_l1("the constraint on the slopes", DROPPED, "if largest * (1.0 + 8.0 * UNIT) <= 1.0:",
            "if True:", "slopes are called feasible that are not"),
    answer("slopes of an answer beyond the constraint", DROPPED,
           "if not self.problem.pure_l1:", "if True:", "an answer is not dual feasible"),
    proof("the terms of the coordinates", DROPPED, "fy.sum() + np.maximum(norm, 0.0).sum()",
          "fy.sum()", "a bad answer is certified"),
    proof("the force on a coordinate", SIGN, "kappa + share * np.sign(x) * At_theta",
          "kappa - share * np.sign(x) * At_theta", "a good answer is refused"),
    proof("slopes beyond the constraint as they are", DROPPED,
          "share = 1.0 if beyond <= 1.0 else (1.0 - 8.0 * EPS) / beyond", "share = 1.0",
          "a bad answer is certified"),
    proof("the room that rounding leaves", SLACK, "room = kappa - At_error", "room = kappa",
          "slopes are called feasible that may not be"),
)
