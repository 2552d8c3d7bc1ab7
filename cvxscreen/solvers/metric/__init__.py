"""Metric learning by safe screening (Yoshida, Takeuchi, Karasuyama 2019), never listing its terms.

::

    P(M) = sum_t l_t(<H_t, M>) + <linear, M> + lam/2 |M|^2       over M in the cone
    l_t(m) = w_t (z tau - g/2 tau^2),   z = b_t - m,   tau = clip(z / g, 0, 1)

with ``H_t = (x_i - x_l)(x_i - x_l)' - (x_i - x_j)(x_i - x_j)'`` for a triplet, over the positive
semidefinite matrices, or over the vectors >= 0 for a diagonal metric. The dual point of a metric is
``alpha_t = w_t tau``. With ``K = sum alpha_t H_t - linear``, ``Gamma = [-K]_+`` and
``M_alpha = [K]_+ / lam`` the duality gap is ``lam/2 |M - M_alpha|^2 + <M, Gamma>``, and

::

    |M* - (M + M_alpha)/2|^2 <= |M - M_alpha|^2 / 4 + <M, Gamma> / lam

is the sphere that proves. A term whose margin stays above ``b_t`` all over it is 0 at the optimum
(R in the paper), one that stays below ``b_t - g`` is linear there (L): the former are left out, the
latter are summed up in one matrix, and the smaller task has the same optimum (Lemma 1). Margins are
differences of squared distances of pairs, so work and memory grow with the pairs, and the terms of
a product set (every near with every far neighbour) are never listed.

* `task`: the problem as these solvers see it; its sphere; the task without what a sphere decides.
* `solver`: one value of lambda: evaluate, prove, shrink, iterate, come back to the full task; by
  the paper's projected gradients and a semismooth Newton method.
* `sequence`: along lambda, from extrapolated starts, terms decided for several values at once.
"""
