"""Faults in what looks at data past memory: its products, its certificate, what it calls proven."""

from __future__ import annotations

from faults.table import DROPPED, SHRUNK, SIGN, SLACK, STALE, STRICT, SWAPPED, of

CERTIFICATE = "certificates/test_one_pass.py"
REFUSES = f"{CERTIFICATE}::test_the_certificate_refuses_what_is_wrong"
AGREES = f"{CERTIFICATE}::test_the_gap_is_that_of_the_certificate_in_memory"
SAME = "solvers/test_streamed.py::test_same_answer_as_in_memory"
methods = of("designs/chunks.py", f"{CERTIFICATE}::test_the_same_methods_as_rows")
factors = of("designs/chunks.py", f"{CERTIFICATE}::test_rounding_stays_within_the_factors")
survey = of("core/streamed.py",
            "solvers/test_streamed.py::test_nan_in_a_late_chunk_is_named")
certificate = of("certificates/one_pass.py", REFUSES, AGREES,
                 f"{CERTIFICATE}::test_an_unbalanced_dual_point_proves_nothing",
                 f"{CERTIFICATE}::test_rounding_of_margins_near_a_kink_is_charged",
                 f"{CERTIFICATE}::test_rounding_of_the_pull_is_charged",
                 f"{CERTIFICATE}::test_the_gap_under_an_l1_term_is_that_of_the_certificate_in_memory")
taken = of("certificates/certificate.py",
           f"{CERTIFICATE}::test_an_unbalanced_dual_point_proves_nothing")
proof = of("solvers/streamed.py",
           "solvers/test_streamed.py::test_nothing_proven_is_wrong",
           "solvers/test_streamed.py::test_an_intercept_is_not_bounded",
           "solvers/test_streamed.py::test_the_ball_is_measured_in_the_metric_of_the_quadratic_term",
           "solvers/test_streamed.py::test_rounding_of_a_margin_near_a_kink_is_charged",
           "solvers/test_streamed.py::test_the_radius_is_not_larger_than_it_must_be")
look = of("solvers/streamed.py", SAME)
model = of("solvers/streamed.py", SAME)
streams = of("out_of_core/streams.py",
             "out_of_core/test_streams.py::test_workers_do_not_change_a_bit",
             "out_of_core/test_streams.py::test_gather_takes_rows_in_order",
             "out_of_core/test_streams.py::test_tree_has_one_shape_whatever_arrives_first")
listed = of("designs/chunks.py", SAME, REFUSES)
device = of("out_of_core/device.py",
            "out_of_core/test_device.py::test_products_are_within_the_bounds_of_double_precision",
            "out_of_core/test_device.py::test_nan_is_found_and_its_row_named")

