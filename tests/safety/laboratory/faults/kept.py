"""Faults in what the sparse solvers keep: copied rows, products of a start, nested reductions."""

from __future__ import annotations

from faults.table import DROPPED, SIGN, STALE, of

MODELS = ("models/test_sparse_models.py", "bounds/test_features_and_samples.py")
CORRECTION = ("solvers/test_working_set.py::"
              "test_the_gap_is_that_of_the_pair_handed_out")
SYSTEMS = "solvers/test_column_systems.py::test_systems_on_chosen_columns"
cache = of("solvers/dual_active_set.py",
            "solvers/test_dual_active_set.py::test_a_cache_of_other_rows_or_another_metric_is_forgotten",
            "solvers/test_dual_active_set.py::test_the_same_path_with_and_without_a_cache")
line = of("solvers/dual_active_set.py", "solvers/test_dual_active_set.py")
active_set = of("solvers/dual_active_set.py",
           "solvers/test_dual_active_set.py::test_with_an_unpenalised_coordinate")
iterate = of("solvers/dual_active_set.py", "solvers/test_kept.py",
           "solvers/test_dual_active_set.py")
nest = of("solvers/rows_and_columns.py", "solvers/test_kept.py", *MODELS)
systems = of("solvers/column_systems.py", SYSTEMS)

FAULTS = (
    cache("rows of other data", STALE, "or self._rows is not rows or not np",
           "or not np", "another problem is solved"),
    cache("rows in another metric", STALE, "or not np.array_equal(known.root, root):", "or False:",
           "another problem is solved",
           "solvers/test_kept.py::test_rows_kept_in_another_metric_are_forgotten"),
    cache("a kept block with the losses of another C", STALE, "        known.renew(losses)\n", "",
           "a path is solved at the C before"),
    line("a line through points with another linear term", STALE,
          "self._first is None or not np.array_equal(self.linear, problem.linear)",
          "self._first is None", "a gap is called reached that is not",
          "solvers/test_dual_active_set.py::test_another_linear_term_is_another_problem"),
    active_set("margins left with another proximal centre", STALE,
          "        if self.gap > self.target:\n            iterate.recentre()",
          "        iterate.recentre()", "a gap is called reached that is not",
          "solvers/test_dual_active_set.py::test_what_is_remembered_belongs_together"),
    iterate("products of a start on other data", STALE,
          "known is not None and known.problem is problem and (", "known is not None and (",
          "another problem is solved",
          "solvers/test_kept.py::test_a_start_evaluated_elsewhere_is_evaluated_again"),
    iterate("margins on the wrong side of the middle", SIGN,
          "return 2.0 * point.centre.margins - point.margins", "return point.margins",
          "a point is called solved by margins of another one",
          "solvers/test_kept.py::test_margins_of_a_rescaled_point_are_those_of_its_duals"),
    iterate("a move of x that costs nothing", DROPPED,
          "float(self.gap_terms.sum()) + 0.5 * float(self.correction @ self.correction)",
          "float(self.gap_terms.sum())",
          "a gap is called reached that is not", CORRECTION),
    iterate("margins without the move of x", DROPPED,
          "self.source.forward(self.v + self.correction)",
          "self.source.forward(self.v)", "a gap is called reached that is not", CORRECTION),
    iterate("a start whose x is taken for that of its duals", DROPPED,
          "            self.correction = at - self.v\n", "            pass\n",
          "a gap is called reached that is not",
          "solvers/test_solution.py::test_a_light_start_keeps_x_apart_from_that_of_the_duals"),
    iterate("a balanced dual point without its distance", DROPPED,
          "self.gap += 0.5 * float(apart @ apart)", "pass",
          "a gap is called reached that is not",
          "solvers/test_kept.py::test_the_gap_of_an_active_set_is_that_of_its_pair"),
    iterate("a balanced dual point without the move of x", DROPPED,
          "self.source.adjoint(self.balanced - self.theta) + self.correction",
          "self.source.adjoint(self.balanced - self.theta)", "a gap is called reached that is not",
          "solvers/test_dual_active_set.py::test_the_gap_with_an_unpenalised_coordinate_counts_the_move_of_x"),
    nest("terms of a reduction of a reduction", STALE, "self.terms[selection.kept], self.features",
         "selection.kept, self.features", "verdicts are recorded about other terms",
         "solvers/test_kept.py::test_a_reduction_of_a_reduction_knows_where_its_parts_lie"),
    nest("features of a reduction of a reduction", STALE, "self.features[features])",
         "features)", "verdicts are recorded about other features",
         "solvers/test_kept.py::test_a_reduction_of_a_reduction_knows_where_its_parts_lie"),
    systems("the Woodbury identity with the wrong sign", SIGN,
            "(inner - self.adjoint(chosen, back) * inverse)",
            "(inner + self.adjoint(chosen, back) * inverse)", "steps lead nowhere"),
    systems("a system without its diagonal", DROPPED,
            "    gram.flat[:: len(gram) + 1] += weight\n", "", "steps lead nowhere"),
)
