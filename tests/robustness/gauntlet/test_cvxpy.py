"""CVXPY problems that cannot be screened, or solved at all: the same end as without us, and why."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from gauntlet.bad import HOLED, TOLERANCE, Bad, D, N, X, Y
from gauntlet.odd import DENSE, SPARSE
from gauntlet.touch import snapshot

import cvxscreen as cs
from cvxscreen.errors import InvalidInput, NotCertified, NotScreenable, UnknownName


def hinges(rows: Any, w: Any, y: Any = Y) -> Any:
    return cp.sum(cp.pos(1 - cp.multiply(y, rows @ w)))


def svm(*constraints: Any, rows: Any = X, weight: Any = 1.0, variable: Any = None) -> Any:
    w = cp.Variable(D) if variable is None else variable
    return cp.Problem(
        cp.Minimize(weight * hinges(rows, w) + 0.5 * cp.sum_squares(w)),
        [constraint(w) for constraint in constraints],
    )


@dataclass(frozen=True)
class Case:
    """A problem, what `explain` must say of it, and how `reduce` ends."""

    build: Callable[[], Any]
    words: str
    reduced: type[Exception] = NotScreenable


CASES = {
    "parameter without a value": Case(
        lambda: svm(weight=cp.Parameter(nonneg=True, name="C")), "parameter C has no value"),
    "matrix parameter without a value": Case(
        lambda: svm(rows=cp.Parameter((N, D), name="data")), "parameter data has no value"),
    "not convex": Case(
        lambda: cp.Problem(cp.Minimize(-cp.sum_squares(cp.Variable(D)))), "DCP"),
    "quasiconvex": Case(lambda: cp.Problem(cp.Minimize(cp.ceil(cp.Variable()))), "DCP"),
    "nan": Case(lambda: svm(rows=HOLED), "NaN"),
    "infinity": Case(lambda: svm(rows=np.where(np.isnan(HOLED), np.inf, X)), "infinity"),
    "sparse nan": Case(lambda: svm(rows=sp.csr_array(HOLED)), "NaN"),
    "infinite bound": Case(lambda: svm(lambda w: w <= np.inf), "infinity"),
    "boolean": Case(lambda: svm(variable=cp.Variable(D, boolean=True)), "integer or boolean"),
    "complex": Case(
        lambda: cp.Problem(cp.Minimize(cp.sum_squares(cp.Variable(D, complex=True) - 1))),
        "complex"),
    "no variables": Case(lambda: cp.Problem(cp.Minimize(0)), "no variables"),
    "no loss": Case(
        lambda: cp.Problem(cp.Minimize(cp.sum_squares(cp.Variable(D)))), "no loss term"),
    "unbounded": Case(lambda: cp.Problem(cp.Minimize(cp.sum(cp.Variable(D)))), "no loss term"),
    "infeasible": Case(lambda: svm(lambda w: w[0] >= 1, lambda w: w[0] <= 0), "", NotCertified),
}


def end(call: Callable[[], Any], problem: Any) -> Any:
    """How a solve ended: what was raised, or status and value."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # CVXPY's advice
            call()
    except Exception as error:
        return type(error), str(error)
    return problem.status, round(float(problem.value), 6)


@pytest.mark.parametrize("name", CASES)
def test_the_end_is_that_of_cvxpy(name: str) -> None:
    """Exception and message, or status and value, as from ``prob.solve()``."""
    case = CASES[name]
    plain, screened = case.build(), case.build()
    for parameter, other in zip(plain.parameters(), screened.parameters(), strict=True):
        assert parameter.name() == other.name()
    known = end(plain.solve, plain)
    assert end(lambda: screened.solve(method="screen"), screened)[0] == known[0]
    if not isinstance(known[0], type):
        assert end(lambda: screened.solve(method="screen"), screened) == known
    other = case.build()
    found = end(lambda: cs.verify(other), other)
    assert found[0] == known[0]


@pytest.mark.parametrize("name", CASES)
def test_what_cannot_be_screened_is_named(name: str) -> None:
    case = CASES[name]
    said = cs.explain(case.build())
    assert said.recognised == (not case.words)
    assert case.words in " ".join(said.reasons)
    with pytest.raises(case.reduced, match=case.words or "infeasible"):
        cs.reduce(case.build())


NO_PROBLEM = [
    Bad("nothing", None, ("NoneType",)), Bad("words", "abc", ("str",)),
    Bad("expression", cp.Variable(), ("Variable",)), Bad("array", X, ("ndarray",)),
    Bad("a problem of ours", cs.svm(X, Y), (r"to_cvxpy\(\)",)),
]


