"""Faults in what goes round the solvers: rounds, answers, starts, looks ahead, balance."""

from __future__ import annotations

from faults.table import DROPPED, SHRUNK, SIGN, SLACK, STALE, STRICT, SWAPPED, of

rows = of("solvers/rows.py", "solvers/test_loop.py")
record = of("solvers/screened.py", "solvers/test_run.py", "solvers/test_broken_solvers.py")
centred = of("solvers/centred.py", "solvers/test_centred.py::"
             "test_nothing_that_holds_of_the_centre_is_said_of_the_data")
carried = of("solvers/solution.py", "solvers/test_centred.py::"
             "test_nothing_that_holds_of_the_centre_is_said_of_the_data")
answer = of("solvers/solution.py", "solvers/test_run.py")
newton = of("solvers/newton.py", "solvers/test_newton.py")
pivots = of("solvers/dual_pivots.py", "solvers/test_dual_pivots.py::"
            "test_they_reach_the_optimum_from_a_cold_start")
warm = of("solvers/solution.py", "solvers/test_dual_active_set.py")
interior = of("solvers/box_qp.py", "solvers/test_box_qp.py")
truncated = of("solvers/truncated_newton.py", "solvers/test_truncated_newton.py::"
               "test_every_smooth_loss_is_solved")
begins = of("solvers/beginning.py", "solvers/test_truncated_newton.py::"
            "test_the_beginning_depends_on_the_dual")
descends = of("solvers/dual_coordinate_descent.py", "solvers/test_truncated_newton.py::"
              "test_descent_keeps_to_its_budget")
EXTRAPOLATES = ("solvers/test_dual_coordinate_descent.py::"
                "test_extrapolation_only_moves_to_a_higher_dual_objective")
ahead = of("solvers/metric/sequence.py", "solvers/metric/test_metric_ahead.py")
metric = of("paths/path.py", "paths/test_metric_path.py")
chunks = of("paths/path.py", "paths/test_path.py::test_a_checkpoint_of_data_in_chunks")
few = of("solvers/few_terms.py", "solvers/test_solve.py::test_data_that_leave_nothing_to_do")
path = of("paths/path.py", "solvers/test_linear_program.py")
balance = of("core/duality.py", "core/test_balance.py", "core/test_duality.py")
batch = of("certificates/many.py", "certificates/test_many.py")

