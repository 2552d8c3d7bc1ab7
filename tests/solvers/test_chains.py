"""The interior point method for chains: HiGHS's optima, with multipliers that prove them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import linprog

from cvxscreen.certificates.linear_program import proven
from cvxscreen.solvers import chains
from cvxscreen.solvers.chains import Structure, solve_chain

T, D = 400, 5
Program = tuple[np.ndarray, tuple[sp.csr_matrix, np.ndarray], tuple[sp.csr_matrix, np.ndarray]]
PROGRAMS: dict[str, Callable[[], Program]] = {}


def made(make: Callable[[], Program]) -> Callable[[], Program]:
    PROGRAMS[make.__name__] = make
    return make


def parts(*blocks: tuple[sp.csr_matrix, ...]) -> sp.csr_matrix:
    return sp.csr_matrix(sp.bmat(blocks, format="csr"))


def returns(seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return 0.01 * rng.standard_t(4, (T, D)) + rng.uniform(0.0, 0.002, D)


def chain_rows() -> tuple[sp.csr_matrix, np.ndarray, sp.csr_matrix, np.ndarray]:
    """Of ``(w, u)``: ``u_t >= u_{t-1} - <r_t, w>``, signs; the simplex."""
    before = sp.diags([-np.ones(T), np.ones(T - 1)], [0, -1])
    F = parts(
        (sp.csr_matrix(-returns()), sp.csr_matrix(before)),
        (None, -sp.eye(T)), (-sp.eye(D), None),
    )
    E = sp.csr_matrix(np.concatenate([np.ones(D), np.zeros(T)])[None])
    F.resize(2 * T + D, D + T)
    return F, np.zeros(2 * T + D), E, np.ones(1)


@made
def average() -> Program:
    F, f, E, e = chain_rows()
    return np.concatenate([np.zeros(D), np.full(T, 1.0 / T)]), (F, f), (E, e)


@made
def largest() -> Program:
    F, f, E, e = chain_rows()
    top = parts((sp.csr_matrix((T, D)), sp.eye(T), -np.ones((T, 1))))
    F = sp.csr_matrix(sp.vstack([sp.hstack([F, sp.csr_matrix((F.shape[0], 1))]), top]))
    E = sp.csr_matrix(sp.hstack([E, sp.csr_matrix((1, 1))]))
    return np.append(np.zeros(D + T), 1.0), (F, np.append(f, np.zeros(T))), (E, e)


def tail_rows() -> tuple[sp.csr_matrix, np.ndarray, sp.csr_matrix, np.ndarray]:
    """Of ``(w, u, a, z)``: besides ``z >= u - a, z >= 0``."""
    F, f, E, e = chain_rows()
    none = sp.csr_matrix((F.shape[0], 1 + T))
    above = parts((sp.csr_matrix((T, D)), sp.eye(T), -np.ones((T, 1)), -sp.eye(T)))
    signs = parts((sp.csr_matrix((T, D + T + 1)), -sp.eye(T)))
    F = sp.csr_matrix(sp.vstack([sp.hstack([F, none]), above, signs]))
    E = sp.csr_matrix(sp.hstack([E, sp.csr_matrix((1, 1 + T))]))
    return F, np.append(f, np.zeros(2 * T)), E, e


def tail_cost() -> np.ndarray:
    return np.concatenate([np.zeros(D + T), [1.0], np.full(T, 1.0 / (0.1 * T))])


@made
def tail() -> Program:
    F, f, E, e = tail_rows()
    return tail_cost(), (F, f), (E, e)


@made
def tail_in_a_budget() -> Program:
    """A row of all slacks."""
    F, f, E, e = tail_rows()
    level = linprog(tail_cost(), F, f, E, e, bounds=(None, None)).fun
    F = sp.csr_matrix(sp.vstack([F, tail_cost()[None]]))
    cost = np.concatenate([-returns().mean(axis=0), np.zeros(2 * T + 1)])
    return cost, (F, np.append(f, 1.1 * level)), (E, e)


@made
def sum_of_all_links() -> Program:
    """An equation of all links."""
    F, f, E, e = chain_rows()
    E = sp.csr_matrix(sp.vstack([E, np.concatenate([np.zeros(D), np.ones(T)])[None]]))
    cost = np.concatenate([-returns().mean(axis=0), np.zeros(T)])
    return cost, (F, f), (E, np.append(e, 5.0 * T * 0.05))


@made
def slacks_alone() -> Program:
    """No chain: a sum of losses is fixed."""
    R = returns()
    F = parts((sp.csr_matrix(-R), -sp.eye(T)), (None, -sp.eye(T)), (-sp.eye(D), None))
    F.resize(2 * T + D, D + T)
    E = sp.csr_matrix(np.concatenate([np.zeros(D), np.ones(T)])[None])
    return np.append(-R.mean(axis=0), np.zeros(T)), (F, np.zeros(2 * T + D)), (E, np.ones(1))


@made
def three_pieces_each() -> Program:
    """Links that meet none: ``z >= 1 - m, z >= 1 + m - k, z >= 0``."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((T, D)) + 0.3
    F = parts((sp.csr_matrix(-X), -sp.eye(T)), (sp.csr_matrix(X), -sp.eye(T)), (None, -sp.eye(T)))
    F.resize(3 * T, D + T)
    f = np.concatenate([-np.ones(T), np.full(T, -0.4), np.zeros(T)])
    return np.append(np.zeros(D), np.ones(T)), (F, f), (sp.csr_matrix((0, D + T)), np.zeros(0))


