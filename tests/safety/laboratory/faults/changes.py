"""Faults in what is proven about changed data."""

from __future__ import annotations

from faults.table import DROPPED, SHRUNK, SIGN, SLACK, STALE, STRICT, SWAPPED, of

INSIDE = "bounds/test_data_changes.py::test_the_optimum_without_a_term_is_inside"
left_out = of("bounds/data_changes.py", INSIDE)
BESIDE = "bounds/test_data_changes.py::test_attained_beside_an_intercept"
OTHERS = (
    "bounds/test_data_changes.py"
    "::test_left_out_margins_under_other_penalties_kernels_and_dense_forms"
)
MOVED = "bounds/test_data_changes.py::test_a_range_that_moves_the_intercept_is_attained"
CENTRED = (
    "bounds/test_data_changes.py::test_centred_forms_are_those_of_rows_that_are_centred"
)
DISTANCE = (
    "bounds/test_data_changes.py"
    "::test_the_distance_without_a_term_is_attained_beside_an_intercept"
)
NEAR = "bounds/test_data_changes.py::test_the_optimum_without_a_term_is_as_near_as_is_said"
WEIGHTS = "data_changes/test_reweight.py::test_weights_are_repetitions_and_the_proofs_hold"
reweighted = of("data_changes/reweight.py", WEIGHTS)
RANGE = "bounds/test_data_changes.py::test_the_optimum_of_any_weights_is_inside"
ATTAINED = "bounds/test_data_changes.py::test_a_range_of_weights_is_attained_by_an_isolated_term"
TOGETHER = (
    "bounds/test_data_changes.py::test_one_term_moves_a_margin_as_far_as_it_moves_the_optimum"
)
ranged = of("bounds/data_changes.py", RANGE)
CERTIFIED = "certificates/test_weightings.py"
SHIFTED = f"{CERTIFIED}::test_the_shift_of_an_intercept_is_attained_between_two_medians"
together = of("certificates/weightings.py", f"{CERTIFIED}::test_it_holds_the_gap_of_any_answer")
WITHOUT_ROWS = "certificates/test_left_out.py"
without = of("certificates/weightings.py", f"{WITHOUT_ROWS}::test_it_holds_the_gap_of_any_answer")
changed = of("data_changes/reweight.py", WEIGHTS)
KERNELS = "certificates/test_kernels.py"
KERNEL = f"{KERNELS}::test_without_a_term_of_a_kernel_it_is_that_of_the_weighted_problem"
ATTAINED_BY_TWO = f"{KERNELS}::test_the_reach_without_a_term_of_a_kernel_is_attained"
REFUSED = f"{KERNELS}::test_bad_answers_without_a_term_of_a_kernel_are_refused"
kernels = of("certificates/kernels.py", KERNEL)
AS_FAR = f"{KERNELS}::test_how_far_slopes_say_is_attained"
APART = f"{KERNELS}::test_points_that_are_nearly_one_stay_apart"
points = of("designs/gram.py", APART)
IN_THE_WAY = f"{KERNELS}::test_terms_that_are_about_to_come_to_a_kink_stand_in_the_way"
paths = of("data_changes/refits.py", "data_changes/test_leave_one_out.py"
           "::test_the_reach_of_a_refit_of_rows_is_attained")
ends = of("data_changes/refits.py", "data_changes/test_leave_one_out.py"
          "::test_the_path_of_a_slope_ends_at_the_optimum_without_it")
as_rows = of("data_changes/refits.py", "data_changes/test_leave_one_out.py"
             "::test_only_a_linear_kernel_of_few_features_is_taken_as_rows")
WITHOUT = "data_changes/test_leave_one_out.py::test_agrees_with_fits_without_the_term"
margins = of("data_changes/leave_one_out.py", WITHOUT)
blocks = of("data_changes/refits.py", WITHOUT)
features = of("data_changes/refits.py", "data_changes/test_leave_one_out.py"
              "::test_a_gram_matrix_stands_for_rows_under_the_identity_alone")
