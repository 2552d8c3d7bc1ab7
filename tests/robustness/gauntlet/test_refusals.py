"""What a certificate must refuse, in every design: one table of alterations, one of designs."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from gauntlet.alterations import ALTERATIONS, PROBLEMS, Change, off_the_side, outside_the_box
from gauntlet.claims import BUILD, KINDS, PLACES, X, Y, solved

import cvxscreen as cs
from cvxscreen.core.problem import Problem
from cvxscreen.errors import InvalidInput
from cvxscreen.solvers.loop import solve_screened

ROWS = [(name, change) for change, names in ALTERATIONS for name in sorted(names)]


@pytest.mark.parametrize("name", sorted(BUILD))
def test_the_solution_itself_is_accepted(name: str) -> None:
    """Without this the refusals below would mean nothing."""
    proof = solved(name).proof()
    assert proof.ok, proof
    assert 0.0 <= proof.relative_gap <= solved(name).tol


@pytest.mark.table
@pytest.mark.parametrize(
    ("name", "change"), ROWS, ids=[f"{change.__name__}-{name}" for name, change in ROWS]
)
def test_an_altered_solution_is_refused(name: str, change: Change) -> None:
    """Refused, with a reason, and a gap that is no smaller than what the altered point costs."""
    claim = solved(name)
    true = claim.proof().primal
    count = 0
    for altered in change(claim):
        if all(np.array_equal(value, claim.parts[part]) for part, value in altered.items()):
            continue
        count += 1
        with np.errstate(all="ignore"):
            proof = claim.proof(**altered)
        assert not proof.ok, (altered, proof)
        assert getattr(proof, "reason", "none kept") != ""
        if np.isfinite(proof.gap) and proof.gap > 0 and claim.dual:
            cost = proof.primal - true - 1e-9 * max(abs(true), abs(proof.primal))
            assert proof.gap >= cost or change is off_the_side
    assert count or (name, change) in NOTHING_TO_ALTER, "the alteration altered nothing"


NOTHING_TO_ALTER: set[tuple[str, Change]] = {("L1 without squares", outside_the_box)}


@pytest.mark.parametrize("name", sorted(BUILD))
def test_wrong_lengths_are_an_error_and_the_claim_is_left_alone(name: str) -> None:
    claim = solved(name)
    before = {part: values.tobytes() for part, values in claim.parts.items()}
    for part, values in claim.parts.items():
        for wrong in (values[:-1], np.append(values, values[-1:], axis=0), values[None], 1.0, []):
            with pytest.raises(InvalidInput, match=f"`{part}`|`X`"):
                claim.proof(**{part: wrong})
    assert {part: values.tobytes() for part, values in claim.parts.items()} == before


# -- the value that is claimed -----------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(PROBLEMS))
def test_the_value_is_computed_not_claimed(name: str) -> None:
    """A certificate takes no value from the caller, and its record cannot be rewritten."""
    claim = solved(name)
    proof = claim.proof()
    assert proof.primal == pytest.approx(claim.problem.primal(claim.parts["x"]), rel=1e-9)
    for field, value in (("primal", 0.0), ("gap", 0.0), ("ok", True)):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(proof, field, value)
    shifted = dataclasses.replace(claim.problem, constant=claim.problem.constant + 1.0)
    moved = claim.check(shifted, tol=claim.tol, **claim.parts)
    assert moved.primal == pytest.approx(proof.primal + 1.0, rel=1e-9)


@pytest.mark.parametrize("name", ["dense", "dense with intercept", "L1", "triplets", "kernel"])
def test_solutions_of_a_neighbour_are_refused(name: str) -> None:
    """Optimal for other weights, other labels or another lambda."""
    claim = solved(name)
    problem = claim.problem
    by = {"C": 1.01 * problem.C} if problem.lam is None else {"lam": 1.01 * problem.lam}
    for other in (problem.with_(**by), dataclasses.replace(problem, linear=problem.linear + 0.01)):
        assert not claim.check(other, tol=claim.tol, **claim.parts).ok


OTHER = np.random.default_rng(8)


@pytest.mark.parametrize("name", ["dense", "sparse rows", "L1", "triplets", "triplets diagonal"])
def test_a_reference_of_other_data_proves_nothing_wrong(name: str) -> None:
    """Same sizes, other data: every bound evaluates it anew, whatever it says of itself."""
    claim = solved(name)
    problem = claim.problem
    t = problem.design.forward(claim.parts["x"])
    if name.startswith("triplets"):
        places = OTHER.standard_normal(PLACES.shape)
        diagonal = problem.design.diagonal
        foreign = cs.rtlm(places, cs.triplets(places, KINDS, k=3), 0.3, diagonal=diagonal)
        assert foreign.n == problem.n
    elif name == "L1":
        foreign = cs.sparse_svm(OTHER.standard_normal(X.shape), Y, 0.05)
    else:
        foreign = cs.svm(OTHER.standard_normal((problem.n, problem.d)), Y, C=problem.C)
    own = cs.solve(foreign, tol=1e-9)
    for bound in cs.bounds.available(problem):
        given = (own, own) if bound in cs.bounds.PAIRS else own
        verdict = cs.screen(problem, reference=given, bound=bound)
        index = problem.losses.piece_within(t - 1e-5, t + 1e-5)
        decided = (verdict.codes >= 0) & (index >= 0)
        assert (verdict.codes[decided] == index[decided]).all(), bound
        if verdict.dropped.any():
            assert not claim.parts["x"][verdict.dropped].any(), bound


@pytest.mark.parametrize("name", ["dense", "dense with intercept", "kernel", "L1", "triplets"])
def test_a_reference_that_overflows_proves_nothing(name: str) -> None:
    claim = solved(name)
    for size in (1e77, 1e153, 1e154, 1e155, 1e200, 1e300):
        x = np.full(claim.problem.d, size)
        with np.errstate(all="ignore"):
            try:
                point = cs.reference_point(claim.problem, x)
            except InvalidInput:
                continue
            verdict = cs.screen(claim.problem, reference=point)
        assert verdict.undecided.all()


def test_a_bound_that_lies_is_not_called_optimal() -> None:
    """A ball of radius 0 around nowhere: every term is "proven", and the certificate says no."""
    problem: Problem = solved("dense").problem

    def lying(problem: Problem, point: cs.Point) -> Any:
        from cvxscreen.bounds.regions import Ball

        centre = -5.0 * point.x + 1.0
        return Ball(problem, "lying", centre, problem.design.forward(centre), 0.0, 0.0)

    try:
        found = solve_screened(problem, mode="safe", tol=1e-9, bounds=(lying,))
    except cs.UnsafeEvidence:
        return
    assert found.status != "optimal" or cs.certify(problem, found.x, found.theta, tol=1e-8).ok
