"""How large a ``cvxpy.Problem`` is, and whether screening problems so large can pay.

Nothing can be saved where each row has a coordinate of its own, so that no row can go: total
variation, trend filters, isotonic fits, control over a horizon; nor where CVXPY has compiled and
solved a problem before anything could be recognised.

What decides is read from the expression tree alone (`measure`): in how many rows that may be left
out does a variable occur, per entry of it? ``X @ w`` with n rows and d columns: ``n / d``. A slack
``xi_i`` is in two or three rows, ``x[t]`` of a time series in two to six. No number is computed and
nothing is canonicalised; of the many pieces that a Python loop has written a few stand for all.

`Size` has what was measured, `Needs` how much of it a problem of its kind needs
(``_Walk._needs``), `Size.why_not` compares the two.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from cvxpy.atoms.affine.affine_atom import AffAtom
from cvxpy.atoms.elementwise.elementwise import Elementwise

SPECTRAL = frozenset(("normNuc", "lambda_max", "sigma_max", "lambda_sum_largest", "tr_inv"))
"""Functions of a matrix that CVXPY writes with a matrix of helpers: in an objective they stay as
they are beside squares, and nothing can be done without these."""

OF_A_KIND = "is of a kind that cannot be screened"
"""How a refusal ends that is no matter of size."""

WITHOUT_SQUARES = "without squares of the coordinates its term"
"""How one begins of a term that would stay beside them as it is."""

CANNOT_PAY = "leaving some out cannot pay"
"""How the recogniser's refusals end that are, like those of this module, a matter of size."""

CHAINED = "its variables hang together in a chain or a sum, of which nothing can be left out"
"""Why one is not screened that is solved sooner all the same, for meeting few rows each."""

SHORT_CHAIN = "its variables hang together in a chain or a sum, and CVXPY is soon done with it"
"""The same of one that is small."""

FEWEST = 2
"""Terms for every coordinate below which leaving terms out cannot pay; see `recognise.rules`."""

MOST_TRIED = 100
"""Coordinates up to which less is asked: such a problem is small whatever becomes of it."""

MANY_ROWS = 4
"""Inequalities are terms where there are more than this many for every coordinate.

At an optimum about as many of them as there are coordinates are active, so that leaving the others
out can save most of the work.
"""

SMALL = "it is small"
"""How a refusal begins that is a matter of size alone."""

# -- from which size on it pays --------------------------------------------------------------------

TERMS = 200
"""Fewer terms are not worth it where the objective squares the coordinates and nothing else is
asked of them: from here on the first and the second call are within the bar of a plain solve (300
terms x 10: 9 ms for 32, and 2 for 2.4; 100 terms: 10 for 8.5, and 1.2 for 1.8)."""

OTHERWISE = 5000
"""So many of dense data are worth it, however few coordinates there are, with constraints on the
coordinates, sums of largest terms, or no squares: those take the interior point method or a solver
of CVXPY (1,000 absolute values x 10: 36 ms for 33; 10,000: 137 for 265). Fewer, or such with a few
coordinates in each (8,000 absolute values of splines with constraints: 180 for 120 at first), are
where a plain solve is estimated to take more than one of the next two."""

AT_LEAST = 0.15
"""Seconds that a plain solve of so many is estimated to take at least: with fewer coordinates it is
soon done (absolute values with bounds, 5,500 x 1 to 5,500 x 4, estimated 0.06: first calls 0.25 to
0.35 s for 0.08 to 0.13; one coordinate, 20,000 terms, estimated 0.2: 0.18 to 0.34 for 0.24 to 0.32,
and then 0.01 for 0.2)."""

FIRST, FIRST_COMPILED = 0.125, 0.7
"""Estimated seconds of plain solves from which on screening is worth what it loads, once in a
process: the plugin, for what Clarabel solves (absolute and pinball losses with L1 norms, bounds
or the simplex, `cvar`, hinges without squares; first calls, CPU, loaded: estimated 0.067, 4,000
x 8 124 to 155 ms for 114 to 117; 0.098, 8,000 x 4 137 to 172 for 171 to 178; 0.15 to 0.2, 4,000
x 20 and 2,500 x 30 108 to 155 for 197 to 480, in one of eleven cases 211 for 213, in one, the
least of sums, 200 for 150) and for what OSQP does (first calls, CPU, loaded: squared hinges and
Huber's loss with squares, estimated 0.08, 3,000 x 10 97 ms for 61; 0.12, 3,000 x 20 114 to 119 for
82 to 100; 0.13, 4,000 x 15 118 for 105; 0.2, 5,000 x 20 134 for 169; without squares or beside an
L1 norm, 0.16, 8,000 x 8 and 3,000 x 30 100 to 173 for 110 to 506; hinges and absolute values with
squares, 0.13 to 0.18, 300 x 30 to 1,000 x 8 81 to 95 for 88 to 158; squares of 6,000 x 30 within
bounds or beside an L1 norm, 0.14, 130 to 143 for 215 to 5,900), and, for problems that numpy's own
solvers are not for, compiled loops besides (CPU, machine loaded: sparse hinges, 10 to 20 entries a
row, 500 x 1,000 730 ms for 71, estimated 100; 1,000 x 200 710 for 190, estimated 160; 4,000 x 300
810 for 970, estimated 700; 2,000 x 3,000 1,830 for 3,420, estimated 1,700; squares beside an L1
norm, 200 x 1,000 810 for 620, estimated 500; 20,000 x 20 770 for 460, estimated 280; 6,000 x 100
830 for 1,440, estimated 900). The first also for norms of residuals (3,000 x 30, estimated 0.135,
128 ms for 109)."""

NO_QUICKER = 0.01
"""Seconds below which a plain solve is none that screening would do in less, and does not count
towards what it loads (100 pinball losses x 5, other values of a parameter: 4 to 5 ms both ways)."""

ALONE, BESIDE = 0.04, 0.2
"""Seconds of a plain solve from which on losses without squares and without anything beside them
are worth it (1,000 to 3,000 absolute values or pinball losses x 5 to 100: 15 to 80 ms for 17 to
1,500; smooth ones, an L1 norm beside them or not, 1,000 x 10, estimated 0.024: 16 to 40 ms for 30
to 40; 3,000 x 10, estimated 0.07: 17 to 36 for 60 to 140; 3,000 x 40 30 for 220 to 390), and other
problems (constraints, L1 norms, `cvar`: 30 to 250 for 17 to 1,900; hinges with squares and a norm
or a logistic part, 6,000 x 10: 100 to 200 for 100 to 180, 20,000 x 20 180 to 500 for 900 to
1,400)."""

KINKED_BESIDE = 0.08
"""The same for losses without squares beside what the built-in interior point method takes as
well: linear constraints, L1 norms, largest values, if the data are dense (second calls of the kinds
at `FIRST`, estimated 0.067 to 0.2: 0.03 to 0.6 of a plain solve; 0.024 to 0.035: 0.4 to 1.1, the
least of sums and the largest of absolute values 0.8 to 2.6)."""

NESTED, FIRST_NESTED = 0.15, 0.3
"""The same where losses lie inside others (CVaR of a newsvendor's costs, or of absolute values),
which the rules read in CVXPY's cone form, and what they have to take where screening is yet to be
imported (CPU, loaded, first calls; one or two coordinates: 3,000 demands, estimated 0.125, 0.16 s
for 0.11 and in a new process 0.3 for 0.12; 5,000, estimated 0.2, 0.17 for 0.24 and 0.3 to 0.36 for
0.2 to 0.24; 12,000, estimated 0.5, 0.3 to 0.49 in a new process for 0.41 to 0.65)."""

OF_NESTED, FEW_NESTED = 2.2, 2
"""How many times as long as estimated plain solves of these take with more than so many coordinates
(CVaR of costs and of absolute values, of demands that are predicted, 5 to 10 coordinates, 5,000 to
12,000 rows: 2.1 to 3.5 times; one and two coordinates: 0.8 to 1.9)."""

CONES = 0.06
"""The same where short second-order cones stand beside the losses, as of norms of the coordinates
or of residuals, for which Clarabel takes one to three times what is estimated (CPU, loaded: hinges,
quantile, Huber's and absolute losses with a norm, groups, a tracking error, `cvar` under one,
estimated 0.055 to 0.12: 3,000 x 10 36 to 83 ms for 124 to 175; 1,000 x 30 51 to 116 for 106 to 194;
3,000 x 20 62 to 127 for 214 to 364; estimated 0.02, 1,000 x 10 37 to 67 for 42 to 63). Rows alone
beside one wait for `BESIDE`: the widest margin within a ball, 12,000 x 3, estimated 0.145, 216 for
105, 4,000 x 20, estimated 0.18, 151 for 150, 12,000 x 20, estimated 0.53, 258 for 484."""

BESIDE_MATRICES = 0.6
"""The same for terms beside a nuclear norm or a largest eigenvalue, where there are no squares
(hinges of 6 x 6 entries, first calls, plainly by SCS: 5,000 terms, estimated 0.5, 0.7 and 2.1 s for
0.7 and 0.9; 15,000, estimated 1.5, 1.6 and 1.8 for 7.3 and 3.8; Huber's loss of three outputs and
10 columns, 4,000 rows, estimated 0.9, 0.6 for 1.4)."""

UNSURE, LOADED = 0.6, 0.4
"""The same where there are squares, or Huber's loss beside inequalities, but none of the
coordinates: for OSQP before and after what screening takes is loaded, the first for other solvers,
too. OSQP takes 0.1 to 6 times what is estimated (estimated 0.5 and 0.8, 3,000 x 10 and x 40:
absolute values and a variance on the simplex 1.1 and 3.2; squares of one side there 1.1 and 2.6;
Huber's loss with bounds 0.3 and 1.0; CVaR and a variance 0.1 and 0.2; estimated 0.4, 2,500 x 10,
1,650 x 40 and 2,900 x 3: semivariance on the simplex 0.04 to 0.07, Huber's loss of one sign 0.16 to
0.8; screened 0.02 to 0.12, badly scaled columns 0.3 for 1.5; estimated 0.26, 1,600 x 10:
semivariance 0.04, screened 0.05). And the first for rows of a linear program whose data are
sparse (a tenth filled, 12,000 x 5 to x 30, estimated 0.13: screened 1.1 to 1.7 times as long)."""

