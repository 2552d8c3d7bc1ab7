"""Faults in the multi-task bounds, gap and certificate."""

from __future__ import annotations

from faults.table import DROPPED, SHRUNK, SIGN, SUBTRACTED, SWAPPED, of

bounds = of("multitask/gap.py", "multitask/test_raso_bounds.py")
screening = of("multitask/solve.py", "multitask/test_raso_screening.py")
joint = of("multitask/gap.py", "multitask/test_multitask.py", "multitask/test_raso_bounds.py")
proof = of("multitask/gap.py", "multitask/test_raso_bounds.py",
           "multitask/test_multitask.py")
intercepts = of("multitask/gap.py", "multitask/test_raso_screening.py")

FAULTS = (
    bounds("the ball of V", SHRUNK, "up(float(np.sqrt(max(square, 0.0)))) + rounding",
           "0.99 * float(np.sqrt(max(square, 0.0)))", "the one dual optimum is outside",
           "multitask/test_raso_bounds.py::test_the_dual_ball_is_attained"),
    bounds("the ball of V without the second square", SIGN,
           "/ problem.eta - 0.25 * max(apart", "/ problem.eta - 0.3 * max(apart",
           "the one dual optimum is outside",
           "multitask/test_raso_bounds.py::test_the_dual_ball_is_attained",
           "multitask/test_raso_bounds.py::test_the_dual_ball_contains_the_one_dual_point"),
    bounds("eigengap", SHRUNK, "up(1.0, 64) * away + rounding", "0.5 * away + rounding",
           "samples are fixed for every metric, wrongly",
           "multitask/test_raso_bounds.py::test_eigengap_is_attained"),
    screening("a task proven at the metric before", SWAPPED,
              "task = problem.task(k, metric)", "task = problem.task(k, problem.start_metric())",
              "samples of a task are fixed wrongly",
              "multitask/test_raso_screening.py::test_decisions_hold_at_the_optimum_of_the_next_metric"),
    screening("samples fixed where their slope is not", DROPPED,
              "undecided = (codes < 0) | (problem.losses.piece_slope(codes) != theta)",
              "undecided = codes < 0", "the slopes of a task lose their balance, or their pieces",
              "multitask/test_raso_screening.py::test_a_sample_whose_slope_is_not_there_yet_is_not_fixed"),
    intercepts("the intercepts' ends exchanged", SWAPPED, "low, high = np.array(ends).T",
               "high, low = np.array(ends).T", "intercepts are bounded by their wrong ends",
               "multitask/test_raso_screening.py::test_intercepts_are_bracketed"),
    joint("the joint gap by subtraction", SUBTRACTED,
          "return terms + coupling + spectral_shortfall",
          "return primal.value - dual.value(problem) + 0.0 * spectral_shortfall",
          "the joint gap is rounding",
          "multitask/test_raso_bounds.py::test_where_only_the_coupling_tells"),
    joint("the joint gap without the metric's part", DROPPED,
          "return terms + coupling + spectral_shortfall", "return terms + coupling + 0.0 * "
          "spectral_shortfall", "a metric that is not optimal is taken for one",
          "multitask/test_multitask.py::test_the_gap_is_primal_minus_dual_without_the_cancellation"),
    joint("the joint gap without the coupling", DROPPED, "return terms + coupling +",
          "return terms +", "tasks that do not fit their duals are taken as solved",
          "multitask/test_multitask.py::test_the_gap_is_primal_minus_dual_without_the_cancellation"),
    proof("a joint certificate without the coupling", DROPPED,
          "gap += c * float(np.sum(mismatch**2))", "pass", "wrong tasks are certified",
          "multitask/test_raso_bounds.py::test_where_only_the_coupling_tells"),
    proof("a joint certificate without the metric's part", DROPPED,
          "gap += (max(best - here, 0.0) + rounding) / (4.0 * c)", "pass",
          "a wrong metric is certified",
          "multitask/test_raso_bounds.py::test_where_only_the_metric_tells"),
    proof("a joint certificate without Fenchel-Young terms", DROPPED,
          "gap = float(terms.sum()) + float(error.sum())", "gap = 0.0",
          "wrong duals are certified",
          "multitask/test_raso_bounds.py::test_a_perturbed_answer_is_refused"),
    proof("slopes outside their boxes, jointly", DROPPED,
          "if (theta < f.lo).any() or (theta > f.hi).any():", "if False:",
          "an infeasible dual point is certified",
          "multitask/test_raso_bounds.py::test_a_perturbed_answer_is_refused"),
)
