"""Faults of losses in budgets and norms: recognition, rounds, certificate, dual values."""

from __future__ import annotations

from faults.table import DROPPED, SIGN, SLACK, of

TESTS = "cvxpy_plugin/test_budgets.py"
read = of("cvxpy_plugin/budgets.py", TESTS)
solved = of("cvxpy_plugin/budgets.py", TESTS)
COSTS = "cvxpy_plugin/test_solution_cache.py"
costs = of("cvxpy_plugin/recognise/changed_costs.py", COSTS)
WITHIN = "solvers/test_within_budgets.py"
on_path = of("solvers/interior_point.py", WITHIN)
built_in = of("solvers/within_budgets.py", WITHIN)
NORMS = "cvxpy_plugin/test_norm_of_losses.py"
of_norms = of("cvxpy_plugin/norm_of_losses.py", NORMS)

FAULTS = (
    read("a budget's level is left out of the Lagrangian", DROPPED,
         "constant=standard.constant - float(weights @ standard.rows.offset),",
         "constant=standard.constant - 0.0 * float(weights @ standard.rows.offset),",
         "another problem is solved", f"{TESTS}::test_the_plain_answer"),
    read("a budget is added with the wrong sign", SIGN,
         "linear = standard.linear - standard.rows.adjoint(weights)",
         "linear = standard.linear + standard.rows.adjoint(weights)",
         "the budget's losses are not found", f"{TESTS}::test_the_plain_answer"),
    read("what budgets add to the Lagrangian's linear term is left in the objective", DROPPED,
         "linear, constant = linear - part.linear,",
         "linear, constant = linear - 0.0 * part.linear,",
         "another problem is solved", f"{TESTS}::test_at_other_costs_no_rule_runs_again"),
    costs("a linear term that has turned keeps its first slope", DROPPED,
          "apart = change.slopes is None or (", "apart = (", "rules run again",
          f"{COSTS}::test_a_recalled_recognition_is_that_of_a_new_problem"),
    read("losses of the Lagrangian do not scale with the multiplier", DROPPED,
         "weights[place] = weight", "weights[place] = 1.0",
         "a bound that is none is certified",
         f"{TESTS}::test_slopes_belong_to_their_budget"),
    solved("slack in a budget is not charged", DROPPED,
           "slack = up(slack + up(weight * up(max(-value, 0.0) + error)))",
           "slack = up(slack + 0.0 * weight * error)", "a bad answer is certified",
           f"{TESTS}::test_slack_in_a_budget_is_charged"),
    solved("an exceeded budget passes", SLACK, "within = within and value <= tol * size",
           "within = within and value <= np.inf * size", "an infeasible answer is certified",
           f"{TESTS}::test_an_exceeded_budget_is_refused"),
    solved("wrong predictions are not put back", DROPPED,
           "(chosen.codes >= 0) & (part.losses.piece_within(margins, margins) != chosen.codes)",
           "(chosen.codes >= 0) & (part.losses.piece_within(margins, margins) == 99)",
           "the relaxation's optimum is handed out",
           f"{TESTS}::test_a_wrong_prediction_is_put_back"),
    on_path("the budget's own row is left out of its border", DROPPED,
            "f.adjoint(np.where(f.part == budget, Dv, 0.0))",
            "0.0 * f.adjoint(np.where(f.part == budget, Dv, 0.0))",
            "nothing is solved within a budget", f"{WITHIN}::test_within_a_budget"),
    built_in("slopes within a budget are handed back times its multiplier", DROPPED,
             "theta = path.theta / np.where(terms.part >= 0, path.of_terms(path.weights), 1.0)",
             "theta = path.theta / np.where(terms.part >= 0, 1.0, 1.0)",
             "slopes that do not belong to the answer", f"{WITHIN}::test_within_a_budget"),
    built_in("columns that would pay are not let in", DROPPED,
             "wrong = np.flatnonzero(~used & (reduced < -PRICED * size))",
             "wrong = np.flatnonzero(~used & (reduced < -np.inf))",
             "an answer over some of the columns passes for one over all",
             f"{WITHIN}::test_columns_at_their_bound_are_left_out"),
    built_in("columns are priced without the budgets' losses", DROPPED,
             "parts.append(weight * part.design.adjoint(slopes))",
             "parts.append(0.0 * weight * part.design.adjoint(slopes))",
             "columns come in and stay out by the wrong costs",
             f"{WITHIN}::test_columns_at_their_bound_are_left_out"),
    built_in("columns that are left out have no multipliers", DROPPED,
             "multipliers[columns.rows] = np.maximum(reduced, 0.0)",
             "multipliers[columns.rows] = np.maximum(reduced, 0.0) * 0.0",
             "dual values balance nothing where a coordinate is at its bound",
             f"{WITHIN}::test_columns_at_their_bound_are_left_out"),
    solved("the multiplier of a budget is not handed back", DROPPED,
           "restored.multipliers[made.rows] = multipliers",
           "restored.multipliers[made.rows] = 0.0 * multipliers",
           "CVXPY's dual values are not those of the problem",
           f"{TESTS}::test_the_plain_answer"),
    on_path("a level that budgets share says nothing of their multipliers", DROPPED,
            "self.weights[falls > 0] = float(f.problem.linear[j] / falls.sum())",
            "self.weights[falls > 0] *= float(f.problem.linear[j] / falls.sum())",
            "a largest of sums is not solved",
            f"{WITHIN}::test_a_level_that_budgets_share"),
    of_norms("a bound is not freed of what goes with the weight", DROPPED,
             "found.certificate.dual + conjugates", "found.certificate.dual + 0.0 * conjugates",
             "what is certified at one weight is not at the others",
             f"{NORMS}::test_lines_lie_below_and_touch"),
    of_norms("a bound rises by what it falls by", SIGN,
             "0.5 * cost - conjugates / s", "0.5 * cost + conjugates / s",
             "a bound that is none is certified", f"{NORMS}::test_lines_lie_below_and_touch"),
    of_norms("a norm without a certificate is handed out", SLACK,
             "if not relative <= tol:", "if not relative <= np.inf:",
             "an answer at the wrong weight passes",
             f"{NORMS}::test_a_wrong_answer_is_not_handed_out"),
)
