"""Faults between CVXPY's problem and the recognised one, and on the way back."""

from __future__ import annotations

from faults.table import DROPPED, SIGN, STALE, SWAPPED, of

BACK = ("cvxpy_plugin/test_recognise.py", "cvxpy_plugin/test_cvxpy_solver.py")
draft = of("cvxpy_plugin/recognise/draft.py", *BACK)
absorb = of("cvxpy_plugin/recognise/elimination.py", *BACK)
lone = of("cvxpy_plugin/recognise/recognise.py", *BACK)
elements = of("cvxpy_plugin/recognise/rules.py", *BACK)
substitution = of("cvxpy_plugin/recognise/elimination.py", *BACK)
SQUARES = "cvxpy_plugin/test_least_squares.py"
squares = of("cvxpy_plugin/recognise/elimination.py", SQUARES)
restore = of("cvxpy_plugin/answer.py", "cvxpy_plugin/test_recognise.py",
             "cvxpy_plugin/test_solve.py")
check = of("cvxpy_plugin/recognise/check.py", "cvxpy_plugin/test_recognise.py")
memory = of("cvxpy_plugin/solution_cache.py", "cvxpy_plugin/test_solution_cache.py")
WEIGHTS = "cvxpy_plugin/test_solution_cache.py"
weights = of("cvxpy_plugin/recognise/changed_costs.py", WEIGHTS)
answer = of("cvxpy_plugin/inspection.py", "cvxpy_plugin/test_inspection.py")
reduced = of("cvxpy_plugin/reduced.py", "cvxpy_plugin/test_reduced.py")
MAXIMA = "cvxpy_plugin/test_maxima.py"
maxima = of("cvxpy_plugin/recognise/epigraph.py", MAXIMA)

matrices = of("cvxpy_plugin/recognise/matrices.py", "cvxpy_plugin/test_contract.py")

