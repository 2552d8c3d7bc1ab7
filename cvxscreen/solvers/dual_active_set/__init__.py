"""Dual active set method: coordinate descent finds the free duals, conjugate gradients solve them.

For sparse data. The problem (see `cvxscreen.core.problem`), M diagonal, is written in the metric of
M: rows are divided by ``M^{1/2}`` and ``x`` stands for ``M^{1/2} x``. Its dual is then

::

    minimise  1/2 ||v||^2 + sum_i (b_i theta_i + e_i |theta_i| + q_i/2 theta_i^2)
    over      lo_i <= theta_i <= hi_i,       v = -M^{-1/2} linear - sum_i theta_i a_i

and ``x_theta = v`` is the primal point of theta: at a solution it is the minimiser. The duality gap
of a pair ``(v + s, theta)`` is a sum over terms, plus the price of s:

::

    gap = sum_i (f_i(t_i) + f_i*(theta_i) - t_i theta_i) + 1/2 ||s||^2,       t = A (v + s)

**Working set** (`working_set`). Most duals stay at an end of their box (or at the kink of
``|theta_i|``). Only a working set of rows is worked on: the free terms (strictly inside a piece),
those on the wrong piece, and those whose margin is nearest to a kink. It is a copy of these rows,
so that what is read often lies together. The gap on all terms decides whether the answer is good
enough; terms outside the working set that turn out to be on the wrong piece are added.

**Coordinate descent** (`WorkingSet.sweep`). One sweep minimises over one dual after another, v
following:

::

    z         = <a_i, v> - b_i + ||a_i||^2 theta_i
    theta_i  <- clip(soft(z, e_i) / (||a_i||^2 + q_i), lo_i, hi_i),       soft: towards 0 by e_i

That finds out quickly which duals are free, and is slow at their values.

**Face step** (`face`). On the face F of the free duals the dual is a quadratic whose minimum solves
``(A_F A_F' + Q) step = r``, with ``r_i = t_i - b_i - e_i sign(theta_i) - q_i theta_i`` the residual
of the margins. Preconditioned conjugate gradients solve it roughly, the step is clipped to the box,
and a sweep follows. (The alternation is that of Moré and Toraldo 1991, who take projected gradients
where we take coordinate descent.)

**Primal correction** (`correct_primal`). On a face of terms with ``q = 0`` the gap at ``x = v``
is linear in r, the error of the dual objective quadratic (``r' (A_F A_F')^{-1} r / 2``): once the
duals are nearly right, almost all of the gap is due to x alone. A move s of x with ``A_F s = -r``
then closes it at the price of ``||s||^2 / 2``, far below what more steps on the dual would cost.

**Unpenalised coordinate** (`iterate`). Where M is 0 on a coordinate, such as an intercept, a
proximal term ``tau/2 (x_j - centre)^2`` takes its place, and the centre follows the solution
(proximal point method). The gap is the one without that term, at a dual point balanced first so
that the coordinate's column is orthogonal to it.

**Extrapolation along a path** (`PathCache`). On one face theta and x are affine in C. What is
continued on the line through the solutions at the last two values of C is therefore not theta but
``||a_i||^2 theta_i + t_i``, of which one coordinate step gives theta, terms that change their piece
included. It is used where its dual objective beats that of the last point scaled to the new C.

`solver` holds the entry, `DualActiveSet`.

Source of the parts: Moré, Toraldo: On the solution of large quadratic programming problems with
bound constraints, SIAM J. Optim. 1, 93-113 (1991); Hsieh et al.: A dual coordinate descent method
for large-scale linear SVM, ICML 2008.
"""