ROWS_ALONE, FIRST_ROWS = 0.12, 0.4
"""The same for rows of a linear program alone, with dense data, and what they have to take where
screening is yet to be imported (CPU, loaded, random, planted and tied vertices, covers, largest
balls, coordinates of one sign, 3,000 to 20,000 x 3 to 40: estimated 0.035 to 0.08, screened 0.8 to
1.8 times as long as plainly; 0.12 to 0.16 0.4 to 0.75; 0.22 to 0.27 0.3 to 0.6; 0.44 to 0.47 0.25
to 0.6. In new processes: 0.22 to 0.25 0.6 to 1.6 times as long, 0.31 to 0.37 0.5 to 1.1, once, at a
planted vertex, 1.5; 0.41 to 0.44 0.3 to 0.8; 0.76 to 1.0 0.3 to 0.5)."""

OF_SUMS, FIRST_OF_SUMS = 0.15, 0.5
"""The same for the largest of a few sums of kinked losses (worst of four groups and of two halves,
absolute values, CPU, loaded: 3,000 x 8, estimated 0.09, 0.16 s for 0.14; 6,000 x 8, estimated 0.18,
0.32 for 0.34 to 0.44; 12,000 x 8, estimated 0.35, 0.47 to 0.84 for 0.56 to 0.8; 6,000 x 20,
estimated 0.46, 0.54 to 0.69 for 1.0 to 1.4. In new processes: estimated 0.18 and 0.35 0.8 to 1.2
for 0.34 to 0.72; 8,000 x 20, 24,000 x 8 and 6,000 x 30, estimated 0.6 to 0.9, 0.9 to 1.6 for 1.5 to
2.3)."""

PIECES, OF_PIECE = 60, 1e-3
"""Fewer pieces from a Python loop are not worth it; CVXPY compiles each of them in about 1 ms."""

WIDE, WIDE_OTHERWISE = 10_000, 200_000
"""Entries of the data from which a problem with few rows per entry is taken, too, where the
objective squares the coordinates: more columns than rows. The second where `OTHERWISE` holds. (CPU
seconds of hinge, quantile and Huber's loss: sparse 500 x 1,000 with 10 entries a row 0.01, plainly
0.07 to 0.16; dense 100 x 300 0.01 for 0.06 to 0.1; 60 x 400 0.01 to 0.03 for 0.02 to 0.12.)"""

GROUPED = 1.0
"""The same of largest values of three and more, beside squares, by Clarabel (Crammer and Singer's
losses, 20,000 x 15 in 3 and 6 classes: 1.2 s for 4.3 to 4.7 and 1.7 for 13, where nothing can be
left out 14 for 10.5; 3,000 x 10, estimated 0.2 to 0.7: 0.2 to 0.6, plainly as long)."""

LINKS, OF_CHAIN = 200, 0.12
"""Entries of a variable whose neighbours are compared in a constraint that make a chain, and
seconds that a plain solve of one is estimated to take from which on its own solver is tried
(drawdowns in a new process, CPU: 1,000 x 20, estimated 0.04, 110 to 180 ms for 110 to 180; 2,000 x
30, estimated 0.15, 200 to 300 for 250 to 730; 3,000 x 40 190 to 610 for 500 to 1,400)."""

NESTED_SLACKS = 10
"""Coordinates from which on linear programs are solved as chains whose slacks lie above other
slacks, ``z >= u - a`` (CVaR of costs and of absolute values by hand, CPU, loaded: 4,000 and 12,000
x 3 0.2 to 1.0 s for 0.2 to 0.85, with the attempt to read them 0.9 to 1.4 for 0.6 to 0.8; 6,000 x
20 0.5 to 0.65 for 1.4 to 2.4; 12,000 x 30 1.8 for 9.9)."""

LINES = 4.0
"""Rows that are counted of a loss above a number, at most: two lines, that cost something twice."""

CHAINED_ROWS = 8.0
"""Rows of an entry of such a variable at most (`cvxscreen.solvers.chains`)."""

NEVER = float("inf")
"""Of what decides nothing about a kind of problem."""

# -- what a plain solve takes ---------------------------------------------------------------------

PLAIN, OF_ROW, OF_SQUARE = 4e-3, 1e-5, 7e-8
"""Seconds that CVXPY and Clarabel take for any problem, for each row, and for each product of two
coordinates in a row (the same problems, 600 to 3,000 terms: 0.4 to 2 times what was measured; kinds
of `FIRST`, 1,000 x 12 to 4,000 x 20: 0.5 to 1 times)."""

OSQP_ROW, OSQP_ENTRY = 1.3e-4, 3e-6
"""Seconds of OSQP, which CVXPY chooses for a quadratic program, for each term and for each
coordinate in it (hinges and absolute values with squares and constraints, 600 to 3,000 terms x 5 to
60; mostly 0.2 to 1 times what was measured: from 1,600 terms on it often stops at its limit; sparse
hinges, 1,000 to 8,000 terms with 4 to 15 coordinates each of 100 to 500: 0.8 to 1.7 times)."""

OF_COLUMN, OF_SMOOTH_COLUMN = 2e-8, 5e-9
"""Seconds for each entry of dense data and each of their rows or columns, whichever are fewer,
where an L1 norm or bounds hold the columns and nothing else does: with kinks, by Clarabel, and
without, by OSQP (hinges, quantile and absolute losses with an L1 norm, 150 x 400 to 300 x 1,500:
0.1 to 1 times what was measured; Huber's loss and squared hinges 0.2 to 0.9 times)."""

COLUMNS = 0.1
"""Such seconds from which on these are worth it: columns are left out (150 x 400 0.1 s for 0.4 to
1.2, 300 x 1,500 0.3 to 0.9 for 5 to 18; 60 x 300, estimated 0.02, 0.08 for 0.04 to 0.25)."""

BLOCKS, SMOOTH_BLOCKS = 1.0, 0.5
"""The same where norms of blocks hold them and losses have kinks, or are Huber's: at small weights
most columns come in, which takes a while to be seen (300 x 1,500, estimated 2.7 and 0.7: 0.1 to 0.6
of a plain solve at 0.3 and 0.5 of the largest weight, 1.0 to 1.4 at less; 200 x 800, estimated 0.6
and 0.2: 0.6 to 1.0 and 1.5 to 2.2)."""

OF_FILL = 2e-10
"""Seconds on top for each product of a factorisation, which fills what was sparse, where there are
few rows for each coordinate (with it: sparse hinges, 1,000 x 200, 500 x 1,000 and 2,000 x 3,000
with 10 and 20 entries a row 1.8, 2.2 and 1.2 times what was measured; dense 60 x 400 and 100 x 300,
hinge and Huber's loss, 0.7 to 4 times)."""

SMOOTH_ROW, SMOOTH_ENTRY = 8e-6, 1.5e-6
"""The same where no loss has a kink and nothing bounds the coordinates (Huber's, squared hinges and
tubes, 500 x 10 to 20,000 x 10, 1,000 x 100 and 8,000 x 30, machine loaded: 0.9 to 2.3 times what
was estimated, as OSQP takes 50 to 225 steps; beside an L1 norm 0.9 to 4 times, and up to 13 where
its weight is large, in thousands of steps)."""

OF_ENTRY, OF_PRODUCT, TIED = 5e-7, 1e-8, 10.0
"""Seconds that CVXPY takes for least squares: for each entry of the data and for each product with
a coordinate or with a row, whichever are fewer (OSQP, 5,000 x 20 to 20,000 x 50, 30,000 x 80 with a
tenth filled: 0.5 to 2.2, in the sparse case 7 times what was measured; beside an L1 norm, 200 x
1,000 to 20,000 x 20: 1.2 to 3 times); and by how much longer OSQP takes where constraints tie
coordinates (``norm1(w) <= 1``, the simplex: 15 to 30 times; on the simplex 3,000 x 20, 2 times)."""

OF_PARAMETER = 5e-8
"""The same for each entry of data in a `Parameter` and each term, where losses are squared in part:
CVXPY compiles how the squares of all of their slacks follow from it (Huber's loss, 1,000 x 5 to
6,000 x 12: 0.3 to 25 s, without the parameter 0.04 to 0.2; nothing on top for other losses)."""

OF_WEIGHTS, OF_WEIGHTED_SQUARES = 2.5e-8, 8e-8
"""Seconds for each product of two entries of a `Parameter` that weighs as many entries one by one,
and where squares or Huber's losses are weighed so: CVXPY compiles how each row depends on each of
them (least squares with the weights inside and absolute values, 5,000 to 10,000 x 5 to 20: 2.2e-8
to 5e-8; with weighed squares 8e-8 to 9e-8, 20,000 x 12: 26 to 34 s)."""

OF_CONE_ENTRY = 1.2e-6
"""The same for each entry where a cone of residuals takes the place of squares (a norm alone, one
beside an L1 norm, or bounded on the simplex, 3,000 x 12 to 100,000 x 20: 1 to 2 times)."""

LEAST_SQUARES, TIED_SQUARES = 0.05, 0.02
"""Estimated seconds from which on squares over data are worth it, the second where constraints tie
coordinates and OSQP is the solver (1,000 x 10 to 20,000 x 14 and 1,000 x 100, alone, or beside
signs, bounds, an L1 norm, equations, the simplex: from an estimate of 0.05 on first calls 0.02 to
0.36 of a plain solve, 0.04 to 0.3 tied from 0.02 on, and at other values of a parameter 0.05 to
1.2; estimated 0.02, not tied, 0.4 to 0.7 and 0.7 to 2)."""

LOOPED = 500
"""Bounds of a norm or a sum of squares from a Python loop, from which on they are worth it: CVXPY
compiles each in about 1 ms, and they are read in half of that (2,000 x 10: 3.2 s, screened 0.8)."""

OF_CONE = 3e-5
"""Seconds that a plain solve has to take for each cone that may be left out: what reading takes
(20,000 x 10: 0.4 s for 2.4; 20,000 x 2: 0.35 for 0.4)."""

MOST_SHORT = 300
"""Coordinates up to which squares alone are left to CVXPY with a triangle in place of their data,
where there are `ROWS_PER_ENTRY` residuals for each (CPU, loaded machine, first calls and calls at
other values of a parameter, for screened ones; lasso and the simplex: 1,000 x 10 15 and 3.6 ms for
175 and 13; 20,000 x 30 45 and 6 for 240 to 760 and 44; 100,000 x 60 230 and 6 for 580 to 1,900 and
150 to 550; 30,000 x 300 670 to 810 and 160 for 850 to 3,700 and 590 to 850)."""