FAULTS = (
    matrices("zeros are left out of the user's own data", STALE,
             "entries = matrix.flatten()", "entries = matrix.ravel()",
             "what is solved next is another problem",
             "cvxpy_plugin/test_contract.py::test_constants_of_a_problem_stay_as_they_are"),
    answer("slacks that waste are not charged", DROPPED, "gap = proof.gap + wasted",
           "gap = proof.gap + 0.0 * wasted", "a bad answer is certified",
           "cvxpy_plugin/test_inspection.py::test_slacks_that_waste_are_refused"),
    answer("violated constraints are not looked at", DROPPED,
           "violation = max([proof.violation, *_violations(problem)])",
           "violation = proof.violation", "an infeasible answer is certified",
           "cvxpy_plugin/test_inspection.py::test_slacks_that_cheat_are_refused"),
    reduced("a reduced problem outlives its parameters' values", DROPPED,
            "if now[p.id] != self._values[p.id]]", "if p.id not in self._values]",
            "a stale answer is certified",
            "cvxpy_plugin/test_reduced.py::"
            "test_restore_after_a_parameter_has_changed_is_refused"),
    maxima("two pieces may both lie above a third one", DROPPED,
           "fits &= (least >= -rounding)", "fits &= (least > -np.inf)",
           "another problem is solved", f"{MAXIMA}::test_without_its_sign_a_width_says_nothing"),
    maxima("the loosest bound of a column is the one that counts", SWAPPED,
           "np.lexsort((np.where(factor > 0, -ends, ends), place))",
           "np.lexsort((np.where(factor > 0, ends, -ends), place))",
           "dual values that are none",
           f"{MAXIMA}::test_the_tightest_bounds_of_columns_are_found_with_their_rows"),
    maxima("hinges that pull more than they cost", DROPPED,
           "first, second = first - over, second - over", "over = 0.0 * over",
           "negative dual values",
           f"{MAXIMA}::test_hinges_that_pull_more_than_the_cost_leave_the_rest_to_the_bound"),
    maxima("of many lines the outer kinks lose their slopes", DROPPED,
           "for left in range((count - 1) // 2):", "for left in range(min((count - 1) // 2, 1)):",
           "another problem is solved",
           f"{MAXIMA}::test_a_maximum_of_many_lines_is_as_many_losses_as_its_kinks_need"),
    draft("a multiplier of a definition, restored with the wrong sign", SIGN,
          "duals.rows[self.source] = gradient / self.factor",
          "duals.rows[self.source] = -gradient / self.factor",
          "CVXPY's dual values are not those of the problem",
          "cvxpy_plugin/test_recognise.py::test_every_spelling_is_recognised_as_its_loss"),
    draft("a helper restored with the wrong sign", SIGN,
          "return -values[self.source] / self.factor", "return values[self.source] / self.factor",
          "CVXPY's variables are not those of the solution",
          "cvxpy_plugin/test_recognise.py::test_every_spelling_is_recognised_as_its_loss"),
    draft("a square without its linear part", DROPPED,
          "self.linear = self.linear + rows.adjoint(weighted_offset)",
          "self.linear = self.linear + 0.0",
          "another problem is solved",
          "cvxpy_plugin/test_recognise.py::test_every_spelling_is_recognised_as_its_loss"),
    draft("a square without its constant", DROPPED,
          "self.constant += 0.5 * float(rows.offset @ weighted_offset)", "self.constant += 0.0",
          "the value is not the problem's",
          "cvxpy_plugin/test_recognise.py::test_every_spelling_is_recognised_as_its_loss"),
    substitution("a definition's offset dropped", DROPPED,
                 "draft.constant += float(slope @ given.offset)", "draft.constant += 0.0",
                 "the value is not the problem's",
                 "cvxpy_plugin/test_recognise.py::test_every_spelling_is_recognised_as_its_loss"),
    squares("predictions that other squares need stay left out", DROPPED,
            "        _take_back(draft, predictions)\n", "", "a problem is not recognised any more",
            f"{SQUARES}::test_predictions_beside_other_losses_are_part_of_the_quadratic_term"),
    squares("predictions are no coordinates", DROPPED,
            "touched[columns] = touched[draft.eliminated] = False", "touched[columns] = False",
            "least squares over predictions are left to CVXPY",
            f"{SQUARES}::test_every_form_is_folded_and_has_the_optimum_of_the_whole"),
    elements("the offset of the arguments dropped", DROPPED, "numbers[:, 0] -= rows.offset",
             "numbers[:, 0] -= 0.0", "another problem is solved",
             "cvxpy_plugin/test_recognise.py::test_every_spelling_is_recognised_as_its_loss"),
    lone("the offset of a lone loss dropped", DROPPED, "b = b - arguments.offset",
             "b = b - 0.0 * arguments.offset", "another problem is solved",
             "cvxpy_plugin/test_recognise.py::test_every_spelling_is_recognised_as_its_loss"),
    absorb("the middle of a dead zone on the wrong side", SIGN, "numbers[terms, 0] -= shift",
           "numbers[terms, 0] += shift", "another problem is solved",
           "cvxpy_plugin/test_recognise.py::test_every_spelling_is_recognised_as_its_loss"),
    absorb("multipliers of two bounds exchanged", SWAPPED,
           "np.concatenate([np.maximum(left, 0.0), np.maximum(-left, 0.0)])",
           "np.concatenate([np.maximum(-left, 0.0), np.maximum(left, 0.0)])",
           "CVXPY's dual values are not those of the problem",
           "cvxpy_plugin/test_recognise.py::test_all_multipliers_are_restored",
           "cvxpy_plugin/test_recognise.py::test_every_spelling_is_recognised_as_its_loss"),
    restore("equalities' dual values with the wrong sign", SIGN,
            'np.reshape(-part if kind == "zero" else part,', "np.reshape(part,",
            "CVXPY's dual values are not those of the problem",
            "cvxpy_plugin/test_solve.py::test_clarabel"),
    check("a recognition that does not agree is solved", DROPPED,
          "if not abs(model - truth) <= agreement * scale:", "if False:",
          "a defect of a rule reaches the user",
          "cvxpy_plugin/test_recognise.py::test_the_self_check_refuses_a_corrupted_recognition",
          "cvxpy_plugin/test_recognise.py::test_a_rule_that_goes_wrong_is_caught"),
    check("multipliers that do not agree are handed back", DROPPED,
          "if not float(np.abs(model - truth).max()) <= AGREEMENT * scale:", "if False:",
          "a defect of a rule reaches the user",
          "cvxpy_plugin/test_recognise.py::test_the_self_check_refuses_a_corrupted_recognition",
          "cvxpy_plugin/test_recognise.py::test_a_rule_that_goes_wrong_is_caught"),
    memory("an answer kept in the arrays that the user has", DROPPED,
           "found.tied(tied), point, recognition.tied(tied), restored.copy(), report",
           "found.tied(tied), point, recognition.tied(tied), restored, report",
           "what the user wrote into a value comes back as the answer",
           "cvxpy_plugin/test_solution_cache.py::test_what_stands_beside_losses_is_kept_too"),
    memory("changed parameters go unnoticed", STALE,
           "changed = {key for key, value in now.items() if entry.fingerprints.get(key) != value}",
           "changed = set()", "the problem of the last solve is solved",
           "cvxpy_plugin/test_solution_cache.py::test_a_recalled_recognition_is_that_of_a_new_problem"),
    weights("costs that two weights share follow one of them", DROPPED,
            "if owner.setdefault(variable.id, own) != own:", "if False:",
            "another problem is solved",
            f"{WEIGHTS}::test_a_cost_that_two_weights_share_follows_neither"),
    weights("weights that no longer go together are taken for one", STALE,
            "if (np.abs(found - level[self.kinds]) > SAME * found).any():", "if False:",
            "another problem is solved",
            f"{WEIGHTS}::test_other_weights_are_not_read_from_the_expressions_again"),
    weights("numbers that change in constraints go unnoticed", STALE,
            "inside |= {parameter.id for parameter in constraint.parameters()}",
            "inside |= set()", "the numbers of the last solve are used",
            "cvxpy_plugin/test_slack_forms.py::test_numbers_in_parameters"),
    memory("changed data beside weights go unnoticed", STALE,
           "or self.weights is None or changed & self.weights.inside:",
           "or self.weights is None:", "the data of the last solve are used",
           f"{WEIGHTS}::test_changed_data_beside_changed_weights_are_noticed"),
    memory("changed data taken for changed costs", STALE, "if not changed & entry.inside:",
           "if True:", "the data of the last solve are used",
           "cvxpy_plugin/test_solution_cache.py::test_data_as_parameters_are_noticed_when_they_change"),
)