FAULTS = (
    rows("safe mode guesses", DROPPED, 'return self.mode == "certified" and can_pay',
         "return can_pay", "safe mode leaves out what nothing proves",
         "solvers/test_loop.py::test_safe_mode_leaves_out_only_what_is_proven"),
    rows("predictions recorded as proofs", STALE,
         "return accept_reduction(\n",
         "self.screening.selection.codes[:] = chosen.codes\n"
         "        return accept_reduction(\n",
         "the screening of a solution claims what was only guessed",
         "solvers/test_loop.py::test_predictions_are_never_recorded_as_proofs"),
    rows("the worse of two points", SIGN, "or point.gap < best.gap", "or point.gap > best.gap",
         "the answer is not the best that was found",
         "solvers/test_run.py::test_the_best_point_stays_the_best"),
    rows("points without a finite gap", DROPPED,
         "better = (blind or bool(off.any()))", "better = bool(off.any())",
         "what several rounds have found is dropped, and the first point given back",
         "cvxpy_plugin/test_largest_losses.py::test_repeated_rows_are_certified"),
    record("the certificate of the point before", STALE,
        "if self._proof is None or self._proof[0] is not point:", "if self._proof is None:",
        "an answer is handed out with another one's certificate",
        "solvers/test_run.py::test_every_point_gets_its_own_certificate"),
    record("every answer called optimal", DROPPED, "status=self.limits.word(answer.proof.ok)",
        "status=self.limits.word(True)", "an answer that is not certified is called optimal",
        "solvers/test_broken_solvers.py::test_a_broken_solver_never_yields_optimal"),
    record("zeros that violate constraints", DROPPED,
        "feasible = proof.violation == proof.primal_residual == 0.0", "feasible = True",
        "a call without any time answers what is not feasible",
        "estimators/test_estimators.py::test_no_time_and_no_point_is_an_error"),
    carried("the status of the centred problem", STALE,
            'status = "optimal" if answer.proof.ok else "inaccurate"', "status = self.status",
            "an answer that is not certified on the data is called optimal"),
    centred("centred entries that were rounded", DROPPED,
            "return bool(((share > WITHIN) & (share < 1.0 / WITHIN)).all())", "return True",
            "left-out margins are proven of rounded data", "solvers/test_centred.py::"
            "test_entries_that_are_rounded_on_the_way_are_not_taken_for_exact"),
    carried("what is proven of the centred data", STALE,
            "certificate=answer.proof, earlier=nothing,", "certificate=answer.proof,",
            "a proof about rounded data is handed out as one about the data"),
    answer("an answer's A' theta with the wrong sign", SIGN,
           "known = passes.margins, passes.At_theta", "known = passes.margins, -passes.At_theta",
           "what is proven from a certified answer is wrong",
           "solvers/test_dual_active_set.py::test_a_point_from_known_products_is_the_point"),
    answer("products of another x under a penalty", STALE, "plain = self.problem.penalty is None",
           "plain = True", "what is proven from a certified answer is wrong",
           "solvers/test_run.py::test_the_point_of_an_answer_under_a_penalty"),
    newton("a solver that goes on with another problem", STALE,
           "or not isinstance(left, cls) or left.problem is not problem:",
           "or not isinstance(left, cls):", "another problem is solved",
           "solvers/test_newton.py::test_a_solver_goes_on_only_where_it_stopped"),
    newton("a solver that goes on from another point", STALE,
           "if not np.array_equal(left.x, start.x):", "if False:", "a start is not used",
           "solvers/test_newton.py::test_a_solver_goes_on_only_where_it_stopped"),
    pivots("a step past the end of a box", SLACK, "            if room < length:\n",
           "            if room < 0.0:\n", "pivots do not end"),
    pivots("a rotation of the factor", SIGN, "c * there - s * here", "c * there + s * here",
           "pivots do not end", "solvers/test_dual_pivots.py::"
           "test_the_factor_loses_any_column"),
    pivots("a dependent row that pulls the basis the wrong way", SIGN, "moves[p] *= -way",
           "moves[p] *= way", "rows that are there twice keep pivots from the optimum",
           "solvers/test_dual_pivots.py::test_repeated_rows_do_not_enter"),
    pivots("a centre that stays", STALE, "v[free] = 2.0 * ahead - centre", "v[free] = ahead",
           "pivots beside an intercept do not reach the optimum",
           "solvers/test_dual_pivots.py::test_repeated_rows_do_not_enter"),
    truncated("curvature with the wrong sign", SIGN,
              "subtract_multiple(i, -slope, rows, product)",
              "subtract_multiple(i, slope, rows, product)", "conjugate gradients go astray"),
    truncated("a step without the linear term", DROPPED,
              "first += step[j] * columns.linear[j]", "first += 0.0 * columns.linear[j]",
              "steps have the wrong length", "solvers/test_truncated_newton.py::"
              "test_squares_of_different_weights_and_a_linear_term"),
    truncated("systems that are never hard", DROPPED,
              "hard = used > price or coming * (used - each) > matrix", "hard = False",
              "hard systems take as many products as they like",
              "solvers/test_truncated_newton.py::test_hard_systems_are_solved_by_their_matrix"),
    truncated("rows that leave their piece unseen", STALE,
              "elif was & now & ((e == 0.0) | (slope * before > 0.0)):", "elif True:",
              "the gradient is that of other slopes", "solvers/test_truncated_newton.py::"
              "test_the_gradient_that_is_followed_is_the_gradient"),
    truncated("rows that change the side of an even loss", DROPPED,
              "((e == 0.0) | (slope * before > 0.0))", "(e >= 0.0)",
              "the gradient is that of other slopes", "solvers/test_truncated_newton.py::"
              "test_the_gradient_that_is_followed_is_the_gradient"),
    truncated("damping that stays in the gradient", DROPPED,
              "gradient[free] -= length * damping * columns.step[free]", "gradient[free] -= 0.0",
              "the gradient beside an intercept is that of another objective",
              "solvers/test_truncated_newton.py::"
              "test_the_gradient_that_is_followed_is_the_gradient"),
    truncated("gaps near rounding on trust", DROPPED,
              "if self.aim >= TRUSTED * abs(value):", "if True:",
              "a gap is told that rounding has made", "solvers/test_truncated_newton.py::"
              "test_no_gap_near_rounding_is_taken_on_trust"),
    truncated("slopes that miss an intercept's equation", DROPPED, "theta[rows] = moved",
              "moved = theta[rows]", "no gap beside an intercept is small"),
    truncated("a gap of other slopes", STALE,
              "            At_theta = problem.design.adjoint(theta)\n", "",
              "the gap that is told is not that of the pair",
              "solvers/test_truncated_newton.py::test_the_gap_that_it_tells_is_the_gap"),
    truncated("a start that is worse than nothing", SIGN,
              "problem.primal(start.x, t) < problem", "problem.primal(start.x, t) > problem",
              "a bad start is gone on from",
              "solvers/test_truncated_newton.py::test_a_start_that_is_worse_than_nothing_is_none"),
    begins("descent where the dual is hard", SWAPPED, "return hardness(problem) > HARD",
           "return hardness(problem) < HARD", "the slower way is begun with"),
    begins("an end that nobody goes on from", DROPPED, "        if found.usable:\n",
           "        if start is not None:\n", "what coordinate descent has found is forgotten",
           "solvers/test_truncated_newton.py::"
           "test_newton_goes_on_where_descent_is_given_up"),
    descends("a budget that is only looked at in forecasts", DROPPED,
             "left = left and self.passes < self.solver.budget", "left = bool(left)",
             "coordinate descent beside an intercept goes on for ever"),
    descends("an extrapolation wherever it leads", DROPPED,
             "        if gain > 0.0:\n            theta[i] = past[i, 0]\n",
             "        if gain == gain:\n            theta[i] = past[i, 0]\n",
             "the dual objective falls, and slopes are no longer those of v", EXTRAPOLATES),
    descends("an extrapolation judged without the parabolas", DROPPED,
             "            gain -= 0.5 * terms.q[i] * (new * new - now * now)\n", "",
             "it is taken where it leads down", EXTRAPOLATES),
    descends("one order for all data", DROPPED,
             "rest, past = done + REST, 0", "rest = done",
             "counts of words take four times as many passes as without extrapolation",
             "solvers/test_dual_coordinate_descent.py::"
             "test_what_does_not_help_is_left_for_a_while"),
    descends("pivots where epochs are soon done", DROPPED,
             " and (plan.exact or left * count >= price)", "",
             "an easy problem takes twice the time", "solvers/test_dual_pivots.py::"
             "test_where_epochs_are_soon_done_there_are_none"),
    warm("a light start at the x of the duals", STALE, "        factor * answer.x, theta,",
         "        -problem.quadratic.solve(factor * At_theta), theta,",
         "a path starts from products that are not those of its point",
         "solvers/test_run.py::test_a_light_start_keeps_x_apart_from_that_of_the_duals"),
    warm("a light start from an uncertified answer", DROPPED,
         "if answer is None or not answer.proof.ok or not plain", "if answer is None or not plain",
         "a path goes on from a point that is not solved",
         "solvers/test_run.py::test_no_light_start_from_what_is_not_certified"),
    warm("a light start at the old C", STALE, "passes=(factor * margins, factor * At_theta),",
         "passes=(margins, At_theta),",
         "a path starts from products that are not those of its point",
         "solvers/test_dual_active_set.py::test_a_light_start_says_what_an_evaluated_one_says"),
    interior("the sum restored the wrong way", SIGN, "return np.asarray(c + (short / free) * room)",
             "return np.asarray(c - (short / free) * room)",
             "a block of a kernel problem leaves the balance",
             "solvers/test_box_qp.py::test_minimiser_is_optimal_and_at_its_bounds_exactly",
             "solvers/test_box_qp.py::test_the_sum_is_restored_on_the_side_a_kinked_term_is_on"),
    interior("a kinked term moved past its kink", SWAPPED,
             "above[self.kinked] = np.where(c[self.kinked] < 0, 0.0, hi[self.kinked])",
             "above[self.kinked] = hi[self.kinked]", "a term is on both sides of its kink",
             "solvers/test_box_qp.py::test_the_sum_is_restored_on_the_side_a_kinked_term_is_on"),
    interior("the kink of a negative box", SIGN, "np.where(lo >= 0, e, -e), e[self.kinked]]",
             "np.where(lo >= 0, e, e), e[self.kinked]]", "another kernel problem is solved",
             "solvers/test_box_qp.py::test_minimiser_is_optimal_and_at_its_bounds_exactly",
             "solvers/test_box_qp.py::test_boxes_on_one_side_of_the_kink"),
    ahead("a range of lam by the smaller sphere", SHRUNK,
          "radius = max(sphere.radius for sphere in spheres)",
          "radius = min(sphere.radius for sphere in spheres)",
          "triplets are taken away wrongly between two values of lam",
          "solvers/metric/test_metric_ahead.py::test_what_is_decided_for_a_range_is_right_all_over_it"),
    ahead("what was decided for other lam", STALE,
          "if self.task is None or not self.low <= lam <= self.high:", "if self.task is None:",
          "triplets are taken away wrongly at the lam after the range",
          "solvers/metric/test_metric_ahead.py::test_what_is_decided_for_a_range_is_right_all_over_it"),
    ahead("a range of lam by the sphere at one end", STALE, "for lam in (self.low, self.high)]",
          "for lam in (self.high, self.high)]",
          "triplets are taken away wrongly at the other end",
          "solvers/metric/test_metric_ahead.py::test_what_is_decided_for_a_range_is_right_all_over_it"),
    metric("an unfinished point of a metric path", DROPPED, 'elif row["status"] == TIME:',
           "elif False:", "a path holds a point that was cut short",
           "paths/test_metric_path.py::test_a_point_that_was_cut_short_is_not_part_of_a_path"),
    chunks("a checkpoint without the slopes at kinks", DROPPED,
           "slopes = Slopes(here, finite(\"x\", point.x, (here.d,)), _listed(point, here.n))",
           "slopes = Slopes(here, finite(\"x\", point.x, (here.d,)), "
           "ListedValues(np.zeros(0, int), np.zeros(0)))",
           "a path over data in chunks refuses its own checkpoint"),
    chunks("a checkpoint with slopes of no term", DROPPED,
           "if (rows != found[0]).any() or (np.diff", "if (np.diff",
           "slopes of other terms than those that were kept are certified"),
    chunks("a checkpoint with the slopes in disorder", DROPPED,
           "or (np.diff(rows, prepend=-1, append=n) <= 0).any():", "or False:",
           "slopes of other terms than those that were kept are certified"),
    few("nothing left of every product", DROPPED, "not (np.isfinite(gap) and total > 0.0):",
        "not np.isfinite(gap):", "targets of zeros are divided by zero"),
    few("a prediction from near kept whatever comes", STALE, "if not past.any():", "if True:",
        "terms are left on pieces that the answer has left",
        "solvers/test_few_terms.py::test_what_was_predicted_wrongly_is_found"),
    few("a square beyond all numbers", SLACK, "float(np.square(np.abs(dual).max()))",
        "float(np.abs(dual).max()) ** 2", "weights beyond all measure raise",
        "solvers/test_solve.py::test_weights_beyond_all_measure_are_no_reason_to_raise"),
    path("an unfinished point of a path", DROPPED, "if point.status == TIME:", "if False:",
         "a path holds a point that was cut short",
         "solvers/test_linear_program.py::test_a_point_that_was_cut_short_is_not_part_of_a_path"),
    balance("the target with the wrong sign", SIGN,
            "residual = self.columns.T @ point + self.target",
            "residual = self.columns.T @ point - self.target",
            "dual points are balanced against another linear term",
            "core/test_balance.py::test_few_trials_to_rounding",
            "core/test_balance.py::test_a_target_is_met"),
    balance("terms far from a kink forgotten", DROPPED, "target + rest.T @ still,", "target,",
            "a dual point near a kink is balanced without the others",
            "core/test_balance.py::test_few_trials_to_rounding"),
    balance("a projection that leaves its box", DROPPED,
            "point = np.clip(self.theta - self.mobility * (self.columns @ tau), self.lo, self.hi)",
            "point = self.theta - self.mobility * (self.columns @ tau)",
            "dual points are infeasible",
            "core/test_balance.py::test_few_trials_to_rounding"),
    balance("an exact sum without its low parts", SLACK,
            "return math.fsum([start, *product.tolist(), *rest.tolist()])",
            "return math.fsum([start, *product.tolist()])",
            "a balance that only rounding makes is called exact",
            "core/test_balance.py::test_an_exact_sum_is_the_correctly_rounded_one"),
    balance("room on the wrong side", SWAPPED, "upward = np.where(e > 0, rise, fall) * size",
            "upward = np.where(e > 0, fall, rise) * size", "an imbalance is charged too little",
            "core/test_balance.py::test_what_is_left_over_is_charged_by_the_cheapest_term_with_room"),
    batch("many certificates without the balance's rounding", SLACK,
          "+ fixed.imbalance + fixed.rounding * sums[k, 3])", "+ fixed.imbalance)",
          "an infeasible dual point is certified on a path",
          "certificates/test_many.py::test_the_rounding_of_a_balance_is_charged"),
    batch("many certificates without endless boxes", DROPPED, "        if points.endless:\n"
          "                gap += _endless_above", "        if False:\n                gap += "
          "_endless_above", "a gap below the true one is certified on a path",
          "certificates/test_many.py::"
          "test_the_noise_of_a_margin_counts_with_the_slope_of_a_squared_loss"),
    batch("what a single certificate refuses", STRICT,
          "relative[k] = proof.relative_gap if proof.ok else max(proof.relative_gap, 2.0 * tol)",
          "relative[k] = proof.relative_gap", "a refused point is certified on a path",
          "certificates/test_many.py::test_what_a_single_certificate_refuses_is_refused"),
)
