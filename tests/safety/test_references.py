"""The reference optima that other tests judge by: exact, and agreed by another solver."""

from __future__ import annotations

from itertools import combinations, product

import clarabel
import numpy as np
import pytest
import scipy.sparse as sp
from exact import Exact, Fraction, exact, solve
from strategies import CASES, HALVES, LOSSES, Case, array, build, crossed, reference, solved

from cvxscreen.core.problem import Problem


def dual_by_interior_point(problem: Problem) -> tuple[np.ndarray, float]:
    """``(x, P*)`` of the dual quadratic program, solved by CLARABEL on dense data.

    minimise 1/2 ||u||^2 + sum b theta + e (p + m) + q/2 theta^2 with theta = p - m in its box,
    u = A' theta on penalised coordinates and 0 on the others.
    """
    A, f = problem.design.dense(), problem.losses
    n = len(A)
    free = problem.quadratic.free
    bent = np.flatnonzero(~free)
    k = len(bent)
    blocks = [[sp.csr_matrix(A[:, bent].T), sp.csr_matrix(-A[:, bent].T), -sp.eye_array(k)]]
    if free.any():
        side = sp.csr_matrix(A[:, free].T)
        blocks.append([side, -side, None])
    equal = sp.vstack([sp.hstack([b for b in row if b is not None]) if None not in row
                       else sp.hstack([row[0], row[1], sp.csr_matrix((row[0].shape[0], k))])
                       for row in blocks])
    top = np.isfinite(f.hi)
    low = np.isfinite(f.lo)
    eye = sp.eye_array(n, format="csr")
    empty = sp.csr_matrix((n, n))
    tail = sp.csr_matrix((n, k))
    rows = [
        sp.hstack([-eye, empty, tail]),
        sp.hstack([empty, -eye, tail]),
        sp.hstack([eye, empty, tail]).tocsr()[top],
        sp.hstack([empty, eye, tail]).tocsr()[low],
    ]
    G = sp.vstack([equal, *rows]).tocsc()
    right = np.concatenate([np.zeros(equal.shape[0] + 2 * n), f.hi[top], -f.lo[low]])
    bend = sp.diags_array(f.q)
    H = sp.block_diag([sp.block_array([[bend, -bend], [-bend, bend]]), sp.eye_array(k)])
    cost = np.concatenate([f.b + f.e, f.e - f.b, np.zeros(k)])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-11
    cones = [clarabel.ZeroConeT(equal.shape[0]), clarabel.NonnegativeConeT(len(right) - k
                                                                           - int(free.sum()))]
    done = clarabel.DefaultSolver(
        sp.triu(H).tocsc(), cost, G, right, cones, settings
    ).solve()
    assert str(done.status) == "Solved"
    return -np.array(done.x)[2 * n:], -done.obj_val


@pytest.mark.parametrize("case", [c for c in crossed(n=60) if c.storage == "dense64"
                                  and c.data in ("plain", "twins")][::2], ids=str)
def test_an_interior_point_solver_agrees(case: Case) -> None:
    """Same minimiser and value as CLARABEL on the dual, to its tolerance of 1e-11."""
    problem = build(case)
    ref = solved(problem, rational=False)
    x, value = dual_by_interior_point(problem)
    # Its feasibility tolerance enters the value with a factor of the size of the dual variables.
    assert problem.primal(ref.x) == pytest.approx(value, rel=1e-8, abs=1e-9)
    kept = ~problem.quadratic.free
    np.testing.assert_allclose(ref.x[kept], x, atol=1e-5 * (1 + np.abs(x).max()))


@pytest.mark.parametrize("half", HALVES)
def test_almost_every_reference_is_exact(half: int) -> None:
    """The pieces are identified in 95 of 100 cases at least: tests judge by exact optima."""
    found = [reference(case).truth is not None for case in CASES if array(case) % 2 == half]
    assert np.mean(found) >= 0.95


def test_the_table_crosses_everything() -> None:
    """Each pair of (loss, intercept, data, storage) occurs, and weights in half of the cells."""
    assert len({str(case) for case in CASES}) == len(CASES) == 8 * 2 * 5 * 4
    assert sum(case.weighted for case in CASES) == len(CASES) // 2
    by_loss = {(case.loss, case.intercept, case.weighted) for case in CASES}
    assert len(by_loss) == 8 * 2 * 2


def test_the_arrays_of_the_table_hold_every_pair_of_levels() -> None:
    """Each of the eight; for one loss also the four even ones, and the four odd ones, together."""
    factors = ("intercept", "data", "storage", "weighted")
    held = [(("loss", *factors), [case for case in CASES if array(case) == number])
            for number in range(8)]
    held += [(factors, [case for case in CASES if case.loss == loss and array(case) % 2 == half])
             for loss in LOSSES for half in (0, 1)]
    for names, cases in held:
        for pair in combinations(names, 2):
            first, second = ({getattr(case, name) for case in CASES} for name in pair)
            found = {tuple(getattr(case, name) for name in pair) for case in cases}
            assert found == set(product(first, second)), pair


def test_the_data_are_what_their_names_say() -> None:
    """Twins repeat rows and hold a zero row, integer cases sit on kinks, scales span 1e12."""
    twins = build(Case("hinge", data="twins", weighted=True)).design.dense()
    assert (twins[0] == twins[1]).all()
    assert not twins[5].any()
    scaled = np.abs(build(Case("hinge", data="scaled")).design.dense()).max(axis=0)
    assert scaled[-1] / scaled[0] > 1e11
    wide = build(Case("hinge", data="wide"))
    assert wide.n < wide.d
    on_kink = 0
    for case in CASES:
        if case.data == "integer" and case.loss in ("hinge", "absolute"):
            ref = reference(case)
            on_kink += int((ref.problem.losses.kink_distance(ref.margins) == 0).sum())
    assert on_kink > 50


def test_elimination_solves_and_refuses() -> None:
    """Exact elimination: a solution, the base where it is free, None where there is none."""
    matrix = [exact([2, 1]), exact([4, 2])]
    z = solve(matrix, exact([3, 6]), exact([0, 7]))
    assert z is not None
    assert z[1] == 7
    assert 2 * z[0] + z[1] == 3
    assert solve(matrix, exact([3, 7])) is None


def test_the_exact_gap_vanishes_at_the_optimum_only() -> None:
    """Zero in rational arithmetic at the optimum, positive next to it."""
    ref = reference(Case("smoothed_hinge"))
    model = Exact(ref.problem)
    assert ref.truth is not None
    assert model.gap(ref.truth.x, ref.truth.theta) == 0
    moved = [ref.truth.x[0] + Fraction(1, 10**9), *ref.truth.x[1:]]
    assert model.gap(moved, ref.truth.theta) > 0
