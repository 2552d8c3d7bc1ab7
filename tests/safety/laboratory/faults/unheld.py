"""Faults where nothing is strongly convex: terms that are constraints, (G, r), relaxations."""

from __future__ import annotations

from faults.table import DROPPED, SHRUNK, SIGN, SLACK, STALE, SWAPPED, of

HARD, PROOF = "core/test_hard_terms.py", "certificates/test_without_curvature.py"
LOOP = "solvers/test_relaxation.py"
losses = of(
    "core/losses.py", f"{HARD}::test_values_and_what_is_violated",
    f"{HARD}::test_fenchel_young_is_complementarity_where_the_constraint_holds",
    f"{HARD}::test_bounds_decide_nothing_from_a_point_that_violates_a_constraint",
)
proof = of(
    "certificates/certificate.py", f"{PROOF}::test_the_gap_bounds_what_is_lost",
    f"{PROOF}::test_growth_of_the_losses_bounds_every_better_point",
    f"{PROOF}::test_what_a_residual_costs_over_a_box_is_attained",
    f"{PROOF}::test_a_simplex_bounds_every_coordinate",
    f"{PROOF}::test_without_any_bound_the_statement_says_how_far_it_reaches",
    f"{PROOF}::test_a_singular_matrix_leaves_its_kernel_to_the_terms",
    f"{PROOF}::test_constraints_as_terms_stand_beside_the_gap",
)
quadratic = of(
    "core/problem.py", f"{PROOF}::test_a_singular_matrix_leaves_its_kernel_to_the_terms"
)
relaxed = of(
    "solvers/relaxation.py", f"{LOOP}::test_a_bad_start_does_not_make_it_diverge",
    f"{LOOP}::test_a_relaxation_that_ran_away_becomes_a_proximal_step",
    f"{LOOP}::test_a_sample_keeps_penalties_and_constraints",
)

FAULTS = (
    losses("the value of a violated constraint", DROPPED,
           "return np.where(self._violation(z) > 0, np.inf, value) if self.any_hard else value",
           "return value", "a point outside the constraints looks optimal"),
    losses("the Fenchel-Young term of a violated constraint", DROPPED,
           "return np.where(self._violation(z) > 0, np.inf, gap) if self.any_hard else gap",
           "return gap", "bounds rest on a point that is not feasible"),
    losses("an equality on one side only", DROPPED,
           "np.maximum(above, np.where(np.isinf(self.lo), -z, 0.0))", "above",
           "half of an equality is not looked at"),
    proof("the violation of a term that is a constraint", DROPPED,
          "beyond = max(float(np.maximum(above, below).max()), 0.0)", "beyond = 0.0",
          "an infeasible point is certified"),
    proof("what a residual costs over a box", SHRUNK,
          "float(r.above @ reach) + 0.5 * dip", "0.99 * float(r.above @ reach) + 0.5 * dip",
          "the gap is smaller than what is lost"),
    proof("the sign of a residual over a box", DROPPED,
          "away = np.maximum(np.maximum(x - low, high - x), 0.0)[free]",
          "away = np.maximum(x - low, 0.0)[free]", "half of the box is forgotten"),
    proof("how far a statement reaches", SHRUNK,
          "cost = float(np.linalg.norm(r.above[unbounded])) * within * (1.0 + 1e-9)",
          "cost = 0.99 * float(np.linalg.norm(r.above[unbounded])) * within",
          "a better point lies within the distance that is named"),
    proof("what growing losses leave of a residual", DROPPED,
          "return cost + float(np.linalg.norm(left)) * far * (1.0 + 1e-9) + 0.5 * dip * far * far",
          "return 0.0", "slopes that balance nothing are certified"),
    proof("a coordinate that others bound", SIGN,
          "least = end[:, None] - (total[:, None] - finite)",
          "least = end[:, None] + (total[:, None] - finite)", "a box is smaller than the set"),
    proof("the slope of a singular matrix", DROPPED,
          "pull + quadratic.apply(x) if singular else pull", "pull",
          "a gradient is not part of what is balanced"),
    proof("the room of slopes that take up a residual", SWAPPED,
          "lean = np.abs(b + curve * s - margin) + e + t_error[inside]",
          "lean = 0.0 * margin", "moving slopes costs nothing"),
    quadratic("a singular matrix with coordinates that count as held", DROPPED,
              "return np.ones(len(self.diagonal), dtype=bool) if self.singular else self.untouched",
              "return self.untouched", "bounds rest on strong convexity that is not there"),
    relaxed("terms that were refuted", STALE, "        self.held |= off\n        if count:\n",
            "        if count:\n", "a relaxation forgets what refuted it"),
    relaxed("a relaxation that ran away", DROPPED, "if count and worse and not hard:", "if False:",
            "the best point is lost to one that is far off"),
    relaxed("the weights of a sample's penalty", SLACK, "np.ones(len(stay))",
            "np.full(len(stay), factor)", "samples are fitted with a penalty ten times too large"),
)
