"""Faults in what the sparse solvers keep: copied rows, products of a start, nested reductions."""

from __future__ import annotations

from faults.table import DROPPED, SIGN, STALE, of

MODELS = ("models/test_sparse_models.py", "bounds/test_features_and_samples.py")
ASIDE = "solvers/dual_active_set/test_faces_aside.py::test_the_gap_is_that_of_the_pair_handed_out"
SYSTEMS = "solvers/prox_newton/test_sparse_systems.py::test_systems_on_chosen_columns"
memory = of("solvers/dual_active_set/state.py",
            "solvers/dual_active_set/test_faces_memory.py::test_a_memory_of_other_rows_or_another_metric_is_forgotten",
            "solvers/dual_active_set/test_faces_memory.py::test_the_same_path_with_and_without_a_memory")
ahead = of("solvers/dual_active_set/state.py", "solvers/dual_active_set/test_faces_ahead.py")
faces = of("solvers/dual_active_set/solver.py",
           "solvers/dual_active_set/test_faces_memory.py::test_with_an_unpenalised_coordinate")
state = of("solvers/dual_active_set/state.py", "solvers/test_kept.py",
           "solvers/dual_active_set/test_faces_memory.py")
nest = of("solvers/prox_newton/subproblem.py", "solvers/test_kept.py", *MODELS)
systems = of("solvers/prox_newton/systems.py", SYSTEMS)

FAULTS = (
    memory("rows of other data", STALE, "or self._rows is not rows or not np",
           "or not np", "another problem is solved"),
    memory("rows in another metric", STALE, "or not np.array_equal(known.root, root):", "or False:",
           "another problem is solved",
           "solvers/test_kept.py::test_rows_kept_in_another_metric_are_forgotten"),
    memory("a kept block with the losses of another C", STALE, "        block.renew(losses)\n", "",
           "a path is solved at the C before"),
    ahead("a line through points with another linear term", STALE,
          "self._first is None or not np.array_equal(self.linear, problem.linear)",
          "self._first is None", "a gap is called reached that is not",
          "solvers/dual_active_set/test_faces_ahead.py::test_another_linear_term_is_another_problem"),
    faces("margins left with another proximal centre", STALE,
          "            if self.best_gap > self.target:\n                state.recentre()",
          "            state.recentre()", "a gap is called reached that is not"),
    state("products of a start on other data", STALE,
          "known is not None and known.problem is problem and (", "known is not None and (",
          "another problem is solved",
          "solvers/test_kept.py::test_a_start_evaluated_elsewhere_is_evaluated_again"),
    state("margins on the wrong side of the middle", SIGN,
          "return 2.0 * point.centre.margins - point.margins", "return point.margins",
          "a point is called solved by margins of another one",
          "solvers/test_kept.py::test_margins_of_a_rescaled_point_are_those_of_its_duals"),
    state("a move of x that costs nothing", DROPPED,
          "float(self.fy.sum()) + 0.5 * float(self.aside @ self.aside)", "float(self.fy.sum())",
          "a gap is called reached that is not", ASIDE),
    state("margins without the move of x", DROPPED, "self.source.margins(self.v + self.aside)",
          "self.source.margins(self.v)", "a gap is called reached that is not", ASIDE),
    state("a start whose x is taken for that of its duals", DROPPED,
          "            self.aside = at - self.v\n", "            pass\n",
          "a gap is called reached that is not",
          "solvers/test_run.py::test_a_light_start_keeps_x_apart_from_that_of_the_duals"),
    state("a balanced dual point without its distance", DROPPED,
          "self.gap += 0.5 * float(lean @ lean)", "pass",
          "a gap is called reached that is not",
          "solvers/test_kept.py::test_the_gap_of_faces_is_that_of_its_pair"),
    state("a balanced dual point without the move of x", DROPPED,
          "self.source.pull(self.balanced - self.theta) + self.aside",
          "self.source.pull(self.balanced - self.theta)", "a gap is called reached that is not",
          "solvers/dual_active_set/test_faces_ahead.py::test_the_gap_with_an_unpenalised_coordinate_counts_the_move_of_x"),
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
