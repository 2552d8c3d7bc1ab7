"""Faults where nothing is strongly convex: hard terms, (G, r), relaxations, linear programs."""

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
    f"{PROOF}::test_pairs_of_rows_say_what_their_sum_says",
    f"{PROOF}::test_a_second_order_cone_bounds_its_tail",
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
pieces = of(
    "screening/reduction.py", f"{LOOP}::test_squares_fold_and_nothing_else_is_taken_for_granted"
)
INNER, LP = "solvers/test_interior_point.py", "solvers/test_linear_program.py"
inner = of(
    "solvers/interior_point.py", f"{INNER}::test_fenchel_young_terms_are_those_of_the_losses",
    f"{INNER}::test_the_gap_charges_what_is_not_balanced",
    f"{INNER}::test_a_point_outside_the_constraints_is_none",
    f"{INNER}::test_a_direction_proves_unboundedness_only_where_nothing_holds_it",
    f"{INNER}::test_slopes_prove_infeasibility_only_where_they_cancel",
    f"{INNER}::test_only_a_rounding_error_is_moved_onto_a_bound", f"{INNER}::test_constraints",
    f"{INNER}::test_infeasible",
)
lp = of(
    "solvers/linear_program.py", f"{LP}::test_many_terms_are_solved_as_by_highs",
    f"{LP}::test_with_many_terms_the_weights_of_a_vertex_are_zero_or_not",
    f"{LP}::test_solves_to_the_optimum",
)

