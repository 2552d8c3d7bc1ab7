"""Faults in the compiled loops: paths in safe mode, pairs of points, cones, product sets."""

from __future__ import annotations

from faults.table import DROPPED, SHRUNK, SIGN, SLACK, STALE, STRICT, SWAPPED, of

LOOPS = "solvers/compiled_path/test_loops.py::test_"
ball = of("solvers/compiled_path/loops.py", LOOPS + "the_ball_holds_the_optimum_and_is_tight",
          LOOPS + "the_ball_holds_the_optimum_from_rough_points")
choose = of("solvers/compiled_path/loops.py", LOOPS + "choose_rounds_outward")
charged = of("solvers/compiled_path/loops.py", LOOPS + "charged_terms_are_above_the_exact_ones")
path = of("solvers/compiled_path/loops.py", "solvers/compiled_path/test_loops.py")
pairs = of("designs/comparisons.py", "designs/test_comparisons.py")
cones = of("bounds/regions/cone_ball.py", "safety/test_metric_safety.py")
products = of("designs/comparisons.py", "safety/test_metric_safety.py",
              "designs/test_comparisons.py")
shrink = of("solvers/metric/task.py", "safety/test_metric_safety.py")
metrics = of("solvers/metric/solver.py", "solvers/metric/test_solver.py::test_an_active_set_holds_"
             "every_term_with_a_loss_and_judges_by_all")

FAULTS = (
    metrics("an active set judged by itself", STALE, "state = task.evaluate(metric)\n        yield",
            "state = small.evaluate(metric)\n        yield",
            "the gap of an active set is taken for that of all triplets"),
    ball("the ball between two points of a path", SHRUNK,
           "return (np.sqrt(ratio * fy", "return 0.99 * (np.sqrt(ratio * fy",
           "a path in safe mode fixes wrongly",
         "solvers/compiled_path/test_loops.py::test_the_ball_holds_the_optimum_and_is_tight"),
    ball("the path's ball without Fenchel-Young terms", DROPPED,
           "return (np.sqrt(ratio * fy + 0.25", "return (np.sqrt(0.25",
           "a path in safe mode fixes wrongly",
         "solvers/compiled_path/test_loops.py::test_the_ball_holds_the_optimum_from_rough_points"),
    ball("the path's ball at the old C", STALE, "apart = abs(1.0 - ratio) * size + ratio",
           "apart = ratio", "a path in safe mode fixes as the point before",
         "solvers/compiled_path/test_loops.py::test_the_ball_holds_the_optimum_and_is_tight"),
    choose("below the first kink of a path, non-strict", STRICT, "right < knots[0, i], left",
           "right <= knots[0, i], left", "a margin exactly at a kink is fixed",
           "solvers/compiled_path/test_loops.py::test_choose_rounds_outward"),
    choose("above the last kink of a path, non-strict", STRICT, "left > knots[1, i]) &",
           "left >= knots[1, i]) &", "a margin exactly at a kink is fixed",
           "solvers/compiled_path/test_loops.py::test_choose_rounds_outward"),
    choose("low and high exchanged on a path", SWAPPED, "3 - 3 * zero - 2 * low - high",
           "3 - 3 * zero - low - 2 * high", "a path in safe mode fixes at the wrong end",
           "solvers/compiled_path/test_loops.py::test_safe_mode_fixes_only_what_is_true"),
    choose("a path without the knots' rounding", SLACK, "reach * norms[i] + knot_error[i]",
           "reach * norms[i]", "a margin within the rounding of a knot is fixed",
           "solvers/compiled_path/test_loops.py::test_choose_rounds_outward"),
    charged("a path's terms at one end of their error", DROPPED, "for side in (-1.0, 1.0):",
           "for side in (-1.0,):", "a path's ball is smaller than rounding",
            "solvers/compiled_path/test_loops.py::test_charged_terms_are_above_the_exact_ones"),
    path("a path's proofs by a share of the ball", SHRUNK,
         "state.share if screen == CERTIFIED else 1.0", "state.share",
         "safe mode guesses",
         "solvers/compiled_path/test_loops.py::test_safe_mode_fixes_only_what_is_true"),
    path("safe mode with an intercept", DROPPED,
         "(screen == SAFE and free < 0)", "screen == SAFE",
         "a path in safe mode fixes what no ball proves",
         "solvers/compiled_path/test_loops.py::test_safe_mode_fixes_nothing_with_an_intercept"),
    path("what lies before the first term", STALE, "(move * A[j, at] if move != 0.0 else 0.0)",
         "move * A[j, at]", "a resumed path differs by what the memory held before",
         "solvers/compiled_path/test_segments.py::test_memory_that_nobody_wrote_is_never_read"),
    pairs("near pairs pull like far ones", SIGN, "omega[minus[t]] -= w * tau",
          "omega[minus[t]] += w * tau", "triplets pull the wrong way",
          "designs/test_comparisons.py::test_the_loops_are_the_same_interpreted"),
    pairs("scattered slopes pull the wrong way", SIGN, "omega[minus[t]] -= v",
          "omega[minus[t]] += v", "triplets pull the wrong way",
          "designs/test_comparisons.py::test_passes_norms_and_rows_are_those_of_the_matrices"),
    pairs("what underflow takes off a triplet's norm", DROPPED, "+ tiny + UNDERFLOW", "+ tiny",
          "triplets taken for points",
          "designs/test_comparisons.py::test_norms_whose_squares_underflow_are_not_too_small"),
    pairs("a triplet's norm too small", DROPPED, "math.sqrt(0.5 * (pp * ss + ps * ps))",
          "math.sqrt(0.5 * pp * ss)", "triplets are fixed wrongly",
          "designs/test_comparisons.py::test_passes_norms_and_rows_are_those_of_the_matrices"),
    pairs("a diagonal triplet's norm", SHRUNK, "out[t] = math.sqrt(total)",
          "out[t] = 0.99 * math.sqrt(total)", "triplets are fixed wrongly",
          "designs/test_comparisons.py::test_passes_norms_and_rows_are_those_of_the_matrices"),
    cones("a multiplier outside the cone of matrices", SIGN, "out_nu[i] = -mu / t",
          "out_nu[i] = mu / t", "the cone proves less than a half-space",
          "bounds/test_cone_ball.py::test_each_rule_proves_what_those_before_it_prove"),
    products("windows closed from below, too early", SIGN,
             "if values[j - 1] - base - reach > above:", "if values[j - 1] - base + reach > above:",
             "triplets are dropped wrongly",
             "safety/test_metric_safety.py::test_what_the_solver_takes_away_is_right"),
    products("windows closed from above, too early", SIGN,
             "if values[i] - base + reach < below:", "if values[i] - base - reach < below:",
             "triplets are fixed wrongly",
             "safety/test_metric_safety.py::test_what_the_solver_takes_away_is_right"),
    shrink("sifted triplets", SHRUNK, "reach = radius * task.norms * (1.0 + 8.0 * UNIT)",
           "reach = 0.5 * radius * task.norms", "triplets are taken away wrongly",
           "safety/test_metric_safety.py::test_what_the_solver_takes_away_is_right"),
    shrink("sifted on the other piece", SWAPPED,
           "(middle + reach < task.b - task.smoothing)", "(middle + reach < task.b)",
           "triplets on the curve are fixed",
           "safety/test_metric_safety.py::test_what_the_solver_takes_away_is_right"),
)
