"""Faults in what is proven about changed data."""

from __future__ import annotations

from faults.table import DROPPED, SHRUNK, SIGN, STALE, of

INSIDE = "bounds/test_data_changes.py::test_the_optimum_without_a_term_is_inside"
left_out = of("bounds/data_changes.py", INSIDE)
WEIGHTS = "integration/test_data_changes.py::test_weights_are_repetitions_and_the_proofs_hold"
reweighted = of("data_changes/reweight.py", WEIGHTS)
changed = of("data_changes/changed.py", WEIGHTS)

FAULTS = (
    left_out("left-out margins", SHRUNK, "up(1.0, 16) * np.sqrt(up(point.terms)",
             "0.99 * np.sqrt(up(point.terms)", "a left-out class is decided wrongly",
             "bounds/test_data_changes.py::test_attained_by_a_term_orthogonal_to_the_others"),
    left_out("left-out margins without the Fenchel-Young terms", DROPPED,
             "np.sqrt(up(point.terms) + 0.25 * away * away)", "np.sqrt(0.25 * away * away)",
             "a loose solution decides left-out classes wrongly"),
    left_out("left-out margins without the term's own slope", DROPPED,
             "away = up(1.0, 16) * (distance + size * n_i)", "away = up(1.0, 16) * distance",
             "left-out classes are those of the full fit"),
    changed("weights that shrink a curvature", SIGN, "f.q / factor, 0.0)", "f.q * factor, 0.0)",
            "a reweighted squared loss is another one", WEIGHTS),
    reweighted("slopes that keep their old weights", STALE,
               "_changed(solution, weighted(problem, w), w * solution.theta, tol, mode)",
               "_changed(solution, weighted(problem, w), 0.5 * w * solution.theta, tol, mode)",
               "the ball of changed data is not that of the scaled slopes",
               "integration/test_data_changes.py"
               "::test_the_ball_is_attained_by_a_term_orthogonal_to_the_others"),
    reweighted("an influence without the ball's radius", DROPPED,
               "each = half + np.sqrt(up(point.terms) + half * half)", "each = half",
               "terms move the optimum further than their bound",
               "integration/test_data_changes.py::test_influence_bounds_what_refits_find"),
    left_out("a left-out term moves the centre the wrong way", SIGN,
             "0.5 * (point.margins + other + pulled)", "0.5 * (point.margins + other - pulled)",
             "a left-out class is decided wrongly"),
)