SUMMED_NORMS, FIRST_NORMS = 0.12, 0.25
"""Seconds that a plain solve has to take where norms of rows of residuals are added up, and what it
has to take where screening is yet to be imported (CPU, loaded, first calls; estimates are 1 to 3
times too high: distances from a point, 5,000 x 2, estimated 0.15, 50 ms for 50 to 77, in a new
process 108; 10,000 x 3, estimated 0.4, 76 for 125 to 180, 126; 20,000 x 2 0.16 s for 0.31, 100,000
x 2 0.46 for 1.6; outputs of 2,000 x 5 in 3 dimensions, estimated 0.12, 51 ms for 60 to 85, in a new
process 119; 4,000 x 5, estimated 0.23, 62 for 120 to 170, 124; 50,000 x 10 in 4 1.0 s for 10)."""

FEW_BOUND, BOUND_NORMS = 4, 0.8
"""The first for up to so many coordinates that constraints hold: medians within a box, a polygon or
the simplex (9,000 x 2 240 to 260 ms for 180 to 250, 20,000 x 2, estimated 0.6, 0.24 to 0.6 s for
0.4 to 0.6, 100,000 x 2 1.9 for 2.5 to 2.7)."""

OF_DISTANCE = 1e-5
"""Seconds for each entry of the data in rows of squares or norms, each of which is a cone or as
many as it has entries (distances from a point, 2,000 x 2 to 20,000 x 10: 0.8 to 6 times)."""

FEW_BETWEEN, MOST_BETWEEN = 0.1, 1000
"""Rows at most for each entry of the variables that they couple, and in all, for these to be terms
of a dual (`cvxscreen.solvers.dual_form`)."""

OF_COUPLED, OF_LOW_RANK, OF_LINEAR, COUPLED = 1.2e-5, 1e-4, 3e-6, 0.2
"""Seconds of a plain solve for each of these entries, the least there are; where squares of data
are among what couples them; for each of the rows of a linear program (one row and a limit of
absolute values over 10,000 entries 0.06 for 0.3, with 20 rows 0.6 for 3.9 and 9, an L1 norm's
least value 0.6 for 0.7, 40 rows over 20,000 2.4 for 3.1; 20 over 50,000 without such 3.0 for 3.2);
and how many of them pay for the imports of a first call and the solve.
(20 rows over 8,000 entries, first calls: the least norm 0.18, a linear program 0.44, a projection
on a simplex 2.0; least squares with a ridge 1.5, the dual of a support vector machine 5.6, a model
of 20 factors 6.3. All take 0.1 to 0.2 by their dual.)"""

# -- measured, and needed -------------------------------------------------------------------------


# Named tuples, which Python makes in a fifth of the time of dataclasses: this module is all that a
# problem waits for that is left to CVXPY.


class Needs(NamedTuple):
    """How much of a `Size` is enough for a problem of its kind; any one of these is.

    Attributes
    ----------
    terms, at_least : float
        And the seconds that a plain solve of so many has to take all the same.
    seconds : float
        Of a plain solve.
    wide : float
        Entries of the data.
    unsure : bool
        Whether `LOADED` seconds of OSQP are enough once everything is loaded.
    first : float
        Seconds of a plain solve where screening is yet to be imported, if these are others than
        those of most kinds of problems; else 0.
    """

    terms: float
    at_least: float
    seconds: float
    wide: float
    unsure: bool
    first: float = 0.0


class Size(NamedTuple):
    """What the tree says of a problem, and how much it would have to be.

    Attributes
    ----------
    terms : float
        The most rows, among those that could be left out, in which one tall variable occurs.
    coordinates : int
        Entries of the variables that are tall, or wide.
    filled : float
        Entries of the data in front of the tall variables.
    pieces : float
        Terms and constraints that were written one by one, where the objective squares the
        coordinates or is a sum of norms.
    wide, height : float
        Entries of the data in front of variables that are not tall, but meet many of them, and that
        the objective squares; most rows that one of these is in.
    squares : float
        Entries of the data in squares beside an L1 norm, or with far more rows than coordinates.
    distances : float
        Entries of the data in rows whose squares or norms are bounded one by one.
    doubled : float
        How many of the terms are absolute values, which take two rows.
    compiling : float
        Seconds that CVXPY takes to compile how all this follows from parameters.
    columns : float
        Entries of dense data in front of variables that an L1 norm or bounds hold and that have as
        many entries as rows, each times the rows or the columns, whichever are fewer.
    quadratic : bool
        Whether CVXPY's own choice for the problem is a solver of quadratic programs.
    grouped : bool
        Whether terms are the largest of three values or more each: unless there are many, only
        OSQP takes longer for them than screening does (Crammer and Singer's losses, 3,000 x 5 in 3
        classes: 0.09 s, OSQP 1.0, Clarabel 0.09; 3,000 x 10 in 6: 0.75, 4.1 and 0.47).
    nested : bool
        Whether kinked losses lie inside other kinked ones.
    smooth : bool
        Whether Huber's loss is among the terms, or most are squared, and nothing is bounded.
    tied : bool
        Whether a constraint has several coordinates.
    curved : bool
        Whether what stands before the columns that `columns` counts has no kinks.
    blocks : bool
        Whether norms of blocks hold these columns, beside losses that are not just squares.
    compiled : bool
        Whether screening takes compiled loops from the first time on.
    norms : float
        Norms of rows of residuals that are added up, where these are most of the terms.
    parametric : float
        Entries of data in parameters.
    chained : bool
        Whether neighbours in a long variable that is not tall are compared, or its sum is fixed; or
        most losses lie above a number that may have any sign; or slacks above other slacks.
    few : bool
        Whether that is all, and there are too few coordinates for it to pay.
    coupled : float
        Entries of the variables, where nothing but few linear constraints and squares couples them.
    low_rank : bool
        Whether squares of data are among what couples them, and absolute values are not in the
        objective alone: OSQP takes long then.
    linear_rows : float
        How many rows couple these where the objective has no squares.
    needs : Needs or None
    reason : str
        Why the problem cannot be screened whatever its size, or empty.
    """

    terms: float = 0.0
    coordinates: int = 0
    filled: float = 0.0
    pieces: float = 0.0
    wide: float = 0.0
    height: float = 0.0
    squares: float = 0.0
    distances: float = 0.0
    doubled: float = 0.0
    compiling: float = 0.0
    columns: float = 0.0
    quadratic: bool = False
    grouped: bool = False
    nested: bool = False
    smooth: bool = False
    tied: bool = False
    curved: bool = False
    blocks: bool = False
    compiled: bool = False
    norms: float = 0.0
    parametric: float = 0.0
    chained: bool = False
    few: bool = False
    coupled: float = 0.0
    low_rank: bool = False
    linear_rows: float = 0.0
    needs: Needs | None = None
    reason: str = ""

    def seconds(self, solver: str = "") -> float:
        """About how long CVXPY takes with `solver`, or with the solver of its choice."""
        across = min(self.filled / max(self.terms, 1.0), float(self.coordinates))
        found = PLAIN + (self.terms + self.doubled) * (OF_ROW + OF_SQUARE * across**2)
        found += OF_DISTANCE * self.distances
        if self._osqp(solver) and self.smooth:
            found = PLAIN + self.terms * (SMOOTH_ROW + SMOOTH_ENTRY * across)
        elif self._osqp(solver):
            found = max(found, self.terms * (OSQP_ROW + OSQP_ENTRY * across))
        if self.nested and self.coordinates > FEW_NESTED:
            found *= OF_NESTED
        return found + self.compiling

    def estimate(self, solver: str = "") -> float:
        """The same where it has been compared with what was measured; NaN elsewhere."""
        dense = self.filled >= 0.5 * self.terms * self.coordinates > 0.0
        tried = solver.upper() in ("", "CLARABEL") or self._osqp(solver)
        return self.seconds(solver) if dense and tried else float("nan")

    def takes_osqp_only(self, solver: str = "") -> bool:
        """Whether the problem is taken only because OSQP may take long for it."""
        return self.grouped and self._osqp(solver) and self.pieces < PIECES

    def seconds_of_squares(self) -> float:
        """The same as `seconds` of what `squares` counts."""
        count = max(self.coordinates, 1)
        entry = OF_ENTRY if self.quadratic else OF_CONE_ENTRY
        found = self.squares * (entry + OF_PRODUCT * min(count, self.squares / count))
        return found + (self.compiling if self.squares else 0.0)

    def seconds_of_columns(self, solver: str = "") -> float:
        """The same of what `columns` counts."""
        slower = TIED if self.curved and self.tied and self._osqp(solver) else 1.0
        return slower * self.columns * (OF_SMOOTH_COLUMN if self.curved else OF_COLUMN)

    def seconds_of_coupled(self) -> float:
        """The same of what `coupled` counts."""
        rate = OF_LOW_RANK if self.low_rank else OF_COUPLED
        return self.coupled * max(rate, OF_LINEAR * self.linear_rows)

    def only_short_squares(self) -> bool:
        """Whether there is nothing but squares of few coordinates: a triangle is all their data."""
        count = self.coordinates
        others = self.terms or self.wide or self.columns or self.distances or self.norms
        others = others or self.pieces >= PIECES
        tall = self.squares >= ROWS_PER_ENTRY * count**2
        return tall and 0 < count <= MOST_SHORT and not (others or self.parametric or self.reason)

    def at_least(self, solver: str = "") -> float:
        """The same as `seconds` of the whole problem, rather too little."""
        height = self.height if self.wide else 0.0
        fewer = min(height, float(self.coordinates))
        return max(
            self.seconds(solver),
            height * OSQP_ROW + self.wide * OSQP_ENTRY + OF_FILL * fewer**3,
            self.seconds_of_squares(),
            self.seconds_of_columns(solver),
            self.seconds_of_coupled(),
            OF_PIECE * self.pieces,
        )

    @property
    def first(self) -> float:
        """`FIRST`, or what stands in its place for what the problem needs."""
        if self.needs is not None and self.needs.first:
            return self.needs.first
        if self.norms:
            return FIRST_NORMS
        if self.nested:
            return FIRST_NESTED
        return FIRST

    def _osqp(self, solver: str) -> bool:
        return solver.upper() == "OSQP" or (self.quadratic and not solver)

    def why_not(self, solver: str = "", taken: float = 0.0) -> str:
        """Why screening cannot save anything; an empty text where it may.

        Parameters
        ----------
        solver : str
            The one that was named, which would solve the problem plainly.
        taken : float
            Seconds that the last plain solve took, its compilation left aside.
        """
        if self.coupled and max(self.seconds_of_coupled(), taken) >= COUPLED:
            return ""
        if self.chained:
            pays = not self.few and max(self.seconds(solver), taken) >= OF_CHAIN
            return CHAINED if pays else SHORT_CHAIN
        if self.reason:
            return self.reason
        if self.needs is None or not self.coordinates:
            return (
                "it has about as many coordinates as terms, or too few data, so there is nothing "
                "to be saved (`always=True` screens all the same)"
            )
        due = LOADED if self.needs.unsure and self._osqp(solver) else self.needs.seconds
        seconds = max(self.seconds(solver), taken)
        of_blocks = SMOOTH_BLOCKS if self.curved else BLOCKS
        slow = seconds >= (max(due, of_blocks) if self.blocks else due)
        if self.grouped and not self._osqp(solver):
            slow &= self.quadratic and seconds >= GROUPED
        tied = self.tied and self._osqp(solver)
        slow |= self.seconds_of_squares() >= (TIED_SQUARES if tied else LEAST_SQUARES)
        enough = self.pieces >= PIECES or self.wide >= self.needs.wide
        least = of_blocks if self.blocks else ALONE if self.curved else COLUMNS
        enough |= self.seconds_of_columns(solver) >= least
        many = self.terms >= self.needs.terms and self.seconds(solver) >= self.needs.at_least
        if slow or enough or many:
            return ""
        return (
            f"{SMALL} ({self.words()}), and compiled and solved before screening "
            "could save anything (`always=True` screens all the same)"
        )

    def words(self) -> str:
        """What is counted of a problem of its kind."""
        if self.coupled:
            return f"{self.coupled:.0f} columns"
        if self.squares and not self.terms:
            return f"{self.squares:.0f} entries of data in its squares"
        return f"{max(self.terms, self.height):.0f} terms"


