"""Proximal Newton for problems under an L1 term, and the loop around it over features and terms.

The problem is ``sum_i f_i(a_i'x) + q'x + 1/2 x'Mx + kappa'|x|`` with piecewise quadratic losses and
a diagonal M (or none). One step of `ProxNewton` (`solver`):

1. *Evaluate* (`objective`). The margins ``t = A x`` give a subgradient theta of the losses; one
   product ``A' theta`` gives the gradient and the duality gap, and the method stops on that.
2. *Model* (`Model`). Around t only the terms on a quadratic piece have curvature, ``1/q_i``. With
   ``B = diag(q)^{-1/2} A`` on these rows, and g the gradient, the change of the objective is ::

       g'd + 1/2 ||B d||^2 + 1/2 d'M d + kappa' (|x + d| - |x|)

   and this is exact until a term changes its piece. Only features that are not 0, or whose gradient
   exceeds kappa_j, take part.
3. *Minimise the model.* Sweeps of exact coordinate descent find the signs; a linear system
   ``(B'B + M) step = residual`` on the surviving signs (`systems`) finds the values. It is solved
   by Cholesky's method on the smaller side of B, or by conjugate gradients; these are
   preconditioned by a factor of an earlier system, which is kept along a path.
4. *Line search* (`objective`): the whole step, and halves of it until the objective decreases.

A loss with a kink has no curvature there. Such losses are smoothed around the last dual point (the
proximal point method on the dual): a smoothed term is again piecewise quadratic, with
``b - s theta0`` for b and ``q + s`` for q, and the smoothing is reduced from round to round.

`rows_and_columns` screens features and terms around this solver: what may be left out, when a proof
pays, and in which order.

References
----------
Lee, Sun and Saunders, "Proximal Newton-type methods for minimizing composite functions", SIAM J.
Optim. 24 (2014).
"""