FAULTS = (
    methods("the intercept in a margin", DROPPED, "out += x[p]", "out += 0.0",
            "margins without the intercept"),
    methods("the sign of a sample in a margin", DROPPED, "out *= self.scale", "out *= 1.0",
            "margins of the other class"),
    methods("the sign of a sample in a pull", DROPPED,
            "weights = theta if self.scale is None else theta * self.scale", "weights = theta",
            "the dual point of another problem"),
    methods("the intercept in a pull", DROPPED, "out[p] = weights.sum()", "out[p] = 0.0",
            "an unbalanced dual point is called balanced"),
    methods("the scale of a squared row", SHRUNK, "out * self.scale * self.scale",
            "out * abs(self.scale)",
            "sizes of rows too small"),
    methods("what underflow takes off rows in chunks", DROPPED,
            "out[few] = self.take(few).rows().weighted_squares(weights)", "pass",
            "rows taken for points", "designs/test_rounding.py::"
            "test_norms_of_rows_whose_squares_underflow_are_not_too_small"),
    factors("levels of the tree of sums", SLACK, "return gamma(within + levels + 4)",
            "return gamma(1)", "a pull is trusted beyond its rounding"),
    factors("columns in a margin", SLACK, "return gamma(self.longest + self.intercept + 4)",
            "return 0.01 * gamma(1)", "a margin is trusted beyond its rounding"),
    survey("infinite entries", DROPPED, "if not _finite(block):", "if False:",
           "NaN goes unnoticed"),
    certificate("slopes outside their box", DROPPED, "if found.outside:", "if False:",
                "a bad answer is certified"),
    certificate("what is listed", DROPPED, "        theta[at] = known\n", "",
                "a good answer is refused"),
    certificate("the Fenchel-Young terms", DROPPED, "gap = found.gap * (1 + problem.n * EPS) + 0.5",
                "gap = 0.5", "a bad answer is certified"),
    certificate("the distance of x from its dual point", DROPPED, "+ 0.5 * distance**2 + side_gap",
                "+ side_gap", "a bad answer is certified"),
    certificate("the penalty's term", DROPPED,
                "side_gap, x_error = near.x_theta, near.remainder, near.x_error",
                "side_gap, x_error = near.x_theta, 0.0, near.x_error", "a bad answer is certified"),
    certificate("the imbalance", DROPPED, "+ side_gap + imbalance", "+ side_gap",
                "a dual point proves what it cannot"),
    certificate("the linear term in the pull", SIGN,
                "dual_residual = found.At_theta + problem.linear",
                "dual_residual = found.At_theta - problem.linear", "a good answer is refused"),
    certificate("the pull on x", SIGN, "x_theta[bent] = -dual_residual[bent]",
                "x_theta[bent] = dual_residual[bent]",
                "a good answer is refused"),
    certificate("rounding of the margins", SLACK,
                "margin_rounding = design.forward_factor * float(np.linalg.norm(x))",
                "margin_rounding = 0.0",
                "a gap below the rounding is certified"),
    certificate("rounding of the pull", SLACK,
                "adjoint_error = found.load / root * design.adjoint_factor * (1.0 + "
                "problem.n * EPS)",
                "adjoint_error = 0.0", "a gap below the rounding is certified"),
    certificate("another x's slopes", STALE,
                "if isinstance(theta, Slopes) and np.array_equal(theta.x, x):",
                "if isinstance(theta, Slopes):", "slopes of another point are taken for these"),
    taken("room for the imbalance", SWAPPED, "(rate[fit] / size[fit]).min(initial=np.inf)",
          "(rate[fit] / size[fit]).min(initial=0.0)", "an unbalanced dual point proves something"),
    taken("both directions of a listed slope", SWAPPED, "return need * max(costs)",
          "return need * min(costs)", "an unbalanced dual point costs too little",
          "certificates/test_certificate.py::"
          "test_the_cost_is_that_of_the_direction_that_is_needed"),
    proof("the radius", SHRUNK, "radius = up(float(np.sqrt(2.0 * gap)))",
          "radius = 0.5 * float(np.sqrt(2.0 * gap))", "terms are called proven wrongly"),
    proof("the metric of the ball", SWAPPED, "weights = 1.0 / problem.quadratic.diagonal",
          "weights = problem.quadratic.diagonal", "terms are called proven wrongly"),
    proof("an intercept that nothing bounds", DROPPED,
          "if problem.quadratic.free.any() or not np.isfinite(gap):",
          "if not np.isfinite(gap):", "terms are called proven that are not"),
    proof("rounding of what is proven", SLACK,
          "reach += self.unit_error * np.sqrt(chunk.squares(np.ones(chunk.width)))", "reach += 0.0",
          "a kink within the rounding of a margin is passed"),
    look("the pull of decided terms", SIGN, "decided = At_theta - chunk.take(other)",
         "decided = At_theta + chunk.take(other)", "the reduced problem is another one"),
    look("parabolas that are folded", DROPPED, "if bent else None", "if False else None",
         "the reduced problem lacks its curvature"),
    look("terms that may not be folded", DROPPED, "codes[curved] = Piece.UNDECIDED",
         "codes[curved] = Piece.ZERO", "the reduced problem lacks terms",
         "solvers/test_streamed.py::test_terms_on_parabolas_are_kept_where_features_are_many"),
    model("the pull in the linear term", DROPPED, "linear = problem.linear + seen.decided_At_theta",
          "linear = problem.linear", "the reduced problem is another one"),
    streams("the order of neighbours", SWAPPED, "pair if other < place else pair[::-1]",
            "pair", "rows come back in another order"),
    streams("rows of a chunk", STRICT, 'np.searchsorted(bounds, rows, side="right") - 1',
            'np.searchsorted(bounds, rows, side="left") - 1',
            "the first row of a chunk is another"),
    listed("rows of the chunk", STALE, "return self.index[first:last] - rows.start,",
           "return self.index[first:last],", "slopes are listed for other rows"),
    device("rows beyond the last strip", DROPPED, "    if whole < n:\n", "    if False:\n",
           "a pull lacks rows"),
    device("double precision", SLACK,
           "return self.xp.astype(self.rows, self.xp.float64, copy=False)", "return self.rows",
           "products rounded to single precision pass for doubles"),
    device("finite entries", DROPPED, "return bool(self.xp.all(self.xp.isfinite(self.rows)))",
           "return True", "NaN goes unnoticed"),
)
