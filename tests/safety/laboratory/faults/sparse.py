"""Faults in the bounds on features and samples together."""

from __future__ import annotations

from faults.table import DROPPED, SHRUNK, SIGN, SWAPPED, of

synergy = of("bounds/features_and_samples.py", "bounds/test_features_and_samples.py")
budget = of("bounds/features_and_samples.py", "bounds/test_features_and_samples.py")
columns = of(
    "designs/rows.py",
    "designs/test_rows.py::test_squares_of_columns_are_those_of_the_rows_with_their_factors",
)
problem = of("core/problem.py",
             "designs/test_rows.py::test_norms_of_columns_are_in_the_metric_of_the_curvatures")

FAULTS = (
    columns("what underflow takes off columns", DROPPED,
            "out[few] += np.where(filled, SMALLEST * (1.0 + len(weights)) * factors, 0.0)", "pass",
            "columns taken for zeros", "designs/test_rounding.py::"
            "test_norms_of_columns_whose_squares_underflow_are_not_too_small"),
    synergy("the primal ball beside the dual one", SHRUNK,
            'of="primal"))))', 'of="primal")))) * 0.99', "samples are fixed wrongly",
            "bounds/test_sparse_tightness.py::test_the_primal_box_is_attained"),
    synergy("the dual ball", SHRUNK, "radius = up(float(np.sqrt(up(max(total",
            "radius = 0.99 * up(float(np.sqrt(up(max(total", "features are dropped wrongly",
            "bounds/test_features_and_samples.py::test_dual_ball_is_tight"),
    synergy("the box of the coordinates", SHRUNK,
            "away = (radius / np.sqrt(self.weights))", "away = (0.99 * radius / "
            "np.sqrt(self.weights))", "features are called needed wrongly",
            "bounds/test_sparse_tightness.py::test_the_primal_box_is_attained"),
    synergy("the box of the margins", SHRUNK, "outward(margins, radius * norms + error)",
            "outward(margins, 0.99 * radius * norms + error)", "samples are fixed wrongly",
            "bounds/test_sparse_tightness.py::test_the_primal_box_is_attained"),
    synergy("the box of the slopes", SHRUNK, "reach = np.where(rest, radius / np.sqrt(q), 0.0)",
            "reach = np.where(rest, 0.99 * radius / np.sqrt(q), 0.0)",
            "samples are called needed wrongly",
            "bounds/test_features_and_samples.py::test_dual_ball_is_tight"),
    synergy("the box of the pulls", SHRUNK, "return around(problem, middle, radius * norms)",
            "return around(problem, middle, 0.99 * radius * norms)",
            "features are dropped wrongly",
            "bounds/test_sparse_tightness.py::test_the_box_of_a_pull_is_attained"),
    synergy("the primal and the dual side added up twice", SHRUNK,
            "total -= 0.25 * square(self.apart(~settled & self.curved)[0])",
            "total -= 0.5 * square(self.apart(~settled & self.curved)[0])",
            "joint proves more than it knows",
            "bounds/test_features_and_samples.py::test_intervals_contain_the_optimum"),
    synergy("what is known of samples counted twice", SHRUNK,
            "return 0.5 * total * (1.0 - gamma(len(rows) + 16))", "return total",
            "features are dropped wrongly",
            "bounds/test_sparse_tightness.py::test_what_settled_samples_have_used_of_the_gap_is_taken_off_exactly"),
    synergy("the budget without Fenchel-Young terms", DROPPED,
            "total = point.terms + share", "total = share", "samples are fixed wrongly",
            "bounds/test_features_and_samples.py::test_intervals_contain_the_optimum"),
    budget("the knapsack", SHRUNK, "return best * (1.0 + 8.0 * UNIT)", "return 0.99 * best",
           "features are dropped wrongly",
           "bounds/test_sparse_tightness.py::test_the_budget_is_the_optimum_of_its_linear_program"),
    budget("the knapsack without its budget", DROPPED, "return mu * gap + total",
           "return total", "features are dropped wrongly",
           "bounds/test_sparse_tightness.py::test_the_budget_is_the_optimum_of_its_linear_program"),
    budget("the knapsack's two rooms exchanged", SWAPPED,
           "room = np.where(value > 0, up_room[rows], down_room[rows])",
           "room = np.where(value > 0, down_room[rows], up_room[rows])",
           "features are dropped wrongly",
           "bounds/test_sparse_tightness.py::test_the_budget_is_the_optimum_of_its_linear_program"),
    budget("slopes that cost more than they do", SHRUNK,
           "claim = np.where(np.isfinite(claim), claim, 0.0)",
           "claim = np.where(np.isfinite(claim), 1.1 * claim, 0.0)",
           "features are dropped wrongly",
           "bounds/test_sparse_tightness.py::test_the_budget_is_the_optimum_of_its_linear_program"),
    budget("intervals of pulls turned round", SIGN, "return v - less - error, v + more",
           "return v - more - error, v + less", "features are dropped wrongly",
           "bounds/test_sparse_tightness.py::test_the_budget_is_the_optimum_of_its_linear_program"),
    columns("squares of columns without the rows' factors", DROPPED,
            "matrix[rows] if scale is None else scale[rows, None] * matrix[rows]", "matrix[rows]",
            "features are dropped wrongly"),
    columns("squares of the factors of sparse rows before those of the entries", DROPPED,
            "data = data * np.repeat(scale, np.diff(matrix.indptr))",
            "data = data * np.sqrt(np.repeat(scale**2, np.diff(matrix.indptr)))",
            "features are dropped wrongly", "designs/test_rounding.py::"
            "test_norms_of_long_rows_with_short_factors_are_right"),
    columns("squares of dense columns without the weights of their rows", DROPPED,
            "np.square(block, dtype=np.float64), weights[rows])",
            "np.square(block, dtype=np.float64), np.ones(len(block)))",
            "features are dropped wrongly"),
    problem("norms of columns without the terms' curvature", DROPPED,
            "self.known.column_norms = np.sqrt(weights[0]) * self.column_sizes",
            "self.known.column_norms = self.column_sizes",
            "features are dropped wrongly"),
)