_MEASURED: weakref.WeakKeyDictionary[Any, Size] = weakref.WeakKeyDictionary()
"""The size of each problem met; an expression tree never changes."""


def measured(problem: Any) -> Size:
    """The size of a ``cvxpy.Problem``, read once; where that fails it is for CVXPY to solve."""
    known = _MEASURED.get(problem)
    if known is None:
        try:
            known = measure(problem)
        except Exception as error:  # whatever a tree holds, no answer is lost to it
            known = Size(reason=f"its size cannot be read ({type(error).__name__}: {error})")
        _MEASURED[problem] = known
    return known


def measured_as(problem: Any, other: Any) -> None:
    """Let `problem`, which is solved in place of `other`, be as large as that."""
    _MEASURED[problem] = measured(other)


def equations_of_residuals(problem: Any) -> list[tuple[Any, Any]]:
    """Equations and variables that may stand for residuals in them, many for each coordinate.

    Parameters
    ----------
    problem : cvxpy.Problem
    """
    found = []
    for constraint in problem.constraints:
        if type(constraint) not in EQUATIONS or constraint.size < ROWS_PER_ENTRY:
            continue
        own = constraint.variables()
        total = sum(variable.size for variable in own)
        found += [
            (constraint, variable) for variable in own
            if variable.shape == constraint.shape
            and variable.size >= ROWS_PER_ENTRY * (total - variable.size) > 0.0
        ]
    return found


# -- reading the tree -----------------------------------------------------------------------------

ROWS_PER_ENTRY = 10.0
"""A variable is a coordinate of a fit, not a slack or a moment of a time series, from this many
rows per entry on: slacks have up to 3, and control problems with bounds on everything up to 6
(``examples/benchmarks/never_worse.py``)."""

DENSE_ROWS, DENSE_SHARE, DENSE = 3.0, 0.3, 300_000
"""Fewer rows per entry will do where the data in front of it are dense, such a share of them, and
so many entries: absolute values, pinball and hinge losses and CVaR of 1,200 x 400 take 0.5 to 2.1
CPU seconds, plainly 0.9 to 5.3, of 2,400 x 400 0.6 to 1.8 for 6 to 14 (600 x 200 as long as plainly
for two of the four)."""

SOON = 1e7
"""Up to so many products of entries an L1 norm takes no compiled loop (the same in
`cvxscreen.solvers.registry`)."""

SPARSE_COLUMNS = 150
"""Coordinates from which on sparse data are for compiled loops (`cvxscreen.solvers.registry`)."""

ENTRIES, ROW_ENTRIES = 40.0, 8.0
"""Entries of the data per coordinate, or per row, that tell data from differences of neighbours (2
to 4 of both). Words of texts are in few rows each, but every row has dozens of them."""

EXPONENTIAL = frozenset(
    (
        "exp", "log", "log1p", "entr", "kl_div", "rel_entr", "logistic", "log_sum_exp",
        "log_det", "xexp",
    )
)
"""Atoms that need the exponential cone, named in a refusal."""

MEANS = frozenset(("geo_mean", "GeoMean", "GeoMeanApprox"))
"""Atoms of which CVXPY has no subgradient where the loop needs one."""

ROWS = (cp.constraints.Inequality, cp.NonNeg, cp.NonPos, cp.constraints.Equality, cp.Zero)
"""Constraints whose rows may go. A coordinate that is in many equalities is there beside slacks (a
linear program's ``X @ w - y == u - v``): without them they would leave it no freedom."""

EQUATIONS = (cp.constraints.Equality, cp.Zero)
"""Those of them beside which OSQP is as quick as without."""

KINKED = frozenset(
    (
        "abs", "maximum", "minimum", "huber", "norm1", "max", "min", "norm_inf", "sum_largest",
        "cvar", "MixedNorm", "dotsort",
    )
)
"""Atoms whose arguments are terms: on all but one piece of theirs, a term is known."""

NORMS = frozenset(("Pnorm", "PnormApprox"))
"""Atoms with one cone for each value: as many terms as values."""

LONGEST = 64
"""Entries of a single norm up to which it is read with those of rows: it is one block more, with as
many rows. A longer one is a loss of its own for the rules."""

SIMPLE = frozenset(("abs", "maximum", "minimum", "huber", "norm1"))
"""Those with one term for each of their values."""

WIDE_COLUMNS, WIDE_SHARE = 300, 2.0
"""Entries of a variable with bounds, and for each residual, from which on columns are left out
(``MANY_COLUMNS`` of `cvxscreen.solvers.loop`, ``WIDE`` of `cvxscreen.solvers.columns`)."""

SIGNS = ("nonneg", "nonpos", "pos", "neg", "PSD", "NSD", "bounds")
"""Attributes of a variable that constrain it."""

CONIC = NORMS | EXPONENTIAL | {"MixedNorm"}
"""Atoms that no solver of quadratic programs takes."""

POWERS = frozenset(("Power", "PowerApprox"))
SQUARES = POWERS | {"quad_over_lin"}
FORM = "QuadForm"
"""Squares with a matrix, which is as large as the data where it is a kernel."""
SHARED = NORMS | SQUARES | {FORM}
"""Convex functions of one value that may stand inside all terms, ``pos(1 - m + norm(w))``. Squares
do not pay (3,000 and 20,000 hinges x 8: 0.12 and 0.61 until they were refused, plainly 0.05 and
0.43), nor does a norm where all coordinates are squared: its bound is the one that is not, and
what is left goes to a solver of cones."""

SHARED_NORM = 0.25
"""Seconds of a plain solve from which on a norm inside all terms, as of an uncertain row of the
data, is worth it, if there is an intercept or no square."""

LEVEL = 500
"""Losses in a norm, or curved ones in a constraint, for which a few solves at weights cost less
than one with a cone; see `cvxscreen.cvxpy_plugin.weighed_losses`."""

STACKED = frozenset(("Vstack", "Hstack", "Concatenate"))
"""Affine atoms each of whose arguments is in rows of its own, unless a matrix multiplies them."""

ENTRYWISE = frozenset(
    ("NegExpression", "index", "special_index", "multiply", "DivExpression", "reshape")
)
"""Affine atoms whose values have one entry of their argument each."""

ADDED = frozenset(("AddExpression", "NegExpression", "multiply", "DivExpression"))
"""Those below which an equation's sums are looked for."""

SAMPLE = 24
"""So many of the pieces that a Python loop has written stand for all of them."""

VISITS = 2000
"""No more expressions are looked at; one takes a microsecond or two, its compilation 50."""


def measure(problem: Any) -> Size:
    """Read the size of a ``cvxpy.Problem`` from its expressions.

    Parameters
    ----------
    problem : cvxpy.Problem
    """
    walk = _Walk(problem.variables())
    walk.follow(problem.objective.expr, 0.0, 1.0, objective=True)
    constraints = problem.constraints
    chosen, weight = _some(constraints)
    # Equations of several rows, a step of a time series say, are no terms that a loop has written.
    single = [part for part in chosen if type(part) not in EQUATIONS or part.size == 1]
    walk.pieces = max(walk.pieces, weight * len(single))
    for constraint in chosen:
        walk.constrain(constraint, weight)
    return walk.size()