FAULTS = (
    proof(
        "the rounding of a precise residual",
        DROPPED,
        "error = factor * size * problem.column_sizes + EPS * np.abs(value)",
        "error, value = 0.0 * value, 0.0 * value",
        "a gap that is too small",
        f"{PROOF}::test_an_optimum_of_marks_is_certified_though_fewer_slopes_than_coordinates_have_room",
    ),
    proof(
        "rows that are not opposite bound a coordinate",
        SIGN,
        "use = (first * second < 0) &",
        "use = (first * second != 0) &",
        "a gap that is too small",
    ),
    proof(
        "the tail of a cone is bounded without its constant",
        DROPPED,
        "least = np.concatenate([least[0] - least[1:], least[0] + least[1:]])",
        "least = np.concatenate([least[0] + 0.0 * least[1:], least[0] + 0.0 * least[1:]])",
        "a gap that is too small",
    ),
    losses(
        "the value of a violated constraint",
        DROPPED,
        "return np.where(self._violation(z) > 0, np.inf, value) if self.any_hard else value",
        "return value",
        "a point outside the constraints looks optimal",
    ),
    losses(
        "the Fenchel-Young term of a violated constraint",
        DROPPED,
        "return np.where(self._violation(z) > 0, np.inf, gap) if self.any_hard else gap",
        "return gap",
        "bounds rest on a point that is not feasible",
    ),
    losses(
        "an equality on one side only",
        DROPPED,
        "np.maximum(above, np.where(np.isinf(self.lo), -z, 0.0))",
        "above",
        "half of an equality is not looked at",
    ),
    proof(
        "the violation of a term that is a constraint",
        DROPPED,
        "beyond = max(float(np.maximum(above, below).max()), 0.0)",
        "beyond = 0.0",
        "an infeasible point is certified",
    ),
    proof(
        "what a residual costs over a box",
        SHRUNK,
        "float(r.above @ reach) + 0.5 * indefiniteness",
        "0.99 * float(r.above @ reach) + 0.5 * indefiniteness",
        "the gap is smaller than what is lost",
    ),
    proof(
        "the sign of a residual over a box",
        DROPPED,
        "away = np.maximum(np.maximum(x - low, high - x), 0.0)[free]",
        "away = np.maximum(x - low, 0.0)[free]",
        "half of the box is forgotten",
    ),
    proof(
        "how far a statement reaches",
        SHRUNK,
        "cost = float(np.linalg.norm(r.above[unbounded])) * within * (1.0 + 1e-9)",
        "cost = 0.99 * float(np.linalg.norm(r.above[unbounded])) * within",
        "a better point lies within the distance that is named",
    ),
    proof(
        "what growing losses leave of a residual",
        DROPPED,
        "cost += float(np.linalg.norm(np.ldexp(left, -power))) * far * (1.0 + 1e-9)",
        "return 0.0",
        "slopes that balance nothing are certified",
    ),
    proof(
        "a coordinate that others bound",
        SIGN,
        "least = end[:, None] - (total[:, None] - finite)",
        "least = end[:, None] + (total[:, None] - finite)",
        "a box is smaller than the set",
    ),
    proof(
        "the slope of a singular matrix",
        DROPPED,
        "pull + quadratic.apply(x) if singular else pull",
        "pull",
        "a gradient is not part of what is balanced",
    ),
    proof(
        "the room of slopes that take up a residual",
        SWAPPED,
        "unit_cost = np.abs(b + curve * s - margin) + e + t_error[inside]",
        "unit_cost = 0.0 * margin",
        "moving slopes costs nothing",
    ),
    quadratic(
        "a singular matrix with coordinates that count as held",
        DROPPED,
        "return np.ones(len(self.diagonal), dtype=bool) if self.singular else self.untouched",
        "return self.untouched",
        "bounds rest on strong convexity that is not there",
    ),
    pieces(
        "the piece at one argument counts as the only one",
        SHRUNK,
        "anywhere = np.full(problem.n, np.inf)",
        "anywhere = np.zeros(problem.n)",
        "terms with several pieces are proven to be on the one at 0",
    ),
    relaxed(
        "terms that were refuted",
        STALE,
        "        self.held |= off\n        if count:\n",
        "        if count:\n",
        "a relaxation forgets what refuted it",
    ),
    relaxed(
        "a sample's optimum of 0 is taken for the whole problem's",
        DROPPED,
        "        if not self.answer.proof.ok:\n            self.answer = None\n",
        "        if False:\n            self.answer = None\n",
        "rounds end where a sample has been fitted",
        f"{LOOP}::test_a_sample_that_is_fitted_exactly_proves_nothing_of_terms_that_are_not",
    ),
    relaxed(
        "a relaxation that ran away",
        DROPPED,
        "if count and worse and not hard:",
        "if False:",
        "the best point is lost to one that is far off",
    ),
    relaxed(
        "the weights of a sample's penalty",
        SLACK,
        "np.ones(len(self.stay))",
        "np.full(len(self.stay), self.factor)",
        "samples are fitted with a penalty ten times too large",
    ),
    relaxed(
        "a proximal step at the wrong distance",
        DROPPED,
        "constant=problem.constant + 0.5 * float(pull @ (x * x)),",
        "constant=problem.constant,",
        "a step's value is not that of the problem",
        f"{LOOP}::test_a_proximal_step_adds_the_squared_distance",
    ),
    relaxed(
        "a sample that stands for itself alone",
        DROPPED,
        "losses=taken.weighted(scale)",
        "losses=taken",
        "the first guess of a budget or a penalty is ten times off",
    ),
    relaxed(
        "a proximal step away from the best point",
        SIGN,
        "linear=problem.linear - pull * x",
        "linear=problem.linear + pull * x",
        "steps end where they began, or nowhere",
        f"{LOOP}::test_a_proximal_step_adds_the_squared_distance",
    ),
    relaxed(
        "margins that refute nothing",
        DROPPED,
        "off = Prediction(selection).refuted(problem, point.margins, self.screening)",
        "off = np.zeros(problem.n, dtype=bool)",
        "every guess is believed",
    ),
    inner(
        "Fenchel-Young terms of a parabola",
        DROPPED,
        "(z - 0.5 * f.q * (slope + theta))",
        "(z - f.q * (slope + theta))",
        "a target is reached that is not",
    ),
    inner(
        "the steeper side of a kink",
        SWAPPED,
        "slope = np.where(z > 0, high, low)",
        "slope = np.where(z > 0, low, high)",
        "a target is reached that is not",
    ),
    inner(
        "what a residual costs",
        DROPPED,
        "gap += float(cost.sum())",
        "gap += 0.0",
        "slopes that balance nothing reach the target",
    ),
    inner(
        "a violated inequality",
        DROPPED,
        "apart = bool(len(f.endless)) and f.violation(t) > VIOLATED",
        "apart = False",
        "a point outside the constraints is the answer",
    ),
    inner(
        "a violated equality",
        DROPPED,
        "apart = bool((np.abs(f.E @ x + f.e) > VIOLATED * reach).any())",
        "apart = False",
        "a point outside the constraints is the answer",
    ),
    inner(
        "constraints that hold a direction",
        DROPPED,
        "blocked = (rising > 0) & ~self.has_high & self.live",
        "blocked = np.zeros(len(t), dtype=bool)",
        "a bounded problem is called unbounded",
    ),
    inner(
        "constraints that hold a direction from below",
        DROPPED,
        "blocked |= (falling > 0) & ~self.has_low & self.live",
        "pass",
        "a bounded problem is called unbounded",
    ),
    inner(
        "squares that hold a direction",
        DROPPED,
        "if float(p @ (self.M @ p)) > FLAT * scale:",
        "if False:",
        "a bounded problem is called unbounded",
    ),
    inner(
        "losses that hold a direction",
        SIGN,
        "parts = up * rising - down * falling",
        "parts = 0.0 * rising",
        "a bounded problem is called unbounded",
    ),
    inner(
        "slopes that do not cancel",
        DROPPED,
        "and float(np.abs(left).sum()) * reach <= -RAY * value",
        "",
        "a feasible problem is called infeasible",
    ),
    inner(
        "equations that contradict each other",
        DROPPED,
        "return chosen, bool((np.abs(E @ x + e) > room).any())",
        "return chosen, False",
        "an infeasible problem gets an answer",
    ),
    inner(
        "coordinates near a bound",
        SLACK,
        "close = np.abs(x[at] - bound) <= reach",
        "close = np.abs(x[at] - bound) <= 1e9 * reach",
        "small weights are rounded away",
    ),
    inner(
        "multipliers of inequalities",
        DROPPED,
        "multipliers[below] = own[len(own) - len(below):] if len(below) else 0.0",
        "multipliers[below] = 0.0",
        "dual values are 0 where a constraint binds",
        f"{INNER}::test_a_bound_that_binds_has_a_multiplier",
    ),
    inner(
        "slopes of equations among the terms",
        SIGN,
        "theta[f.tied] = -y[f.equal:]",
        "theta[f.tied] = y[f.equal:]",
        "dual values have the wrong sign",
        f"{INNER}::test_any_problem",
    ),
    lp(
        "the slopes of terms",
        SIGN,
        "np.clip(found.theta[:n], f.lo, f.hi)",
        "np.clip(-found.theta[:n], f.lo, f.hi)",
        "nothing is certified",
    ),
    lp(
        "weights set to 0 at any price",
        DROPPED,
        "if problem.primal(sparse) <= problem.primal(w) * (1.0 + 8.0 * gamma(n + k)):",
        "if True:",
        "weights of the optimum are thrown away",
        f"{LP}::test_weights_at_their_bound_stay_where_they_are_worth_something",
    ),
    lp(
        "features that ask to be let in",
        SHRUNK,
        "weights(self.problem) * (1 + ASKED)",
        "weights(self.problem) * 2.0",
        "the optimum of some features only",
    ),
)