@made
def badly_scaled() -> Program:
    cost, (F, f), (E, e) = tail()
    rows = 10.0 ** np.random.default_rng(1).integers(-3, 4, F.shape[0])
    return 1e4 * cost, (sp.csr_matrix(sp.diags(rows) @ F), rows * f), (100.0 * E, 100.0 * e)


@made
def one_is_fixed() -> Program:
    """An equation of one link, as ``u[0] == 0``."""
    cost, (F, f), (E, e) = average()
    first = sp.csr_matrix(([1.0], ([0], [D])), shape=(1, D + T))
    return cost, (F, f), (sp.csr_matrix(sp.vstack([E, first])), np.append(e, 0.03))


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_optimum_and_its_multipliers(name: str) -> None:
    cost, (F, f), (E, e) = PROGRAMS[name]()
    found = solve_chain(cost, (F, f), (E, e))
    assert found is not None
    assert found.solved
    exact = linprog(cost, F, f, E, e, bounds=(None, None))
    assert exact.status == 0
    assert cost @ found.x == pytest.approx(exact.fun, rel=1e-7)
    A, b = sp.csr_matrix(sp.vstack([E, F])), np.concatenate([e, f])
    proof = proven(cost, (A, b, len(e)), found.x, np.concatenate([found.y, found.z]))
    assert proof.relative_gap < 1e-6
    assert proof.violation < 1e-8
    np.testing.assert_allclose(F @ found.x + found.s, f, atol=1e-7 * max(np.abs(found.s).max(), 1))


def test_long_rows_and_links_are_told_apart() -> None:
    _, (F, _), (E, _) = tail_in_a_budget()
    found = Structure.of(F, E)
    assert found is not None
    assert len(found.slack) == len(found.links) == T
    assert found.long.tolist() == [F.shape[0] - 1]
    assert found.shared.tolist() == [*range(D), D + T]


def test_each_link_meets_the_next_one_only() -> None:
    _, (F, _), (E, _) = average()
    shuffled = np.concatenate([np.arange(D), D + np.random.default_rng(0).permutation(T)])
    found = Structure.of(sp.csr_matrix(F[:, shuffled]), sp.csr_matrix(E[:, shuffled]))
    assert found is not None
    places = shuffled[found.links] - D
    assert set(np.abs(np.diff(places))) == {1}


def test_links_with_three_neighbours_are_no_chain() -> None:
    """A grid, each of whose points meets the one to the right and the one below."""
    side = 20
    at = np.arange(side * side).reshape(side, side)
    pairs = np.vstack([
        np.stack([at[:, :-1].ravel(), at[:, 1:].ravel()], 1),
        np.stack([at[:-1].ravel(), at[1:].ravel()], 1),
    ])
    k = np.arange(len(pairs))
    F = sp.csr_matrix(
        (np.tile([1.0, -1.0], len(pairs)), (np.repeat(k, 2), pairs.ravel())),
        shape=(len(pairs), side * side),
    )
    assert Structure.of(F, sp.csr_matrix((0, side * side))) is None


def test_many_shared_variables_are_no_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    cost, rows, equations = average()
    monkeypatch.setattr(chains, "MOST_SHARED", D - 1)
    assert solve_chain(cost, rows, equations) is None


def test_few_links_are_no_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    cost, rows, equations = average()
    monkeypatch.setattr(chains, "SHORTEST", T + 1)
    assert solve_chain(cost, rows, equations) is None


@pytest.mark.parametrize("bound", [-1.0, None])
def test_without_an_optimum_nothing_is_called_solved(bound: float | None) -> None:
    """Infeasible where the average is to be negative; unbounded where it is to be large."""
    cost, (F, f), (E, e) = average()
    if bound is None:
        cost = -cost
    else:
        F = sp.csr_matrix(sp.vstack([F, cost[None]]))
        f = np.append(f, bound)
    found = solve_chain(cost, (F, f), (E, e))
    assert found is None or not found.solved