class _Walk:
    """Rows and entries of the data of each variable, summed over a tree."""

    def __init__(self, variables: Sequence[Any]) -> None:
        self.sizes: dict[int, float] = {variable.id: variable.size for variable in variables}
        signed = [{v.id} for v in variables if any(v.attributes[name] for name in SIGNS)]
        # By variable: rows that can go, entries of the data in them, and in front of squares.
        self.rows: dict[int, float] = {}
        self.entries: dict[int, float] = {}
        self.smooth: dict[int, float] = {}
        # Variables under an L1 norm, under squares and forms of the objective, and under squares
        # of residuals, with the rows of these.
        self.shrunk: set[int] = set()
        self.squared: set[int] = set()
        self.formed: set[int] = set()
        # By variable: entries in blocks whose norms the objective adds up, or a budget.
        self.in_blocks: dict[int, float] = {}
        self.residuals: dict[int, float] = {}
        self.under_squares: set[int] = set()
        # Those of each constraint; whether one has several coordinates, and is no equation.
        self.constrained: list[set[int]] = signed
        # By variable: rows of its own, as of bounds or an L1 norm, and its own squares.
        self.own_rows: dict[int, float] = {}
        self.own_squares: dict[int, float] = {}
        # Variables that bounds hold at 0, and whether there are constraints but bounds.
        self.held_by_bounds = {v.id for v in variables if _sign(v)}
        self.other_rows = 0.0
        self.beyond_bounds = any(v.attributes[n] for v in variables for n in ("PSD", "NSD"))
        self.tied, self.limited = False, bool(signed)
        # Atoms with terms, how many these are, and whether some are the largest of several values;
        # how many are squared, so that they have no kink.
        self.kinds: set[str] = set()
        self.kinked, self.pieces, self.grouped = 0.0, 0.0, False
        self.inside = 0.0  # rows of kinked losses inside others
        # Entries of data in parameters; terms that CVXPY writes as two rows.
        self.parametric, self.doubled = 0.0, 0.0
        # Seconds of CVXPY's compilation that weights in parameters take.
        self.compiling = 0.0
        self.rounded = 0.0
        # Entries in rows of squares or norms that are bounded, how many of these are norms, and how
        # many scalar constraints bound one each; by variable: how many norms that are added up.
        self.distances, self.cones, self.bounds = 0.0, 0.0, 0.0
        self.summed_norms = 0.0
        self.normed: dict[int, float] = {}
        # Whether there are squares; cones; cones in the objective, and others than of one norm of
        # residuals; atoms that cannot be screened.
        semidefinite = any(v.attributes[name] for v in variables for name in ("PSD", "NSD"))
        self.squares, self.conic, self.beside = False, semidefinite, False
        self.other_norms = False
        self.cones_in_constraints = semidefinite
        # Whether there are other cones than those of second order, or losses in constraints.
        self.other_kinds = semidefinite
        self.foreign: set[str] = set()
        self.spectral: set[str] = set()
        self.shared: set[str] = set()
        self.foreign_rows, self.bounding = 0.0, False
        # Slices of long variables in the constraint that is read, and those with several in one.
        self.slices: dict[int, set[str]] = {}
        self.chains: set[int] = set()
        self.running = False  # whether there are running maxima, CVXPY's own
        self.sums = False  # whether the largest of sums of losses is sought
        self.ranked = False  # whether the largest are sought of sums of different losses
        # By number without a sign: how many kinked losses are compared with it.
        self.above: dict[int, float] = {}
        # Slacks that others lie above, and those in equations.
        self.below: set[int] = set()
        self.equal: set[int] = set()
        # How many constraints hold many curved losses.
        self.levels = 0
        # Rows of squares in the objective but those of single entries; absolute values of these,
        # and whether the objective, and whether constraints have some.
        self.square_rows, self.own_kinks, self.tolled, self.capped = 0.0, 0.0, False, False
        self.discrete = any(v.attributes["integer"] or v.attributes["boolean"] for v in variables)
        self.complex = any(v.is_complex() for v in variables)
        self.left = VISITS

    def constrain(self, constraint: Any, weight: float) -> None:
        """Count a constraint, `weight` times."""
        rows = 0.0
        if type(constraint) in ROWS:
            rows = float(constraint.size)
        elif type(constraint) is cp.SOC:
            rows = float(constraint.args[0].size)
        self.conic |= type(constraint) not in ROWS
        self.cones_in_constraints |= type(constraint) not in ROWS
        self.other_kinds |= type(constraint) not in (*ROWS, cp.SOC)
        if constraint.size == 1 and type(constraint.args[0]).__name__ in NORMS | {"quad_over_lin"}:
            self.bounds += weight
        before, budget = self.kinked, _is_budget(constraint)
        self.slices.clear()
        for part in constraint.args:
            # Of one cone of residuals no row can go, but what data it has is a triangle's.
            long = type(constraint) is cp.SOC and rows == 1.0 and part is constraint.args[1]
            if long and part.is_affine():
                self._count_residuals(part, weight)
            self.follow(part, 0.0 if long else rows, weight, budget=budget)
        self.chains |= {key for key, found in self.slices.items() if len(found) > 1}
        if type(constraint) in EQUATIONS and constraint.size == 1:
            self.chains |= _summed(constraint.args)
        self.other_kinds |= self.kinked > before and not (budget or _between(constraint))
        self.levels += constraint.size == 1 and _curves(constraint.args)
        bounded, at_zero = _bounds(constraint)
        own = constraint.variables()
        self.below |= _nested_slacks(constraint)
        self.equal |= {v.id for v in own} if type(constraint) in EQUATIONS else set()
        self.beyond_bounds |= not bounded
        self.held_by_bounds |= bounded if at_zero else set()
        alone = bounded or _between(constraint)
        self.held_by_bounds |= alone - bounded  # by an L1 norm in other words
        for key in alone:
            self._own(key, weight * rows)
        if not alone:
            self.other_rows += weight * rows
        self.constrained.append({variable.id for variable in own})
        self.tied |= constraint.size < sum(variable.size for variable in own)
        self.limited |= type(constraint) not in EQUATIONS

    def follow(
        self, expr: Any, rows: float, weight: float, *, objective: bool = False,
        budget: bool = False,
    ) -> None:
        """Count `expr`, an argument of something with so many `rows`, `weight` times.

        It may be the `objective`, or what a `budget` of norms bounds.
        """
        # Beside each expression: the rows of the affine map that it is part of (0: none of them
        # can go), the entries of the data in front of it, how many expressions it stands for.
        stack: list[tuple[Any, float, float, float]] = [(expr, rows, 0.0, weight)]
        top = rows
        while stack and self.left > 0:
            self.left -= 1
            here, rows, data, weight = stack.pop()
            if not here.args:
                if isinstance(here, cp.Variable):
                    self._variable(here, rows, data, weight)
                continue
            if isinstance(here.args[0], cp.Problem):  # of a partial optimisation: nothing is read
                continue
            if isinstance(here, AffAtom) and not (rows and squared_rows(here) is not None):
                parts, more = _some(here.args)
                if more > 1.0:
                    self.pieces = max(self.pieces, weight * len(here.args))
                if here.size >= LINKS and type(here).__name__ == "index":
                    for key in _bare(here):
                        self.slices.setdefault(key, set()).add(str(here.key))
                apart = type(here).__name__ in STACKED and not data
                own_data = _entries(here)
                if here.parameters():
                    self.parametric += weight * own_data
                    self.compiling += weight * _of_weights(here)
                data = max(data, own_data)
                for part in parts:
                    own = rows * part.size / here.size if apart else rows
                    stack.append((part, own, data, weight * more))
                continue
            name = type(here).__name__
            inner = squared_rows(here) if rows else None
            if inner is not None:
                self.distances += weight * inner.size
                self.kinked += weight * here.size
                self.squares = self.conic = True
                stack.append((inner, float(here.size), float(inner.size), weight))
                continue
            self.running |= name == "cummax"
            self.ranked |= name in ("sum_largest", "cvar") and _of_several(here.args[0])
            for key, kinks in _levels(here, name).items():
                self.above[key] = max(self.above.get(key, 0.0), weight * kinks * here.size)
            unknown = _unknown(here, name)
            if unknown:
                self.foreign.add(unknown)
                self.bounding |= not objective
                count = here.args[0].size if name in NORMS else here.size
                self.foreign_rows += weight * count
            if name == "huber" and here.args[0].size > 1 and _is_norm(here.args[0]):
                self.foreign.add("huber of norms")
                self.bounding |= not objective
                self.foreign_rows += weight * here.size
            if name in ("norm1", "abs"):
                bare = _bare(here.args[0])
                self.shrunk |= bare
                for key in bare:
                    self._own(key, weight * here.args[0].size)
                self.doubled += 0.0 if bare else weight * here.args[0].size
                entrywise = _is_entrywise(here.args[0])
                self.own_kinks += weight * here.args[0].size if entrywise else 0.0
                self.tolled |= objective and entrywise
                self.capped |= not objective and entrywise
            length, block = False, self._block(here) if objective or budget else set()
            for key in block:
                before = self.in_blocks.get(key, 0.0)
                self.in_blocks[key] = before + weight * here.args[0].size
                self._own(key, weight * here.size if here.size > 1 else 0.0)
            if objective and name in SQUARES and not unknown:
                inner = here.args[0]
                if inner.size > 1 and type(inner).__name__ in KINKED:
                    self.rounded += weight * inner.size
                if type(inner).__name__ in NORMS:
                    self.under_squares.add(id(inner))
                    inner = inner.args[0]
                bare = _bare(inner)
                self.squared |= bare
                for key in bare if inner.size >= ROWS_PER_ENTRY else ():
                    before = self.own_squares.get(key, 0.0)
                    self.own_squares[key] = before + weight * inner.size
                self._count_residuals(inner, weight)
                self.square_rows += 0.0 if _is_entrywise(inner) else weight * inner.size
            elif not block and self._is_length(here, rows, objective):
                length, inner = True, here.args[0]
                if inner.is_affine():
                    self._count_residuals(inner, weight)
            if objective and name in SPECTRAL:
                self.spectral.add(name)
            if objective and name == FORM:
                self.formed |= _bare(here.args[0])
                self.square_rows += weight * here.args[0].size
            if here.size == 1 and rows > 1.0 and name in SHARED:
                self.shared.add(name)
            if here.size == 1 and name in ("max", "maximum", "sum_largest"):
                self.levels += _largest_sums(here.args, of_any=name == "sum_largest")
                above = cp.sum_largest in here.atoms()  # of which most entries go
                self.sums |= not above and _largest_sums(here.args, of_any=True) > 1
            square = name in SQUARES or name == FORM
            self.cones_in_constraints |= not objective and (square or name in CONIC | SPECTRAL)
            self.squares |= square
            self.conic |= name in CONIC or (square and not objective)
            beside = name in CONIC and id(here) not in self.under_squares
            self.beside |= beside
            self.other_norms |= beside and not (length or block)
            if name in KINKED:
                self.kinds.add(name)
            # A single norm stands for all that a loop has written.
            summed_ones = objective and not block and id(here) not in self.under_squares
            for part in here.args:
                below = 0.0
                if name == "cummax":  # each value is above its argument's and the one before
                    below = 2.0 * here.size
                elif name in KINKED:  # a maximum along an axis is one term for each of its values
                    own = isinstance(here, Elementwise) or here.size > 1
                    below = float(here.size if own else part.size)
                    if top <= 1.0 and _holds_losses(part, name):
                        self.inside += weight * part.size
                    # Of two values each they are those of a `maximum`.
                    self.grouped |= own and name == "max" and part.size > 2 * here.size
                elif name in NORMS and (
                    here.size > 1 or (weight > 1.0 and summed_ones and part.size <= LONGEST)
                ):
                    below = float(here.size)
                    # Norms of rows of residuals that are added up: their bounds are eliminated.
                    summed = objective and not (rows or block) and _dense_norm(here)
                    summed = summed and id(here) not in self.under_squares
                    if summed:
                        self.summed_norms += weight * below
                    if (rows and not block) or summed:
                        self.cones += 0.0 if summed else weight * below
                        self.distances += weight * part.size
                    else:
                        for variable in part.variables():
                            before = self.normed.get(variable.id, 0.0)
                            self.normed[variable.id] = before + weight * below
                self.kinked += weight * below
                stack.append((part, below, 0.0, weight))

    def _block(self, expr: Any) -> set[int]:
        """The variable of which `expr` is the norm of a part, or are norms of rows; else empty."""
        if type(expr).__name__ not in NORMS or not is_two(expr.p):
            return set()
        if id(expr) in self.under_squares:
            return set()
        inner = expr.args[0]
        most = 1.0 if expr.size > 1 else 0.5  # of many points each is a residual
        return {k for k in _bare(inner) if inner.size <= most * self.sizes[k]}

    def _is_length(self, expr: Any, rows: float, objective: bool) -> bool:
        """Whether `expr` is one norm, or squares that one number bounds."""
        name = type(expr).__name__
        if name in NORMS and expr.size == 1:
            return is_two(expr.p) and id(expr) not in self.under_squares
        return name in SQUARES and not objective and rows <= 1.0

    def _own(self, key: int, rows: float) -> None:
        self.own_rows[key] = self.own_rows.get(key, 0.0) + rows

    def _count_residuals(self, residuals: Any, weight: float) -> None:
        if residuals.size >= ROWS_PER_ENTRY:
            for variable in residuals.variables():
                before = self.residuals.get(variable.id, 0.0)
                self.residuals[variable.id] = before + weight * residuals.size

    def _variable(self, variable: Any, rows: float, data: float, weight: float) -> None:
        key, size = variable.id, variable.size
        self.rows[key] = self.rows.get(key, 0.0) + weight * rows
        if rows:
            most = weight * min(max(data, rows), rows * size)
            self.entries[key] = self.entries.get(key, 0.0) + most
        else:
            self.smooth[key] = self.smooth.get(key, 0.0) + weight * data

    def size(self) -> Size:
        """How large the problem is that the walk went through."""
        outliers = self._outliers()
        tall = {key for key in self.rows if self._tall(key)}
        # Features can only go where an L1 norm holds all of them and nothing else does; with bounds
        # besides where there are far more of them than residuals.
        held_at_zero = self.shrunk | self.held_by_bounds
        free = held_at_zero >= self.sizes.keys() and not (self.beyond_bounds or self.in_blocks)
        free &= not self.constrained or all(self._wide(key) for key in self.sizes)
        normed = {k for k in held_at_zero - tall if self._data_under_squares(k)} if free else set()
        broad = {key for key in self.squared - tall - normed if self._data_in_rows(key)}
        # Few constraints but bounds stand beside what holds them, and their data are dense.
        few = not (self.spectral or self.foreign or self.other_kinds or self.other_norms)
        blocks = {k for k, part in self.in_blocks.items() if 2.0 * part >= self.sizes[k]}
        many = {k for k in (held_at_zero | blocks) - tall - normed if few and self._dense_data(k)}
        terms = max((self.rows[key] for key in tall), default=0.0)
        held = self._held(tall)
        reason = self._refusal(tall, terms, held or bool(broad))
        if reason:
            return Size(
                coordinates=int(_total(self.sizes, self.residuals)), squares=self._folded(),
                quadratic=not self.conic, reason=reason,
            )
        of_norms = 2.0 * self.summed_norms >= max(terms, 1.0)
        shrunk = _total(self.smooth, (tall & self.shrunk) | normed)
        folded = 0.0 if self._lasso else self._folded()
        most = max([terms, *map(self._rows_of_data, many)])
        smooth = bool(outliers) or "huber" in self.kinds or self.rounded >= 0.5 * most > 0.0
        curved = smooth or any(self._residuals(k) >= 0.5 * most for k in many)
        coordinates = tall | normed | broad | many | (self.residuals.keys() if folded else set())
        found = Size(
            terms=terms,
            coordinates=int(_total(self.sizes, coordinates)),
            filled=_total(self.entries, tall),
            pieces=(
                self.pieces if held or of_norms else self.bounds if self.bounds >= LOOPED else 0.0
            ),
            wide=_total(self.entries, broad),
            height=max((self.rows[key] for key in broad | many), default=0.0),
            squares=max(shrunk, folded),
            distances=self.distances,
            doubled=min(self.doubled, terms),
            columns=sum(
                self._entries_of_data(k) * min(self._rows_of_data(k), self.sizes[k]) for k in many
            ),
            compiling=self.compiling + OF_PARAMETER * terms * (
                self.parametric if "huber" in self.kinds or self.rounded else 0.0
            ),
            quadratic=not self.conic
            and (self.squares or "huber" in self.kinds or not (terms or many)),
            grouped=self.grouped,
            nested=LINES * self.inside >= terms > 0.0,
            smooth=smooth and not self.limited,
            tied=self.tied,
            curved=curved,
            blocks=bool(many & blocks) and (smooth or not curved),
            norms=self.summed_norms if of_norms else 0.0,
            parametric=self.parametric,
        )
        square_rows = self._square_rows()
        coupled, between = self._coupled(square_rows)
        low_rank = coupled > 0.0 and square_rows > 1.0 and (self.capped or not self.tolled)
        between = 0.0 if self.squares else between
        found = found._replace(coupled=coupled, low_rank=low_rank, linear_rows=between)
        if not (found.quadratic or self.squares):
            chained = self.running or any(map(self._local, self.chains - tall))
            # What lies above a number of any sign is no loss of one argument.
            unsigned = self.above.keys() - set().union(*self.constrained)
            lines = LINES * max((self.above[key] for key in unsigned), default=0.0)
            chained |= lines >= max(terms, 1.0)
            nested = bool(self.below - self.equal - tall - self.shrunk)
            few = nested and not chained and found.coordinates < NESTED_SLACKS
            found = found._replace(chained=chained or nested, few=few)
        found = found._replace(compiled=self._compiled(found, coordinates, held))
        return found._replace(needs=self._needs(found, tall, broad))

    def _square_rows(self) -> float:
        """Rows of squares: of data, and of the few factors that equations with others define."""
        few = FEW_BETWEEN * sum(self.sizes.values())
        factors = (self.sizes[key] for key in self.squared & self.equal)
        return self.square_rows + sum(size for size in factors if size <= few)

    def _coupled(self, square_rows: float) -> tuple[float, float]:
        """Entries of the variables where few rows or squares couple them, and these; else 0."""
        others = self.conic or self.foreign or self.spectral or self.running or self.in_blocks
        if others or (self.own_kinks and not self.other_rows):  # squares beside an L1 norm, say
            return 0.0, 0.0
        entries = sum(self.sizes.values())
        rows = self.other_rows + square_rows + max(self.kinked - self.own_kinks, 0.0)
        few = 0.0 < rows <= min(FEW_BETWEEN * entries, MOST_BETWEEN)
        return (entries, rows) if few else (0.0, 0.0)

    def _outliers(self) -> set[int]:
        """Variables with an entry in each residual under squares, and an L1 norm, which go.

        The rest of these residuals is then seen by Huber's loss, whose rows can go.
        """
        held: set[int] = set().union(*self.constrained) | self.squared | self.in_blocks.keys()
        out = {
            key for key in (self.shrunk & self.residuals.keys()) - held
            if self.residuals[key] == self.own_rows[key] == self.rows[key] == self.sizes[key]
        }
        most = max((self.sizes.pop(key) for key in out), default=np.inf)
        self.shrunk -= out
        for key in out:
            del self.residuals[key], self.rows[key]
        for key in [key for key in self.residuals if self._residuals(key) >= most]:
            self.rows[key] += self._residuals(key)
            self.entries[key] = self.entries.get(key, 0.0) + self.smooth.pop(key, 0.0)
            del self.residuals[key]
        return out

    def _refusal(self, tall: set[int], terms: float, held: bool) -> str:
        """Why the problem cannot be screened whatever its size, or an empty text."""
        if self.discrete:
            return "the problem has integer or boolean variables"
        if self.complex:
            return "the problem has complex variables"
        if self.foreign and self.foreign_rows >= 0.5 * terms:
            return f"its loss ({', '.join(sorted(self.foreign))}) {OF_A_KIND}"
        steep = self.foreign & MEANS
        if self.foreign and (self.bounding or not held or steep):
            named = ", ".join(sorted(self.foreign))
            where = "in a constraint its term" if self.bounding else WITHOUT_SQUARES
            where = "beside losses its term" if held and not self.bounding else where
            return f"{where} ({named}) {OF_A_KIND}"
        if self.levels > 1:
            return (
                "several sums of curved losses are below a level, or the largest of sums, and "
                f"{CANNOT_PAY}"
            )
        if self.ranked and not held:
            return f"the largest are sought of sums of different losses, and {CANNOT_PAY}"
        squared = tall <= self.squared | self.formed
        if self.shared - NORMS or (self.shared and squared):
            return f"its losses hold convex terms ({', '.join(sorted(self.shared))}): {CANNOT_PAY}"
        if self.cones_in_constraints and 2.0 * self.summed_norms >= max(terms, 1.0):
            return f"norms of rows are added up beside cones in constraints: {CANNOT_PAY}"
        if tall and all(self.normed.get(key, 0.0) >= 0.5 * self.rows[key] for key in tall):
            return f"its loss (norms of many rows) {OF_A_KIND}"
        if self.spectral and not (held or terms):
            return f"{WITHOUT_SQUARES} ({', '.join(sorted(self.spectral))}) {OF_A_KIND}"
        return ""

    def _compiled(self, found: Size, coordinates: set[int], held: bool) -> bool:
        """Whether numpy's own solvers are not for a problem of this kind."""
        squared = bool(found.squares) and self.kinds <= {"norm1", "abs"}
        curved = (found.smooth or held) and coordinates <= self.shrunk
        if (squared or curved) and not self.constrained and coordinates & self.shrunk:
            rows = max([found.terms, found.height, *self.residuals.values()])
            dense = max(found.filled, found.squares) >= DENSE_SHARE * rows * found.coordinates
            products = rows * found.coordinates * min(rows, float(found.coordinates))
            return not dense or products > SOON
        # A lasso in slacks, which is read as a lasso.
        slacks = found.columns and found.curved and self.constrained and not self.other_rows
        if slacks and self.own_rows.keys() >= self.sizes.keys():
            return True
        rows = max(found.terms, found.height)
        sparse = found.filled + found.wide < DENSE_SHARE * rows * found.coordinates
        return sparse and found.coordinates >= SPARSE_COLUMNS and not found.columns

    @property
    def _lasso(self) -> bool:
        """Whether an L1 norm of everything stands beside squares alone: features are screened."""
        normed = self.shrunk >= self.sizes.keys() and self.kinds <= {"norm1", "abs"}
        return normed and not (self.constrained or self.in_blocks)

    def _needs(self, found: Size, tall: set[int], broad: set[int]) -> Needs:
        """How large a problem of this kind has to be."""
        unsure, first = False, 0.0
        held = self._held(tall)
        bound = any(ids <= tall | broad for ids in self.constrained)
        normed = bool((tall | broad) & self.shrunk)
        simple = self.kinds <= SIMPLE and not (bound or self.beside or self.foreign or normed)
        if held and simple and not found.norms:
            terms, seconds = float(TERMS), BESIDE
        elif self.spectral and not held:
            terms, seconds = NEVER, BESIDE_MATRICES
        elif found.smooth and not held:
            terms, seconds = NEVER, ALONE
        else:
            # Rows of a linear program, which neither a loss nor a slack is in.
            bare = 2.0 * self.kinked < found.terms and tall == self.sizes.keys()
            by_seconds = self.grouped or (self.beside if held else bare)
            sparse = found.filled < DENSE_SHARE * found.terms * found.coordinates
            by_seconds |= sparse
            many = self.cones or found.norms or self.shared
            terms = NEVER if by_seconds or many else float(OTHERWISE)
            if found.norms:
                few = bound and found.coordinates <= FEW_BOUND
                seconds = BOUND_NORMS if few else SUMMED_NORMS
            elif self.cones:
                seconds = BESIDE + OF_CONE * self.cones
            elif self.shared:
                seconds = SHARED_NORM
            elif found.distances:
                seconds = ALONE
            elif self.conic and not (self.other_kinds or self.foreign or (held and self.beside)):
                seconds = BESIDE if bare else CONES
            elif held:
                seconds = BESIDE
            elif bare and not (sparse or found.quadratic):
                seconds, first = ROWS_ALONE, FIRST_ROWS
            elif bare or found.quadratic:
                seconds, unsure = UNSURE, not bare
            elif found.nested:
                seconds = NESTED
            elif self.sums and not (self.conic or sparse):
                seconds, first = OF_SUMS, FIRST_OF_SUMS
            else:
                alone = simple and not (self.squares or self.conic)
                seconds = ALONE if alone else BESIDE if self.conic or sparse else KINKED_BESIDE
        wide = WIDE if simple else WIDE_OTHERWISE
        at_least = AT_LEAST if terms == OTHERWISE else 0.0
        return Needs(terms, at_least, seconds, wide, unsure, first)

    def _local(self, key: int) -> bool:
        """Whether each entry of a long variable is in a few rows, without data in front of it."""
        most = CHAINED_ROWS * self.sizes[key]
        return max(self.rows.get(key, 0.0), self.entries.get(key, 0.0)) <= most

    def _tall(self, key: int) -> bool:
        """Whether a variable is a coordinate of a fit: in many rows for each of its entries."""
        rows, count = self.rows[key], self.sizes[key]
        dense = self.entries.get(key, 0.0) >= max(DENSE_SHARE * rows * count, DENSE)
        return rows >= (DENSE_ROWS if dense else ROWS_PER_ENTRY) * count

    def _data_under_squares(self, key: int) -> bool:
        """Whether one that is not tall has data in front of it where no row can go."""
        return self.smooth.get(key, 0.0) >= ENTRIES * self.sizes[key]

    def _wide(self, key: int) -> bool:
        """Whether one without squares has so many entries that columns go, whatever bounds it."""
        fewest = max(WIDE_COLUMNS, WIDE_SHARE * self.residuals.get(key, 0.0))
        return self.sizes[key] >= fewest and key not in self.squared | self.formed

    def _dense_data(self, key: int) -> bool:
        """Whether one has many entries, and dense data in rows that can go or under squares."""
        rows, count = self._rows_of_data(key), self.sizes[key]
        # Beside kinks and an L1 norm alone the interior point method takes all columns as well.
        alone = not (self._residuals(key) or self.other_rows or key in self.held_by_bounds)
        alone = alone and key not in self.in_blocks
        fewest = WIDE_COLUMNS if alone else max(WIDE_COLUMNS, WIDE_SHARE * rows)
        # Constraints alone are no losses (basis pursuit: 300 x 1,500 4 s, with columns left out 6).
        if count < fewest or key in self.formed or rows <= self.other_rows:
            return False
        entries = self._entries_of_data(key)
        several = key in self.in_blocks and entries >= ENTRIES * count > 0.0  # of several outputs
        return several or entries >= DENSE_SHARE * rows * count > 0.0

    def _rows_of_data(self, key: int) -> float:
        """The rows that one is in, but for those of its own."""
        rows = self.rows.get(key, 0.0) - self.own_rows.get(key, 0.0)
        return rows + self._residuals(key)

    def _residuals(self, key: int) -> float:
        """The residuals under squares that one is in, but for its own squares."""
        return self.residuals.get(key, 0.0) - self.own_squares.get(key, 0.0)

    def _entries_of_data(self, key: int) -> float:
        """Entries of the data in these, and few others."""
        return self.entries.get(key, 0.0) + self.smooth.get(key, 0.0)

    def _data_in_rows(self, key: int) -> bool:
        """The same of data in rows that can."""
        fewest = min(ENTRIES * self.sizes[key], ROW_ENTRIES * self.rows.get(key, 0.0))
        return self.entries.get(key, 0.0) >= fewest > 0.0

    def _held(self, tall: set[int]) -> bool:
        """Whether the objective squares most of what is tall."""
        squared = _total(self.sizes, tall & (self.squared | self.formed))
        return 2.0 * squared >= _total(self.sizes, tall) > 0.0

    def _folded(self) -> float:
        """Entries of data in squares, where the matrix that they fold into has no more."""
        count, entries = (_total(part, self.residuals) for part in (self.sizes, self.smooth))
        tall = min(self.residuals.values(), default=0.0) >= ROWS_PER_ENTRY * count
        return entries if tall and entries >= count * max(ENTRIES, count) else 0.0


