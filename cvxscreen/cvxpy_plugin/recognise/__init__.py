"""The recogniser: a ``cvxpy.Problem`` in, a regularised sum of losses or a refusal out.

Four steps, a few files each; `recognise.recognise` runs them.

*Canonical numbers.* `python_loops` joins terms and constraints that were written in a Python loop.
`canonical` applies CVXPY's own reductions; the problem is then affine constraints in cones and an
objective that is affine but for squares. `affine` and `objective` read the numbers of expressions,
`matrices` and `row_stack` hold them without copying large data, and `standard` puts them together:
``minimise 1/2 <z, P z> + <q, z>`` over rows in cones, nothing left out.

*Elimination.* Rules work on a `draft`, each leaving a `Step` that can be undone:
`soc_epigraph` (norms in cones), `squared_residuals` (the squares of a lasso, which stay losses),
`elimination` (columns that an equality defines) and `split_variables` (``e = u - v`` with bounded
``u, v``).

*Losses from epigraphs.* `epigraph` finds the columns ``t >= p_1, ..., t >= p_k`` with a cost and
hands them to `piecewise_linear` (hinge, absolute value, pinball, dead zones),
`piecewise_quadratic` (squared hinges and distances) or `max_affine` (maxima of different data).
`partial_minimisation` then removes what only one loss sees (Huber losses, dead zones),
`opposite_hinges` joins two halves of one loss, and `l1_norm` takes absolute values of single
coordinates out as the penalty.

*Recognition and way back.* `recognition` restores all columns and all multipliers from a solution;
`check` compares the recognised problem with the user's before anything is solved; `rescale` follows
changed costs without running the rules again; `variable_values` reads and lends the values of the
user's variables.
"""
