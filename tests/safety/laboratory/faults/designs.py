"""Faults in products with rows and kernels, in what they say of their rounding, and in norms."""

from __future__ import annotations

from faults.table import DROPPED, SHRUNK, SIGN, SLACK, SWAPPED, of

SAME = "designs/test_rows.py::test_every_storage_gives_the_same_numbers"
ERRORS = "designs/test_gram.py::test_margin_errors_are_bounds"
rows = of("designs/rows.py", SAME,
          "designs/test_rounding.py::test_forward_error_is_within_its_factor",
          "designs/test_rounding.py::test_adjoint_error_is_within_its_factor",
          "designs/test_rows.py::test_rows_and_columns_can_be_taken_and_taken_again")
gram = of("designs/gram.py", "designs/test_gram.py::test_identities_against_the_dense_matrix",
          ERRORS)
quadratic = of("core/problem.py",
               "designs/test_rounding.py::test_norms_of_a_dense_quadratic_are_not_too_small",
               "core/test_problem.py::test_the_floor_is_below_every_eigenvalue",
               "core/test_problem.py::test_apply_solve_and_norm_agree_with_the_dense_matrix",
               "designs/test_rounding.py::test_norms_err_by_less_than_the_regions_charge")
balance = of("certificates/certificate.py",
             "certificates/test_certificate_balance.py::test_the_cost_is_that_of_the_direction_that_is_needed",
             "certificates/test_certificate_balance.py::test_several_coordinates_need_room_for_the_move",
             "certificates/test_certificate.py::test_refuses_a_point_with_no_gap_but_the_imbalance")

FAULTS = (
    rows("blocks of rows in a pull", SLACK,
         "depth = min(n, _BLOCK_ROWS) + n // _BLOCK_ROWS + 1\n        return gamma(depth + 4)",
         "depth = 1\n        return 0.1 * gamma(1)", "a pull is trusted beyond its rounding"),
    rows("entries in a margin", SLACK, "return gamma(terms + self.extra.shape[1] + 4)",
         "return 0.01 * gamma(1)", "a margin is trusted beyond its rounding"),
    rows("the intercept in the margins of features far off", DROPPED,
         "fine += np.abs(self.extra[rows]) @ x[p:]", "fine += 0.0",
         "a margin is trusted beyond its rounding",
         "designs/test_rounding.py::test_forward_error_beside_features_far_off"),
    rows("the factors of the margins of features far off", SHRUNK,
         "fine if self.scale is None else fine * np.abs(self.scale[rows])", "fine",
         "a margin is trusted beyond its rounding",
         "designs/test_rounding.py::test_forward_error_beside_features_far_off"),
    rows("the rest of a precise margin of a row", SLACK,
         "return rounded, 1.01 * factor * size + UNIT * np.abs(rounded)",
         "return rounded, 0.01 * UNIT * np.abs(rounded)",
         "a recomputed margin is trusted beyond its rounding"),
    rows("squared factors of rows", SHRUNK, "out = out * self.scale * self.scale",
         "out = out * abs(self.scale)", "norms too small",
         "designs/test_rounding.py::test_norms_err_by_less_than_the_regions_charge"),
    rows("squares of factors before those of entries", DROPPED,
         "out = out * self.scale * self.scale", "out = out * self.scale**2",
         "long rows with short factors taken for points", "bounds/test_bounds.py::"
         "test_rows_whose_squares_underflow_are_decided_rightly",
         "designs/test_rounding.py::test_norms_of_long_rows_with_short_factors_are_right"),
    rows("what underflow takes off squares", DROPPED, "out[few] += np.where(filled, lost, 0.0)",
         "pass", "rows taken for points", "bounds/test_bounds.py::"
         "test_rows_whose_squares_underflow_are_decided_rightly",
         "designs/test_rounding.py::test_norms_of_rows_whose_squares_underflow_are_not_too_small"),
    gram("what underflow takes off kernel points", DROPPED,
         "np.maximum(self.kernel.function.diagonal, 2.0 * UNDERFLOWN)",
         "np.maximum(self.kernel.function.diagonal, 0.0)", "points taken for the origin",
         "designs/test_rounding.py::"
         "test_norms_of_kernel_points_whose_squares_underflow_are_not_too_small"),
    rows("extra columns in a margin", DROPPED, "out += self.extra[rows, j] * x[p + j]", "pass",
         "margins without the intercept"),
    rows("extra columns of taken rows", SWAPPED, "scale, self.extra[index], known=self.sparse)",
         "scale, self.extra[::-1][index], known=self.sparse)", "rows with another's intercept"),
    gram("the kernel's own rounding near a point", SLACK,
         "error = roots * ((depth + errors[self.index]) * self.size_of(c) + near)",
         "error = 0.0 * roots", "a margin is trusted beyond its rounding", ERRORS),
    gram("rounding of the means", SLACK, "rounding = 4.0 * self.forward_factor * (self._roots",
         "rounding = -1e-9 * (self._roots", "norms too small"),
    gram("what is left of a precise margin", SLACK, "return out, error + UNIT * np.abs(out)",
         "return out, 0.0 * error", "a recomputed margin is trusted beyond its rounding", ERRORS),
    gram("the sign of a sample", DROPPED, "if self.intercept else out * self.sign",
         "if self.intercept else out", "margins of the other class"),
    gram("the sign of a weight", SIGN, "np.asarray(theta, dtype=np.float64) * self.sign",
         "np.asarray(theta, dtype=np.float64)", "the dual point of another problem"),
    quadratic("the smallest eigenvalue", SHRUNK,
              "lowest + low - 8.0 * len(self._block) * UNIT * top,",
              "1.02 * (lowest + low),", "balls too small"),
    quadratic("Cholesky's backward error", SLACK, "norms * (1.0 + error)", "0.999999999 * norms",
              "norms too small"),
    quadratic("the metric of a diagonal", SWAPPED, "np.where(kept, 1.0 / np.where(kept, self",
              "np.where(kept, 1.0 * np.where(kept, self", "norms in another metric"),
    balance("what one term takes up", DROPPED, "return need * max(costs)", "return 0.0",
            "an unbalanced dual point costs nothing"),
    balance("both directions", SWAPPED, "return need * max(costs)", "return need * min(costs)",
            "an unbalanced dual point costs too little"),
    balance("room for the move", DROPPED, "fit = (size > 0.0) & (room * size >= need)",
            "fit = size > 0.0", "a term is moved out of its box"),
    balance("several coordinates", DROPPED,
            "if not (defect <= 1e-6 and (move <= room).all()):",
            "if False:", "terms are moved out of their boxes"),
    balance("no balance at all", DROPPED, 'else float("inf")', "else 0.0",
            "an unbalanced dual point proves something"),
)