def _is_entrywise(expr: Any) -> bool:
    """Whether each entry of an affine expression holds one entry of a variable, or a few."""
    stack = [expr]
    while stack:
        here = stack.pop()
        if here.args and type(here).__name__ not in ADDED:
            return False
        stack += [part for part in here.args if part.variables()]
    return True


def _summed(args: Sequence[Any]) -> set[int]:
    """The long variable whose entries an equation adds up, ``sum(u) == 1``; else empty."""
    stack, found = list(args), set()
    while stack:
        here = stack.pop()
        if type(here).__name__ == "Sum" and here.args[0].size >= LINKS:
            found |= _bare(here.args[0])
        elif type(here).__name__ in ADDED and len(here.args) <= SAMPLE:
            stack += here.args
    return found


def _nested_slacks(constraint: Any) -> set[int]:
    """The long variable that another lies above by a number, u of ``u - a <= z``; else none."""
    if type(constraint) is not cp.constraints.Inequality or constraint.size < LINKS:
        return set()
    sides: tuple[set[int], set[int]] = set(), set()
    numbers = 0
    for k, side in enumerate(constraint.args):
        parts = side.args if type(side).__name__ == "AddExpression" else [side]
        for part in parts:
            turned = type(part).__name__ == "NegExpression"
            own = part.variables()
            if not own:
                continue
            if len(own) > 1 or not _bare(part):
                return set()
            if own[0].size == 1:
                numbers += 1
            elif own[0].size == constraint.size:
                sides[k ^ turned].add(own[0].id)
            else:
                return set()
    lower, upper = sides
    return lower if len(lower) == len(upper) == numbers == 1 else set()


