"""Faults in what is read from CVXPY's tree before it is canonicalised, and in what is left over."""

from __future__ import annotations

from faults.table import DROPPED, SHRUNK, SIGN, STALE, SWAPPED, of

VALUES = "cvxpy_plugin/test_python_loops.py::test_a_loop_becomes_one_expression_of_the_same_value"
ROWS = "cvxpy_plugin/test_python_loops.py::test_rows_are_those_of_the_walk"
DUALS = "cvxpy_plugin/test_python_loops.py::test_the_answer_and_every_dual_value"
BESIDE = "cvxpy_plugin/test_reduced.py::test_reduce_solve_restore_beside_another_convex_part"

ATTRIBUTES = "cvxpy_plugin/test_attributes.py::test_values_there_and_back_as_cvxpy_has_them"
attributes = of("cvxpy_plugin/recognise/expressions.py", ATTRIBUTES)
canonical = of("cvxpy_plugin/recognise/standard.py", ATTRIBUTES)
pull = of("cvxpy_plugin/recognise/python_loops.py", ROWS)
vectorise = of("cvxpy_plugin/recognise/python_loops.py", VALUES)
bundle = of("cvxpy_plugin/recognise/python_loops.py", DUALS)
borrowing = of("cvxpy_plugin/recognise/expressions.py", "cvxpy_plugin/test_python_loops.py")
cut = of("cvxpy_plugin/composite/rounds.py", "cvxpy_plugin/test_reduced.py")
reduced = of("cvxpy_plugin/reduced.py", "cvxpy_plugin/test_reduced.py")
lp = of("cvxpy_plugin/cvxpy_solver.py", "solvers/test_lp_svm.py::test_cvxpy_finds_the_same_optimum")

atoms = of("cvxpy_plugin/recognise/loss_atoms.py",
           "cvxpy_plugin/test_loss_atoms.py::test_what_is_taken_has_its_value")

