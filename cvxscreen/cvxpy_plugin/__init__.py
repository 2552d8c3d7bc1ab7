"""CVXPY in and out: recognise a ``cvxpy.Problem``, solve it by screening, write the answer back.

How ``prob.solve(method="screen")`` goes through, step by step (`plugin.screened_solve`):

`request` has what was asked for, and leaves to CVXPY at once what is not worth screening by its
`size`, before anything else of the package is imported.

1. **Recognise.** CVXPY's own reductions bring the problem to cone form; rules turn its epigraph
   columns into losses. What is left must be ``1/2 <x, P x> + <q, x> + sum_i f_i(<a_i, x>)``, with
   an L1 norm or side constraints: a `cvxscreen.Problem`. The docstring of `recognise` lists the
   rules. An objective with further convex terms is taken apart in `composite`.
2. **Check.** CVXPY evaluates the user's own objective and constraints at a few points. What was
   recognised and does not agree, in value or in multipliers, is refused (`recognise.check`).
3. **Build** the reduced problem: what screening has left is written for CVXPY with one row and at
   most a few slacks a term, and any solver of CVXPY solves it. Its answer is moved strictly inside
   the side constraints where that can be done, so that proofs may rest on it (`cvxpy_solver`).
4. **Solve**: the screening loop of `cvxscreen.solvers.loop`, or that of `composite` beside
   terms that are no losses.
5. **Restore** all columns and multipliers from the core coordinates (`recognise.recognition`) and
   hand them to CVXPY's own way back, with a report (`answer`).
6. **Certify.** The duality gap on the full problem decides about the status. Without a certificate
   CVXPY solves the problem plainly, and the better of the two answers stays (`plugin`).

What is known of a problem at its next solve is kept in `solution_cache`: the recognition, which a
changed parameter often only rescales (`with_costs`), the last solution, a refusal.

Other entries: `inspection` (``explain``, ``certify``, ``verify``), `reduced` (``reduce``),
`parameter_path` (``path`` over a CVXPY parameter), `rows_left_out` (``leave_one_out``), and
`screened_solver` (``Screened``, behind CVXPY's compilation instead of in front of it).
"""

import lazy_loader

from cvxscreen.registration import register

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "cvxpy_solver": ["joint_sdp", "to_cvxpy"],
        "inspection": ["Explanation", "explain"],
        "plugin": ["CvxpyProblem"],
        "reduced": ["Reduced", "reduce"],
        "request": ["Report"],
        "screened_solver": ["Screened"],
    },
)
__all__ += ["register"]