@pytest.mark.parametrize("door", [cs.explain, cs.reduce, cs.verify], ids=lambda d: d.__name__)
@pytest.mark.parametrize("bad", NO_PROBLEM, ids=lambda bad: bad.name)
def test_what_is_no_problem_is_refused(door: Any, bad: Bad) -> None:
    with pytest.raises(InvalidInput, match=f"`problem`.*{bad.words[0]}"):
        door(bad.value)


@pytest.mark.parametrize("bad", TOLERANCE, ids=lambda bad: bad.name)
def test_a_tolerance_is_between_0_and_1(bad: Bad) -> None:
    problem = svm()
    doors: list[Callable[[Any], Any]] = [
        lambda tol: problem.solve(method="screen", tol=tol), lambda tol: cs.Screened(tol=tol),
        lambda tol: cs.verify(problem, tol=tol),
    ]
    for door in doors:
        with pytest.raises(InvalidInput, match=f"`tol`.*{bad.words[0]}"):
            door(bad.value)
    assert problem.status is None


@pytest.mark.parametrize("mode", ["fast", None, 3, ["safe"]], ids=str)
def test_a_mode_is_one_of_two(mode: Any) -> None:
    problem = svm()
    for door in (lambda: problem.solve(method="screen", mode=mode),
                 lambda: cs.Screened(mode=mode), lambda: cs.verify(problem, mode=mode)):
        with pytest.raises(UnknownName, match=r"`mode`.*certified, safe"):
            door()
    assert problem.status is None


def test_solvers_that_do_not_exist() -> None:
    """CVXPY's own error; the second door names the two that it takes."""
    problem = svm()
    for solver in ("nonsense", 3, ["SCS"]):
        for door in (lambda s=solver: problem.solve(method="screen", solver=s),
                     lambda s=solver: cs.verify(problem, s if isinstance(s, str) else 3)):
            with pytest.raises(cp.error.SolverError, match="solver"):
                door()
    for solver in ("OSQP", None, 3):
        with pytest.raises(UnknownName, match=r"`solver`.*CLARABEL, SCS"):
            cs.Screened(solver)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="`solver` is an empty list"):
        cs.verify(problem, [])


def test_a_reduced_problem_is_restored_only_when_solved() -> None:
    problem = svm()
    reduced = cs.reduce(problem)
    with pytest.raises(NotCertified, match="has not been solved"):
        reduced.restore()
    with pytest.raises(InvalidInput, match=r"`tol`.*0"):
        reduced.restore(tol=0)
    assert problem.status is None
    reduced.problem.solve()
    for variable in reduced.problem.variables():
        variable.value = variable.value + 1.0  # an altered answer
    with pytest.warns(UserWarning, match="inaccurate"):  # CVXPY's, for the status we give
        assert not reduced.restore().ok
    assert problem.status != cp.OPTIMAL


PATHS = [
    ("parameter", None, [1.0], "None"), ("parameter", 5, [1.0], "5"),
    ("parameter", cp.Parameter(), [1.0], "C"), ("values", "C", None, "None"),
    ("values", "C", [], "non-empty"), ("values", "C", ["a"], "<U1"),
    ("values", "C", [np.nan], "NaN"), ("values", "C", [1.0, -1.0], "-1.*nonnegative"),
    ("values", "C", [[1.0]], "non-empty"), ("values", "C", 1.0, "non-empty"),
]


@pytest.mark.parametrize(("argument", "parameter", "values", "words"), PATHS)
def test_a_path_over_a_parameter(argument: str, parameter: Any, values: Any, words: str) -> None:
    """Refused before anything is solved; the parameter keeps its value."""
    C = cp.Parameter(nonneg=True, value=0.7, name="C")
    problem = svm(weight=C)
    with pytest.raises(InvalidInput, match=f"`{argument}`.*{words}"):
        cs.path(problem, C if isinstance(parameter, str) else parameter, values)
    assert C.value == 0.7
    assert problem.status is None


FORMS = {name: form for name, form in {**DENSE, **SPARSE}.items()
         if name not in ("list", "tuple", "objects", "longdouble", "float16", "subclass",
                         "masked without masks", "sparse longdouble", "not aligned")}


@pytest.mark.parametrize("name", FORMS)
def test_the_form_of_the_constants_does_not_matter(name: str) -> None:
    """Whatever CVXPY takes; and nothing of the caller's is written to."""
    held = FORMS[name](X)
    before = snapshot(held)
    try:
        plain = svm(rows=held).solve()
    except Exception as error:
        pytest.skip(f"CVXPY itself does not take it: {error}")
    problem = svm(rows=held)
    assert problem.solve(method="screen") == pytest.approx(plain, rel=1e-5)
    assert cs.explain(problem).recognised
    assert snapshot(held) == before


def test_the_table_is_the_one_of_the_package() -> None:
    from gauntlet.doors import RECORDS

    assert {name for name, why in RECORDS.items() if why == "test_cvxpy"} == {
        "explain", "reduce", "verify", "Screened"
    }