FAULTS = (
    atoms("a weight not divided", DROPPED, "divided = weight / _values(expr.args[1], 1)",
          "divided = weight", "another problem is solved where a check is passed by"),
    atoms("a Huber loss of half its slope", SHRUNK, "0.5, -2.0 * M, 2.0 * M", "0.5, -M, M",
          "another problem is solved where a check is passed by"),
    atoms("a falling loss that keeps its kink", SIGN, "(-b, e, q, -hi, -lo), level)",
          "(b, e, q, -hi, -lo), level)", "another problem is solved where a check is passed by"),
    atoms("a level left out", DROPPED, "return float((self.weight * self.level).sum())",
          "return 0.0", "the value is not the user's"),
    atoms("a square of the wrong curvature", SHRUNK, "0.5 / sides**2, *infinite",
          "0.5 / sides, *infinite", "another problem is solved where a check is passed by"),
    atoms("equal shapes for equal data", DROPPED, "return np.array_equal(one, two)",
          "return np.shape(one) == np.shape(two)",
          "two arguments taken for one where a check is passed by",
          "cvxpy_plugin/test_loss_atoms.py::test_the_same_is_the_same_in_every_entry"),
    atoms("losses of negative weight", DROPPED,
          "if not np.isfinite(weight).all() or (weight < 0).any():",
          "if not np.isfinite(weight).all():", "what is not convex is read as losses",
          "cvxpy_plugin/test_loss_atoms.py::test_negative_weights_are_left_to_cvxpys_rules"),
    atoms("numbers that do not follow the parameters", STALE,
          "if not same or not all(a is b or np.array_equal(a, b) for a, b in pairs):",
          "if not same:", "a changed parameter goes unnoticed",
          "cvxpy_plugin/test_loss_atoms.py::test_numbers_follow_the_parameters"),
    attributes("a diagonal counted twice", DROPPED,
               "return upper + upper.T - np.diag(np.diagonal(upper))", "return upper + upper.T",
               "CVXPY's variables are not those of the solution"),
    attributes("a triangle filled from below", SWAPPED,
               "upper[np.triu_indices(variable.shape[0])]",
               "upper[np.tril_indices(variable.shape[0])]",
               "CVXPY's variables are not those of the solution"),
    canonical("squares that CVXPY loses", DROPPED, "if version() >= SAFE:", "if True:",
               "before CVXPY 1.9.3 another problem is solved",
               "cvxpy_plugin/test_attributes.py::test_squares_of_such_variables_are_never_lost",
               "cvxpy_plugin/test_attributes.py::test_the_detour_shares_the_constraints"),
    pull("a negated number with the wrong sign", SIGN, "row.add(expr.args[0], -weight)",
         "row.add(expr.args[0], weight)", "another problem is solved where a check is passed by"),
    pull("broadcast weights averaged", SHRUNK, "weight.sum(axis=thin, keepdims=True)",
         "weight.mean(axis=thin, keepdims=True)",
         "another problem is solved where a check is passed by",
         "cvxpy_plugin/test_python_loops.py::test_weights_go_back_through_broadcasting"),
    pull("a trace by the transposed matrix", SWAPPED, "row.add(second, weight * numbers(first).T)",
         "row.add(second, weight * numbers(first))",
         "another problem is solved where a check is passed by"),
    pull("entries counted by rows", SWAPPED,
         'int(np.ravel_multi_index(place, arg.shape, order="F"))',
         'int(np.ravel_multi_index(place, arg.shape, order="C"))',
         "another problem is solved where a check is passed by"),
    pull("parameters read as numbers", STALE, "and expr.is_constant() and not expr.parameters())",
         "and expr.is_constant())", "a changed parameter goes unnoticed",
         "cvxpy_plugin/test_python_loops.py::test_what_is_not_affine_is_not_read"),
    vectorise("atoms told apart by their kind alone", DROPPED, "return (type(expr), data, *(",
              "return (type(expr), (), *(", "another problem is solved",
              "cvxpy_plugin/test_python_loops.py::test_what_is_left_alone"),
    vectorise("terms of several parameters as of one", SWAPPED,
              "key = (shape, *(id(scale) for scale in part.scales))",
              "key = (shape, len(part.scales))", "another problem is solved",
              "cvxpy_plugin/test_python_loops.py::test_factors_of_several_parameters_are_kept_apart"),
    vectorise("divided terms multiplied", SWAPPED,
              "factor / number if divided else factor * number, scales",
              "factor * number, scales", "another problem is solved"),
    vectorise("an entry named twice counted once", DROPPED, "line[at] += weight",
              "line[at] = weight", "another problem is solved"),
    vectorise("equal constants forgotten", DROPPED,
              "whole if same and constant[0] == 0.0 else whole + total",
              "whole if same else whole + total", "another problem is solved"),
    bundle("dual values in the wrong order", SWAPPED,
           "for part, value in zip(self.parts, values, strict=True):",
           "for part, value in zip(self.parts, values[::-1], strict=True):",
           "CVXPY's dual values are those of other constraints"),
    bundle("equalities as inequalities", SWAPPED,
           "made = whole >= 0 if kind is Inequality else whole == 0", "made = whole >= 0",
           "an infeasible x is called optimal"),
    bundle("a misread row is used", DROPPED,
           "if not abs(ours - sign * (first - second)) <= AGREEMENT * (1.0 + size):", "if False:",
           "an infeasible x is called optimal",
           "cvxpy_plugin/test_python_loops.py::test_a_row_that_is_misread_is_noticed"),
    borrowing("borrowed values kept", DROPPED, "variable.save_value(value)", "pass",
              "a user's values are overwritten by random ones",
              "cvxpy_plugin/test_python_loops.py::test_values_are_given_back_and_statuses_are_cvxpys"),
    borrowing("borrowed values kept after an error", DROPPED,
              "    try:\n        yield\n    finally:\n", "    yield\n    if True:\n",
              "a user's values are overwritten by random ones",
              "cvxpy_plugin/test_python_loops.py::test_values_are_given_back_after_an_error"),
    cut("decided maxima without their slope", DROPPED, "linear=reduced.linear + slope,",
        "linear=reduced.linear,", "another problem is solved", BESIDE),
    cut("decided maxima without their constant", DROPPED, "constant=reduced.constant + constant",
        "constant=reduced.constant", "the value is not the problem's", BESIDE),
    cut("maxima that are left without dual values", DROPPED, "shares[self.index] = found",
        "pass", "dual values of maxima are lost", BESIDE),
    reduced("every restored answer called optimal", DROPPED,
            "status=status_of(back.proof.ok, status),", "status=status_of(True, status),",
            "an answer that is not certified is called optimal",
            "cvxpy_plugin/test_reduced.py::test_restore_of_a_loose_solve_is_refused_by_its_certificate"),
    reduced("a problem nobody has solved", DROPPED,
            "if status not in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE, cp.USER_LIMIT):", "if False:",
            "what is no solution is written onto the original",
            "cvxpy_plugin/test_reduced.py::test_restore_before_a_solve_says_what_to_do"),
    reduced("a reduced problem's duals at the wrong piece", SWAPPED,
            "x, theta = selection.lift(full, source, x, theta)",
            "x, theta = selection.lift(full, source, x, 0.0 * theta)",
            "dual values are lost", "cvxpy_plugin/test_reduced.py::test_reduce_solve_restore"),
    lp("an LP without its lam", DROPPED, "cp.Minimize(problem.lam * cp.norm1(w) + loss)",
       "cp.Minimize(cp.norm1(w) + loss)", "CVXPY is given another problem"),
    lp("an LP without its weights", DROPPED, "loss = problem.c @ cp.pos(1.0 - matrix @ w)",
       "loss = cp.sum(cp.pos(1.0 - matrix @ w))", "CVXPY is given another problem"),
)
