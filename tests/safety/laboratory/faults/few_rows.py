"""Faults of problems of many columns and few rows, which are solved by their dual."""

from __future__ import annotations

from faults.table import DROPPED, SHRUNK, SIGN, STRICT, SWAPPED, of

FORM = "solvers/test_dual_form.py"
READ = "cvxpy_plugin/test_few_rows.py"
dual = of("solvers/dual_form.py", f"{FORM}::test_both_have_one_optimum")
distance = of("solvers/dual_form.py", f"{FORM}::test_absolute_values_are_two_terms_each")
several = of("solvers/dual_form.py",
             f"{FORM}::test_several_distances_are_pieces_between_their_centres")
reads = of("cvxpy_plugin/recognise/few_rows.py",
           f"{READ}::test_the_answer_is_that_of_the_whole_problem")

FAULTS = (
    dual("the rows of the squares in the dual", SIGN, "columns[:, :n] = -design.dense().T",
         "columns[:, :n] = design.dense().T", "another problem is solved"),
    dual("the constant of the dual", DROPPED, " - 0.5 * float(curvature @ origin**2)", "",
         "the dual's value is not the problem's"),
    dual("what boxes without 0 are moved by", DROPPED,
         "np.append((box.high - origin)[alone], pieces.lengths)",
         "np.append(np.maximum(box.high, 0.0)[alone], pieces.lengths)",
         "a coordinate may leave its box"),
    dual("the tightest of two bounds", SWAPPED, "values[some] if rising else -values[some]",
         "-values[some] if rising else values[some]", "the weaker of two bounds is kept"),
    dual("the multiplier of a multiple of a bound", DROPPED,
         "left[some] / box.factors[rows[some]]", "left[some]",
         "dual values of `2 * x <= 1` are twice what they are"),
    dual("the multipliers of the rows", SHRUNK, "mu[others] = y[n:]",
         "mu[others] = 0.99 * y[n:]", "an optimal answer is not certified"),
    dual("what falls for ever in the dual", SWAPPED,
         'word = "infeasible" if found.status == "unbounded"',
         'word = "unbounded" if found.status == "unbounded"',
         "a problem without a feasible point is called unbounded",
         f"{FORM}::test_constraints_that_nothing_satisfies"),
    distance("the cost of what lies above a distance", DROPPED,
             "np.where(other <= piece, 1.0, -1.0) * far.factors[other]",
             "np.where(other <= piece, 1.0, -1.0)", "twice the distance costs as much"),
    several("what the distances from centres ahead do", SIGN,
            "np.where(other <= piece, 1.0, -1.0)", "np.where(other <= piece, 1.0, 1.0)",
            "they grow on the way to their centres: another problem is solved"),
    several("how far a piece between two centres goes", DROPPED,
            "ends[within] = bases[1:][within[:-1]]", "ends[within] = box.high[x][within]",
            "a distance that grows again is taken to shrink"),
    several("where the square of a piece begins", DROPPED, "curvature[x] * pieces.bases",
            "curvature[x] * origin[x]", "later pieces are too cheap"),
    several("which distance takes what is left at a centre", SWAPPED,
            "(rank < count[count > rank] - 1)", "(rank > 0)",
            "an optimal answer is not certified"),
    several("centres outside the box", DROPPED, "outside[some] | (", "(",
            "an optimal answer is not certified"),
    distance("the two rows that hold it", SWAPPED,
             "return 0.5 * (press - pushed), 0.5 * (press + pushed)",
             "return 0.5 * (press + pushed), 0.5 * (press - pushed)",
             "the wrong side of the distance presses"),
    distance("which coordinates may be such", STRICT, "same &= ~rises[t]", "same &= True",
             "a coordinate that may grow is held at the distance",
             f"{FORM}::test_what_is_no_distance_is_left_alone"),
    reads("the cost of the columns in mixed squares", DROPPED,
          "(self.root @ duals.theta + self.slope)", "(self.root @ duals.theta)",
          "multipliers of equations are wrong, and the problem is refused for it"),
    reads("the cost that is written out", SIGN,
          "draft.loss_slope[mixed.source] -= slope / mixed.factor",
          "draft.loss_slope[mixed.source] += slope / mixed.factor",
          "another objective is read, and refused"),
    reads("what squares are taken of", SIGN, "losses=Losses(-squares.offset,",
          "losses=Losses(squares.offset,", "another objective is read, and refused"),
    reads("a matrix that is not convex", STRICT, "if values[0] >= -rounding else None",
          "if True else None", "a problem that is not convex is solved as if it were",
          f"{READ}::test_a_matrix_of_factors_may_be_singular_but_not_indefinite"),
)