def _sign(variable: Any) -> bool:
    """Whether an attribute of `variable` bounds all of its entries, and some by 0."""
    own = variable.attributes
    if own["bounds"] is not None:
        ends = [getattr(end, "value", end) for end in own["bounds"]]
        known = [end.data if sp.issparse(end) else np.asarray(end) for end in ends]
        return any((end == 0.0).any() for end in known)
    return any(own[name] for name in ("nonneg", "nonpos", "pos", "neg"))


def _bounds(constraint: Any) -> tuple[set[int], bool]:
    """The variable whose entries `constraint` bounds, and whether it does so by 0; else empty."""
    moving = [part for part in constraint.args if not part.is_constant()]
    if type(constraint) not in ROWS or type(constraint) in EQUATIONS or len(moving) != 1:
        return set(), False
    inner, fixed = moving[0], [part for part in constraint.args if part is not moving[0]]
    around = type(inner).__name__ in ("abs", "norm_inf")
    if around:
        inner = inner.args[0]
    whole = constraint.size
    while type(inner).__name__ in ENTRYWISE:
        moving = [part for part in inner.args if not part.is_constant()]
        if len(moving) != 1:
            return set(), False
        inner = moving[0]
    if not isinstance(inner, cp.Variable):
        return set(), False
    at_zero = all(part.value is not None and not np.all(part.value) for part in fixed)
    return {inner.id}, at_zero and not around and whole >= inner.size


