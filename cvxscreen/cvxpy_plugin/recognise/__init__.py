"""The recogniser: a ``cvxpy.Problem`` in, a regularised sum of losses or a refusal out.

Four steps; `recognise.recognise` runs them.

*Numbers.* `auxiliary_variables` of the user's are written out, `loss_atoms` reads losses off the
problem as they are written, `python_loops` joins terms and constraints that were
written in a Python loop, and CVXPY's own reductions take the rest to cone form. `standard` puts it
all together, ``minimise 1/2 <z, P z> + <q, z>`` over rows in cones and losses of rows, nothing left
out; `expressions` reads the numbers of expressions, `matrices` holds them without copying large
data.

*Fewer columns.* One loss over data beside squares needs nothing more. For all else `rules` work on
a `draft`, each leaving a `Step` that can be undone: `elimination` (norms in cones,
squares of a lasso, columns that an equality defines, ``e = u - v`` with bounded ``u, v``, what only
one loss sees).

*Losses from epigraphs.* `epigraph` turns columns ``t >= p_1, ..., t >= p_k`` with a cost into
losses; maxima of different data are kept beside them (`max_affine`).

*Recognition and way back.* `recognition` restores all columns and all multipliers from a solution.
`changed_costs` are followed without running the rules again; where parameters only weigh summands,
without reading their expressions again either. `check` compares the recognised problem with the
user's before anything is solved, a large loss at a sample of its terms.
"""