POINTS = (
    "data_changes/test_leave_one_out.py"
    "::test_the_comparisons_of_a_point_in_any_place_leave_together"
)
grouped = of("data_changes/refits.py", POINTS)
moves = of("data_changes/refits.py", "data_changes/test_influence.py"
           "::test_blocks_find_the_distances_of_refits_made_alone")
RANGES = "data_changes/test_weight_range.py::test_a_linear_kernel_has_the_ranges_of_its_rows"
of_kernels = of("data_changes/reweight.py", RANGES)
joined = of("designs/gram.py", "designs/test_gram.py::test_new_points_join_a_kernel")
paired = of("designs/gram.py", RANGES)
SCORES = "data_changes/test_several_classes.py"
INSIDE_THE_SCORES = f"{SCORES}::test_scores_of_any_margins_inside_are_inside"
ONE_SCORE = "estimators/test_leave_one_out.py::test_one_score_of_several_classes"
classes = of("data_changes/leave_one_out.py", INSIDE_THE_SCORES)
tasks = of("data_changes/leave_one_out.py", "estimators/test_leave_one_out.py"
           "::test_a_sample_of_a_task_is_left_out_at_the_matrix_of_the_fit")
means_of_losses = of("estimators/sparse.py", ONE_SCORE)
ROWS = "cvxpy_plugin/test_rows_left_out.py::test_every_row_is_what_a_refit_of_the_problem"
rows = of("cvxpy_plugin/rows_left_out.py", f"{ROWS}_without_it_says")