def _is_budget(constraint: Any) -> bool:
    """Whether `constraint` bounds a sum of norms of parts of variables, an L1 norm among them."""
    if type(constraint) is not cp.constraints.Inequality or constraint.size > 1:
        return False
    stack, found = [constraint.args[0]], False
    if constraint.args[1].variables():
        return False
    while stack:
        here = stack.pop()
        name = type(here).__name__
        absolute = name in ("norm1", "abs")
        if here.is_constant():
            continue
        if (absolute or (name in NORMS and is_two(here.p))) and _bare(here.args[0]):
            found = True
        elif absolute or isinstance(here, AffAtom):  # an L1 norm of norms is a mixed norm
            stack += _some(here.args)[0]
        else:
            return False
    return found


def _between(constraint: Any) -> set[int]:
    """The variables of rows of an entry of each of two or three, ``w <= t``, ``w == u - v``.

    What is under ``abs`` is counted there.
    """
    if type(constraint) not in ROWS or constraint.size < WIDE_COLUMNS:
        return set()
    equal = type(constraint) in EQUATIONS
    parts = [part for part in constraint.args if not (part.is_constant() and part.is_scalar())]
    if equal:
        parts = [p for e in parts for p in (e.args if type(e).__name__ == "AddExpression" else [e])]
    inner = [part.args[0] if type(part).__name__ == "abs" else part for part in parts]
    if len(parts) != 2 + equal or not all(map(_bare, inner)):
        return set()
    return set().union(*map(_bare, parts))


def _largest_sums(args: Sequence[Any], of_any: bool) -> int:
    """How many of the values whose largest are sought are sums of curved losses, or `of_any`."""
    parts = [q for p in args for q in (p.args if type(p).__name__ in STACKED else [p])]
    return sum(part.size == 1 and _curves([part], of_any) for part in _some(parts)[0])


def _curves(args: Sequence[Any], of_any: bool = False) -> bool:
    """Whether `args` hold many losses that are squared, or Huber's, or losses `of_any` kind."""
    stack = [(arg, of_any) for arg in args]
    while stack:
        here, squared = stack.pop()
        name = type(here).__name__
        if name == "huber" or (squared and name in KINKED):
            if here.args[0].size >= LEVEL:
                return True
        elif isinstance(here, AffAtom) or name in SHARED:
            squared |= name in SHARED
            stack += [(arg, squared) for arg in _some(here.args)[0]]
    return False


def squared_rows(expr: Any) -> Any:
    """The argument with two dimensions each of whose rows, or columns, `expr` squares; or None."""
    if expr.size == 1 or not expr.args:
        return None
    name, inner = type(expr).__name__, expr.args[0]
    below = type(inner).__name__
    summed = name == "Sum" and below in POWERS and is_two(inner.p)
    raised = name in POWERS and is_two(expr.p) and below in NORMS and is_two(inner.p)
    if summed or raised:
        inner = inner.args[0]
    elif name != "quad_over_lin":
        return None
    return inner if inner.ndim == 2 and inner.is_affine() else None


def _unknown(expr: Any, name: str) -> str:
    """How the atom is called in a refusal if nothing can be done for it; else an empty text.

    Powers and norms but those with two pieces, and squares, are many small cones each; a sum of
    sorted coordinates has as many rows as there are pairs of them.
    """
    if name == "dotsort":
        inner = expr.args[0]
        return name if _bare(inner.args[0] if type(inner).__name__ == "abs" else inner) else ""
    if name in MEANS:
        return "geo_mean"
    if name in EXPONENTIAL:
        return name
    if name in POWERS | NORMS:
        power = getattr(expr.p, "value", expr.p)
        if power not in (1, 2):
            return f"{'power' if name in POWERS else 'pnorm'} {float(power):.3g}"
    return ""


def _is_norm(expr: Any) -> bool:
    """Whether `expr` is a norm."""
    return type(expr).__name__ in NORMS


def _dense_norm(expr: Any) -> bool:
    """Whether `expr` are Euclidean norms of data that are not sparse."""
    sparse = any(sp.issparse(constant.value) for constant in expr.constants()[:SAMPLE])
    return is_two(expr.p) and not sparse


def is_two(power: Any) -> bool:
    """Whether the exponent of a power or a norm is 2."""
    return bool(getattr(power, "value", power) == 2)


def _total(values: Mapping[int, float], keys: Iterable[int]) -> float:
    """The sum of the values of `keys`; one that is missing counts nothing."""
    return float(sum(values.get(key, 0.0) for key in keys))


def _entries(atom: Any) -> float:
    """Entries of the constant that an affine atom multiplies something by; 0 for other atoms."""
    name = type(atom).__name__
    if name == "MulExpression":
        for data, other in (atom.args, atom.args[::-1]):
            if data.is_constant():
                count = _stored(data)
                columns = other.shape[-1] if len(other.shape) == 2 and data is atom.args[0] else 1
                return count * columns
    return 0.0


def _of_weights(atom: Any) -> float:
    """Seconds of CVXPY's compilation where a parameter weighs entries one by one; else 0."""
    if type(atom).__name__ not in ("multiply", "MulExpression"):
        return 0.0
    found = 0.0
    for weights, other in (atom.args, atom.args[::-1]):
        if weights.is_constant() and weights.size == other.size > 1 and weights.parameters():
            curved = type(other).__name__ in SQUARES | {"huber"}
            found = (OF_WEIGHTED_SQUARES if curved else OF_WEIGHTS) * float(other.size) ** 2
    return found


def _stored(data: Any) -> float:
    """Entries of a constant that are stored."""
    value = data.value if isinstance(data, cp.Constant) else None
    return float(data.size if value is None else getattr(value, "nnz", data.size))


def _some(parts: Sequence[Any]) -> tuple[Sequence[Any], float]:
    """A few of many `parts`, evenly spread, and how many each of them stands for."""
    if len(parts) <= 2 * SAMPLE:
        return parts, 1.0
    step = len(parts) / SAMPLE
    return [parts[int(k * step)] for k in range(SAMPLE)], step


def _levels(expr: Any, name: str) -> dict[int, int]:
    """The numbers without a sign that kinked losses, one for each of many entries, lie above.

    Of losses of one argument, ``pos(abs(e) - t)``, a sum of the largest stands in their place
    (`recognise.auxiliary_variables`); of others, as sums of several, nothing can be left out.
    """
    if name not in ("pos", "maximum") or expr.size < LINKS:
        return {}
    found: dict[int, int] = {}
    for part in expr.args:
        args = part.args if type(part).__name__ == "AddExpression" else []
        kinks = sum(_kinks(arg, expr.size) for arg in args)
        beside = [arg for arg in args if arg.is_affine() and arg.variables()]
        several = kinks > 1 or len(beside) > 1
        if kinks and (several or not any(_of_one_argument(arg) for arg in args)):
            levels = [v for arg in beside for v in arg.variables() if v.size == 1]
            found |= {
                v.id: kinks for v in levels if not any(v.attributes[sign] for sign in SIGNS)
            }
    return found


def _holds_losses(expr: Any, name: str) -> bool:
    """Whether `expr`, below a kinked atom, is made of kinked ones beside a level, or ranked."""
    if name in ("sum_largest", "cvar"):
        return _kinks(expr, expr.size) > 0
    args = expr.args if type(expr).__name__ == "AddExpression" else []
    kinks = sum(_kinks(arg, expr.size) for arg in args)
    return kinks > 0 and any(arg.is_affine() and arg.variables() for arg in args)


KINKED_BY_ENTRY = ("abs", "maximum", "minimum", "pos", "neg")


def _kinks(expr: Any, size: int) -> int:
    """Of how many kinked functions of so many entries `expr` is made, by affine atoms."""
    if type(expr).__name__ in KINKED_BY_ENTRY:
        return int(expr.size == size and not expr.is_affine())
    return sum(_kinks(arg, size) for arg in expr.args) if isinstance(expr, AffAtom) else 0


def _of_several(expr: Any) -> bool:
    """Whether each of many entries is a sum of kinked functions of different data or coordinates.

    No line of one of them bounds the sum, so that none of its pieces can be left out.
    """
    if expr.size < LINKS:
        return False
    stack, found = [expr], []
    while stack:
        here = stack.pop()
        if type(here).__name__ in KINKED_BY_ENTRY:
            found.append(here)
        elif isinstance(here, AffAtom):
            stack += _some(here.args)[0]
    kinds = [_inside(atom) for atom in found]
    return any(not _alike(kinds[0], other) for other in kinds[1:])


def _inside(expr: Any) -> tuple[set[Any], list[Any]]:
    """The variables in `expr`, with parts that are taken of them, and what is multiplied by."""
    stack, parts, data = [expr], set(), []
    while stack:
        here = stack.pop()
        if type(here).__name__ == "index":
            parts.add(str(here.key))
        elif type(here).__name__ == "MulExpression":
            data += [arg.value for arg in here.args if arg.is_constant() and arg.ndim == 2]
        elif isinstance(here, cp.Variable):
            parts.add(here.id)
        stack += here.args
    return parts, data


def _alike(one: tuple[set[Any], list[Any]], other: tuple[set[Any], list[Any]]) -> bool:
    """Whether both are of the same parts of variables and data; where in doubt, they are."""
    if one[0] != other[0]:
        return False
    for first, second in zip(one[1], other[1], strict=False):
        dense = isinstance(first, np.ndarray) and isinstance(second, np.ndarray)
        if first is not second and dense and not np.array_equal(np.abs(first), np.abs(second)):
            return False
    return True


def _of_one_argument(expr: Any) -> bool:
    """Whether `expr` is, but for numbers, a kinked function of affine ones of like variables."""
    while type(expr).__name__ in ENTRYWISE:
        moving = [arg for arg in expr.args if not arg.is_constant()]
        if len(moving) != 1:
            return False
        expr = moving[0]
    if type(expr).__name__ not in KINKED_BY_ENTRY:
        return False
    moving = [arg for arg in expr.args if not arg.is_constant()]
    inside = [{v.id for v in arg.variables()} for arg in moving]
    return all(arg.is_affine() for arg in moving) and all(ids == inside[0] for ids in inside)


def _bare(expr: Any) -> set[int]:
    """The variable that `expr` is a scaled part of, as a set of its identifier; else empty."""
    while isinstance(expr, AffAtom):
        moving = [part for part in expr.args if not part.is_constant()]
        if len(moving) != 1 or type(expr).__name__ == "MulExpression":
            return set()
        expr = moving[0]
    return {expr.id} if isinstance(expr, cp.Variable) else set()