FAULTS = (
    rows("rows of a CVXPY problem in the order of its terms", STALE,
         "value=value).taken(rows.term)", "value=value)",
         "left-out margins are those of other rows"),
    rows("margins of a CVXPY problem's hinges from the argument alone", DROPPED,
         "outward(losses.b - losses.e - 1.0, reach)", "outward(0.0 * losses.b, reach)",
         "a fixed offset in a hinge decides left-out classes wrongly"),
    rows("residuals of a CVXPY problem", SIGN, "as_written = rows.sign < 0",
         "as_written = rows.sign > 0", "left-out residuals have the wrong sign"),
    left_out("left-out margins", SHRUNK, "up(1.0, 16) * np.sqrt(up(point.terms)",
             "0.99 * np.sqrt(up(point.terms)", "a left-out class is decided wrongly",
             "bounds/test_data_changes.py::test_attained_by_a_term_orthogonal_to_the_others"),
    left_out("margins without a group in 0.99 of their ball", SHRUNK,
             "reach = norms * radius + error[rows]", "reach = 0.99 * norms * radius + error[rows]",
             "a class without its group is decided wrongly",
             "bounds/test_data_changes.py::test_a_group_is_attained_by_rows_along_one_line"),
    left_out("margins without a group from the old centre", DROPPED,
             "outward(base[rows] + 0.5 * along", "outward(base[rows] + 0.0 * along",
             "a class without its group is decided wrongly",
             "bounds/test_data_changes.py::test_a_group_is_attained_by_rows_along_one_line"),
    left_out("margins without a group without the Fenchel-Young terms", DROPPED,
             "np.sqrt(up(point.terms) + 0.25 * up(away) ** 2)", "np.sqrt(0.25 * up(away) ** 2)",
             "a loose solution decides the classes of a group wrongly",
             "bounds/test_data_changes.py::test_the_optimum_without_a_group_is_inside"),
    left_out("left-out margins without the Fenchel-Young terms", DROPPED,
             "np.sqrt(up(point.terms) + 0.25 * away * away)", "np.sqrt(0.25 * away * away)",
             "a loose solution decides left-out classes wrongly"),
    left_out("left-out margins without the term's own slope", DROPPED,
             "away = up(1.0, 16) * (distance + np.abs(point.theta) * n_i)",
             "away = up(1.0, 16) * distance",
             "left-out classes are those of the full fit"),
    changed("weights that shrink a curvature", SIGN, "f.q / factor, 0.0)", "f.q * factor, 0.0)",
            "a reweighted squared loss is another one", WEIGHTS),
    reweighted("slopes that keep their old weights", STALE,
               "_changed(solution, weighted(problem, w), w * solution.theta, tol, mode)",
               "_changed(solution, weighted(problem, w), 0.5 * w * solution.theta, tol, mode)",
               "the ball of changed data is not that of the scaled slopes",
               "data_changes/test_reweight.py"
               "::test_the_ball_is_attained_by_a_term_orthogonal_to_the_others"),
    left_out("an influence without the ball's radius", DROPPED,
             "(half + np.sqrt(up(1.0) * terms + half * half))", "half",
             "terms move the optimum further than their bound",
             "data_changes/test_influence.py::test_influence_bounds_what_refits_find"),
    left_out("an influence in 0.99 of its ball", SHRUNK,
             "return np.asarray(up(1.0, d + 32) * (half", "return np.asarray(0.99 * (half",
             "terms move the optimum further than their bound", DISTANCE),
    left_out("an influence beside an intercept whose mix has no end", DROPPED,
             "possible = (others > 0.0) & (tau <= mix.room)", "possible = others > 0.0",
             "an intercept that nothing holds is taken for held", NEAR, DISTANCE),
    left_out("an influence beside an intercept without the mix's costs", DROPPED,
             "terms = point.terms + tau * mix.rate + 0.5 * tau * tau * mix.curvature\n"
             "            far", "terms = point.terms\n            far",
             "terms move the optimum further than their bound",
             "bounds/test_data_changes.py::test_the_distance_charges_what_balancing_costs"),
    left_out("lengths of rows of changed data that are centred the wrong way", SIGN,
             "square = norms**2 - 2.0 * free * along", "square = norms**2 + 2.0 * free * along",
             "ranges of weights beside an intercept are too short", MOVED, RANGE),
    ranged("a range beside an intercept in 0.99 of its reach", SHRUNK,
           "np.where(good, up(1.0, 32) * reach + self.error, np.inf)",
           "np.where(good, 0.99 * reach + self.error, np.inf)",
           "a prediction is called certain under weights that change it", MOVED),
    ranged("a range beside an intercept that nothing needs to hold", DROPPED,
           "good = (left > 0.0) & (step > 0.0) & (tau <= mix.room) & np.isfinite(reach)",
           "left, step, good = abs(left), abs(step), np.isfinite(reach)",
           "an intercept that nothing holds is taken for held",
           "bounds/test_data_changes.py"
           "::test_no_range_is_known_where_the_intercepts_pin_may_lose_its_weight"),
    ranged("a range beside an intercept without what moving slopes costs", DROPPED,
           "terms = terms + grown * (tau * mix.rate + 0.5 * tau * tau * mix.curvature)",
           "terms = 1.0 * terms",
           "a prediction is called certain under weights that change it",
           "bounds/test_data_changes.py::test_a_range_charges_what_balancing_costs", RANGE),
    ranged("pairs of rows that are not centred", DROPPED,
           "products -= np.outer(along[rows], a)", "products -= 0.0 * a",
           "a prediction is called certain under weights that change it", CENTRED),
    ranged("the centred form with one cross term too many", SIGN,
           "gram = gram - cross - cross.T + float", "gram = gram - cross - cross.T - float",
           "a range beside an intercept is too short", CENTRED),
    left_out("a left-out term moves the centre the wrong way", SIGN,
             "outward(base + 0.5 * pulled", "outward(base - 0.5 * pulled",
             "a left-out class is decided wrongly"),
    left_out("left-out margins beside an intercept", SHRUNK, "np.isfinite(reach), reach, np.inf)",
             "np.isfinite(reach), 0.99 * reach, np.inf)", "a left-out class is decided wrongly",
             BESIDE),
    left_out("slopes at a kink that leave their box", DROPPED,
             "np.clip(sign * a * (theta + side * h), 0.0, mix.room * others)",
             "np.clip(sign * a * (theta + side * h), 0.0, np.inf)",
             "an intercept that nothing holds is taken for held",
             "bounds/test_data_changes.py"
             "::test_nothing_is_known_without_the_term_that_holds_the_intercept"),
    left_out("the mix at the kinks pulls the wrong way", SIGN,
             "product = gone * n_i**2 - tau * products",
             "product = gone * n_i**2 + tau * products",
             "a left-out class beside an intercept is decided wrongly", OTHERS),
    left_out("what moving slopes costs", DROPPED,
             "above = point.terms + tau * mix.rate + 0.5 * tau * tau * mix.curvature",
             "above = point.terms", "a left-out class beside an intercept is decided wrongly",
             INSIDE, OTHERS),
    ranged("a range of weights in 0.99 of its ball", SHRUNK,
           "reach = self.norms * radius + self.error",
           "reach = 0.99 * self.norms * radius + self.error",
           "a prediction is called certain under weights that change it", ATTAINED),
    ranged("a range of weights that leaves the centre where it is", DROPPED,
           "outward(self.middle, up(1.0, 16) * (reach + 0.5 * S * self.down))",
           "outward(self.middle, up(1.0, 16) * reach)",
           "a prediction is called certain under weights that change it", ATTAINED),
    ranged("a range of weights with the radius of the present ones", DROPPED,
           "away = up(1.0, 8) * (self.distance + S * self.x_rate)",
           "away = up(1.0, 8) * self.distance",
           "a prediction is called certain under weights that change it", ATTAINED),
    ranged("the longest term in place of the largest singular value", SHRUNK,
           """if weights.norm == "l2":
        return widest""",
           """if weights.norm == "l2":
        return float(lengths.max())""",
           "terms that change their weights together move more than is bounded", TOGETHER),
    ranged("an interval of weights taken upside down", SIGN,
           "return rounding * (rise @ self.high - fall @ self.low), rounding * (",
           "return rounding * (fall @ self.high - rise @ self.low), rounding * (",
           "unequal intervals of the weights are bounded on the wrong side",
           "bounds/test_data_changes.py::test_unequal_intervals_of_the_weights_are_attained"),
    together("terms taken to stay on their piece however far the answers are", DROPPED,
             "(around.room >= distance * (1.0 + 8.0 * EPS)) & ",
             "",
             "terms that have left their piece are not looked at",
             f"{CERTIFIED}::test_terms_stay_on_their_piece_up_to_their_knot_and_no_further"),
    together("a distance by the curvature that trusts its factor", DROPPED,
             "far = np.maximum(length, rest / (_share(d) * size))", "far = length",
             "terms that have left their piece are not looked at",
             f"{CERTIFIED}::test_distances_by_the_curvature_reach_the_knot_and_no_further"),
    together("rows at 0.99 of their length by the curvature", SHRUNK,
             "length = np.sqrt(square) + spare", "length = 0.99 * np.sqrt(square) + spare",
             "terms that have left their piece are not looked at",
             f"{CERTIFIED}::test_distances_by_the_curvature_reach_the_knot_and_no_further"),
    together("terms of weight 0 that may pull", DROPPED, "outside += theta != 0.0",
             "outside += 0", "a slope outside its box is certified",
             f"{CERTIFIED}::test_bad_answers_are_refused"),
    together("terms that left their piece and are not looked at closer", DROPPED,
             "if inside & (theta == w * own[SLOPE, i]):", "if theta == w * own[SLOPE, i]:",
             "an answer far from optimal is certified"),
    together("terms far from the answers' ball that left their piece", DROPPED,
             "more, t = more[left], t[:, left]", "more, t = more[:0], t[:, :0]",
             "an answer far from optimal is certified"),
    together("balancing at 0.99 of its cost", SHRUNK,
             "off = abs(b + e * np.sign(s) + q * s - t)",
             "off = 0.99 * abs(b + e * np.sign(s) + q * s - t)",
             "an answer whose slopes do not balance is certified",
             f"{CERTIFIED}::test_what_balancing_costs_is_attained"),
    together("the linear terms' pull with the wrong sign", SIGN,
             "At_theta = rest.At_theta + theta @ A.T",
             "At_theta = theta @ A.T - rest.At_theta",
             "the dual point of a weighting is another one",
             f"{CERTIFIED}::test_each_is_that_of_the_weighted_problem"),
    together("slopes of parabolas that stay what they were", DROPPED,
             "At_theta = At_theta + of_parabolas", "At_theta = At_theta + 0.0 * of_parabolas",
             "the dual point of a weighting is another one"),
    together("a term off its margin on a parabola that adds nothing to the gap", STALE,
             "np.where(around.rates[rows] > 0.0, np.inf, around.below[rows])",
             "around.below[rows]", "answers with old slopes are certified"),
    together("a parabola that goes on past its zone without loss", STRICT,
             "np.where(whole | (s < 0.0), first, right)", "first",
             "terms are taken to be on a parabola that they have left",
             f"{CERTIFIED}::test_terms_stay_on_their_parabola_up_to_its_ends_and_no_further"),
    of("certificates/many.py", f"{CERTIFIED}::test_it_holds_the_gap_of_any_answer")(
        "a gap without its Fenchel-Young terms", DROPPED,
        "gap = sums[k, 1] * (1.0 + fixed.sums) + 0.5 * distance * distance",
        "gap = 0.5 * distance * distance", "an answer far from optimal is certified"),
    together("intercepts within 0.99 of their shift", SHRUNK,
             "up = block.A, block.own, 1.0 + 64.0 * EPS", "up = block.A, block.own, 0.99",
             "left-out classes beside an intercept are decided wrongly",
             SHIFTED),
    together("an intercept's shift without the step away from the kink", DROPPED,
             "loose[k] + step * (off + distance", "loose[k] + step * (distance",
             "left-out classes beside an intercept are decided wrongly", SHIFTED),
    together("an intercept's shift from either side taken for both", STRICT,
             "falls = min(falls, bound)", "rises = falls = min(falls, bound)",
             "an intercept that nothing bounds is bounded",
             f"{CERTIFIED}::test_no_shift_is_proven_where_no_term_can_balance"),
    together("a left-out term that still pulls", DROPPED,
             "self.total[:d] - self.parts[W.index, :d]",
             "self.total[:d] - 0.0 * self.parts[W.index, :d]",
             "refits without a term are those with it",
             f"{CERTIFIED}::test_a_left_out_term_is_a_weight_of_zero"),
    features("a Gram matrix of rows without their labels", SIGN,
             "Gram(kernel, design.scale), problem.losses", "Gram(kernel), problem.losses",
             "left-out classes of rows with many features are decided at other margins"),
    features("a Gram matrix for rows under another M", DROPPED,
             "bool((problem.quadratic.diagonal == 1.0).all())", "True",
             "left-out classes are those of another regulariser"),
    features("a Gram matrix for rows beside a linear part", DROPPED,
             "and not problem.linear.any() and problem.drift ==", "and problem.drift ==",
             "left-out classes are those of another objective"),
    features("a Gram matrix for rows of other lengths", DROPPED,
             "bool((np.abs(design.scale) == 1.0).all())", "True",
             "left-out classes are those of other rows"),
    without("terms beyond those near that left their piece", DROPPED,
            "gap[left] = np.inf", "pass",
            "a left-out answer far from optimal is certified"),
    without("a term beyond those near that still pulls", DROPPED,
            "parts, place = around", "parts, place = 0.0 * around",
            "refits without a term are those with it",
            f"{WITHOUT_ROWS}::test_each_is_that_of_its_weights"),
    without("a term on a parabola beyond those near that still pulls", DROPPED,
            "hessian[far[place >= 0]] -= around", "hessian[far[place >= 0]] -= 0.0 * around",
            "refits without a term are those with it",
            f"{WITHOUT_ROWS}::test_each_is_that_of_its_weights"),
    without("terms beyond half the distance of a left-out answer", SHRUNK,
            "if beyond.room[p] >= length *", "if beyond.room[p] >= 0.5 * length *",
            "terms that have left their piece are not looked at",
            f"{WITHOUT_ROWS}::test_a_term_beyond_those_near_may_go_up_to_its_knot_and_no_further"),
    without("a left-out answer's distance that trusts its factor", DROPPED,
            "length = max(length, left / (64.0 * EPS * (d + 8) * beyond.width)) *",
            "length = length *",
            "terms that have left their piece are not looked at",
            f"{WITHOUT_ROWS}::test_a_term_beyond_those_near_may_go_up_to_its_knot_and_no_further"),
    without("the sums of those near counted twice", STALE,
            "total = around.total - parts.sum(axis=0)", "total = around.total",
            "the dual point of a left-out answer is another one",
            f"{WITHOUT_ROWS}::test_each_is_that_of_its_weights"),
    paths("refits of rows within 0.99 of their reach", SHRUNK,
          "error = n_i * np.sqrt(", "error = 0.99 * n_i * np.sqrt(",
          "left-out classes are decided wrongly by a refit"),
    ends("slopes at a kink of a kernel that answer with the wrong sign", SIGN,
         "= -at.inverse[np.ix_(kink, kink)]", "= at.inverse[np.ix_(kink, kink)]",
         "no path of a left-out term of a kernel ends at its optimum",
         "data_changes/test_leave_one_out.py"
         "::test_the_path_of_a_slope_of_a_kernel_ends_at_the_optimum_without_it"),
    ends("a path whose changes of the inverse lose their size", DROPPED,
         "shares[c] = changes[c, L] * changes[c, key]", "shares[c] = changes[c, key]",
         "no path of a left-out term ends at its optimum"),
    margins("terms at a kink that are taken to change nothing", STRICT,
            "(f.piece_within(low, high) == Piece.ZERO) | zero",
            "(f.piece_within(low, high) != Piece.LOW) | zero",
            "left-out classes are those of the fit with the term"),
    margins("residuals with the ends of the margins' intervals", SWAPPED,
            "low, high, value = target - high, target - low, target - value",
            "low, high, value = target - low, target - high, target - value",
            "an interval of a left-out residual is upside down"),
    margins("a term with no slope in a group that moves the optimum", DROPPED,
            "unchanged = ~np.isin(groups.labels, groups.labels[~unchanged])", "pass",
            "the value without a group is said to be that of the whole fit", POINTS),
    grouped("refits of a group of points written to the terms of its anchors", STALE,
            "found[:, 0] = groups.entries[group]",
            "found[:, 0] = groups.entries[group] // 3 * 3",
            "margins without one point are those without another"),
    grouped("a point's comparisons leave with it where it is the anchor only", DROPPED,
            "np.unique(self.of_entries[own], return_inverse=True) for own in self.entries",
            "np.unique(np.where(own % width, own[0] // width, own // width), return_inverse=True)"
            " for own in self.entries",
            "a class without a point is decided with some of its comparisons still there"),
    moves("distances between optima with the intercept in them", DROPPED,
          "moved = np.square(X - x) @ problem.quadratic.diagonal",
          "moved = np.square(X - x).sum(axis=1)",
          "a term moves the optimum by more than its bound says"),
    of_kernels("an intercept counted from the centre of fewer points", STALE,
               "x[-1] = solution.intercept + wider.offset(x)", "pass",
               "predictions over a range of weights are those of another intercept"),
    joined("new points of a kernel that are not moved as the known ones", STALE,
           "new = new - self._middle", "new = new - 0.5 * self._middle",
           "kernel values of new points are those of others"),
    paired("inner products of a kernel's points that are not centred", DROPPED,
           "out -= means[points][:, None] + (means[columns] - self.kernel.square_of_centre)",
           "pass", "a range beside an intercept is that of other points"),
    paired("inner products of a kernel without the labels of terms", SIGN,
           "out *= other.sign[others]", "pass", "a prediction is certain that is not"),
    paths("slopes of dependent rows that move with the others", SIGN,
          "np.append(-made[:, j], 1.0)", "np.append(made[:, j], 1.0)",
          "left-out terms of data with repeated rows are refitted without paths",
          "data_changes/test_leave_one_out.py"
          "::test_slopes_of_rows_that_depend_on_each_other_come_to_a_vertex"),
    blocks("answers of a block in another order than their terms", STALE,
           "np.column_stack((index.astype(float), *outward(margins, error), margins))",
           "np.column_stack((np.sort(index).astype(float), *outward(margins, error), margins))",
           "left-out margins are those of other terms"),
    kernels("a kernel's refits within 0.99 of their reach", SHRUNK,
            "away = self.problem.norms[index] * np.sqrt(gap)",
            "away = 0.99 * self.problem.norms[index] * np.sqrt(gap)",
            "left-out classes of a kernel are decided wrongly", ATTAINED_BY_TWO),
    kernels("a kernel's terms that left their piece and are not looked at", DROPPED,
            "+ 4.0 * EPS * np.abs(t) < self._away)", "+ 4.0 * EPS * np.abs(t) < np.inf)",
            "a refit of a kernel problem is certified from a few of its terms", REFUSED),
    kernels("a kernel's left-out term that still pulls", DROPPED,
            "np.where(theta[answers, index] != 0.0, np.inf, gap)", "gap",
            "refits of a kernel problem without a term are those with it", REFUSED),
    kernels("the change of a kernel's margins with the wrong sign", SIGN,
            "t = self.margins - self.times_gram(part, at)",
            "t = self.margins + self.times_gram(part, at)",
            "refits of a kernel problem are certified at other margins", KERNEL),
    kernels("an optimum of a kernel within 0.99 of how far slopes say", SHRUNK,
            "reach = off[some] / np.sqrt(least)", "reach = 0.99 * off[some] / np.sqrt(least)",
            "left-out margins of a kernel are said to be nearer than they are", AS_FAR),
    kernels("terms that depend on each other and are taken not to", DROPPED,
            "if not eigenvalues_above(least, matrix, 2.0 * float(errors.max()) + 16.0 * EPS):",
            "if False:",
            "left-out margins of a kernel are said to be nearer than they are", AS_FAR),
    kernels("terms of a kernel that stand in the way and are not counted", DROPPED,
            "near = (inside[some] <= reach[:, None] * norms * (1.0 + 8.0 * EPS)).any(axis=0)",
            "near = (inside[some] <= 0.0).any(axis=0)",
            "left-out margins of a kernel are said to be nearer than they are", IN_THE_WAY),
    kernels("margins of a kernel that are exact", SLACK,
            "inside -= error + 8.0 * EPS * (np.abs(t) + np.abs(b) + e + np.abs(steep))",
            "inside -= 0.0", "a left-out margin is off by more than is said",
            f"{KERNELS}::test_a_margin_that_is_at_its_kink_but_for_rounding_is_charged"),
    kernels("eigenvalues of a rounded matrix", SLACK,
            "least + m * (2.0 * gamma(m + 8) + error)", "least",
            "points that depend on each other are taken not to",
            f"{KERNELS}::test_eigenvalues_are_proven_for_all_matrices_within_the_error"),
    kernels("terms that were proven to be independent, and others", STALE,
            "if least <= proven and there[rows].all():", "if least <= proven:",
            "left-out margins of a kernel are said to be nearer than they are",
            f"{KERNELS}::test_what_is_proven_of_some_terms_is_not_said_of_others"),
    as_rows("a kernel that is not linear and is taken to be", DROPPED,
            "if (function.gamma, function.coef0, function.degree) != (1.0, 0.0, 1):",
            "if function.degree != 1:", "left-out margins are those of another kernel"),
    as_rows("labels that points of a linear kernel lose", SIGN,
            "rows = Rows(points, design.sign, ones, known=True)",
            "rows = Rows(points, None, ones, known=True)",
            "left-out margins of a linear kernel are those without labels"),
    as_rows("an intercept that is penalised over the rows of a linear kernel", DROPPED,
            "diagonal[points.shape[1]:] = 0.0", "diagonal[points.shape[1]:] = 1.0",
            "left-out margins are those of another problem",
            "data_changes/test_leave_one_out.py"
            "::test_a_linear_kernel_is_left_out_over_its_rows"),
    kernels("a point's terms with curvature that are one", DROPPED,
            "kinks.setdefault(i if bent else point, i)", "kinks.setdefault(point, i)",
            "left-out margins of a kernel are said to be nearer than they are", APART),
    points("sparse points told by their columns alone", DROPPED,
           "points.indices[span].tobytes() + points.data[span].tobytes()",
           "points.indices[span].tobytes()", "points that are different are taken for one", APART),
    points("points of a rounded matrix that are taken for one", SLACK,
           "if function.error > 0.0:", "if False:",
           "points that are different are taken for one", APART),
    together("negative weights that pass", DROPPED,
             "np.where(whole.weights.min(axis=1) < 0, np.inf, gap)", "gap",
             "a problem that is not convex is certified",
             f"{CERTIFIED}::test_bad_answers_are_refused"),
    classes("a lead over what the others have at least", SWAPPED,
            "below, above = own[0] - most.max(axis=1)", "below, above = own[0] - least.max(axis=1)",
            "a left-out sample of several classes counts as right"),
    classes("a lead of what the own class has at most", SWAPPED,
            "own = least[mine], most[mine]", "own = most[mine], most[mine]",
            "a left-out sample of several classes counts as right"),
    classes("decisions against the rest with one sign", SIGN,
            "return np.where(mine, low, -high)", "return np.where(mine, low, low)",
            "classes are told by the margins of other classes", INSIDE_THE_SCORES, ONE_SCORE),
    classes("votes that are open and counted as won", STRICT,
            "won[end, :, i] += other <= 0", "won[end, :, i] += value <= 0",
            "the votes of a left-out sample are not those of its fits"),
    classes("sums of decisions by the wrong ends", SWAPPED,
            "sure[end, :, i] -= other", "sure[end, :, i] -= value",
            "ties of votes are decided wrongly"),
    classes("classes that might win taken for beaten", SWAPPED,
            "able = most >= least.max(axis=1, keepdims=True)",
            "able = least >= most.max(axis=1, keepdims=True)",
            "samples that a refit would decide stay open"),
    tasks("losses of a task that are not turned with the labels", SIGN,
          "sign * f.b, f.e, f.q,", "f.b, f.e, f.q,",
          "left-out samples of the first class are bounded by another loss"),
    tasks("slopes of a task that are not turned with the labels", SIGN,
          "np.where(turned, -f.hi, f.lo)", "np.where(turned, f.lo, f.lo)",
          "left-out samples of the first class are bounded by another loss"),
    tasks("a task at the square of its metric's root", SWAPPED,
          "whole.metric(solution.M).root", "whole.metric(solution.M).B",
          "samples are left out of tasks with another penalty"),
    means_of_losses("a mean over one sample more than are there", DROPPED,
                    "problem.lam * (leaving - 1) / leaving", "problem.lam",
                    "left-out classes are those of another lambda",
                    "estimators/test_leave_one_out.py"
                    "::test_under_an_l1_norm_the_loss_stays_a_mean",
                    "estimators/test_leave_one_out.py::test_a_chosen_C_is_used"),
)
