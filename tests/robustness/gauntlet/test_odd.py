"""Every door gives the same answer for every form of the same numbers, and changes none of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from gauntlet.odd import ANSWERS, BASE, DENSE, LABELS, MATRICES, ROWS, TARGETS, D, N
from gauntlet.touch import snapshot

import cvxscreen as cs
from cvxscreen import estimators

pytestmark = pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")

TASK = np.arange(N) % 2
PICKED = [[0, 1, 2], [3, 4, 5], [7, 9, 11], [8, 2, 1]]


def answer(problem: Any) -> tuple[float, np.ndarray]:
    found = cs.solve(problem, tol=1e-6 if problem.kind == "metric learning" else 1e-8)
    assert found.status == "optimal"
    return found.value, found.x


def tasks(X: Any, y: Any) -> tuple[float, np.ndarray]:
    half = [(X, y), (BASE, LABELS)]
    found = cs.solve(cs.raso(half, h=1, alpha=0.1, beta=0.1), tol=1e-6)
    return found.value, found.U


def fitted(model: Any, *more: Any) -> Callable[[Any, Any], tuple[float, np.ndarray]]:
    def call(X: Any, y: Any) -> tuple[float, np.ndarray]:
        found = model().fit(X, y, *more)
        use = found.transform if hasattr(found, "transform") else found.predict
        return 0.0, np.asarray(use(X, *more), dtype=float)

    return call


@dataclass(frozen=True)
class Odd:
    """A door of data and targets to an answer; `dense` where CSR is refused on purpose."""

    name: str
    call: Callable[[Any, Any], tuple[float, np.ndarray]]
    y: np.ndarray | None
    dense: bool = False
    estimator: bool = False
    words: bool = False  # scikit-learn takes objects for words


DOORS = [
    Odd("svm", lambda X, y: answer(cs.svm(X, y, C=0.3)), LABELS),
    Odd("svm with an intercept", lambda X, y: answer(cs.svm(X, y, C=0.3, intercept=True)), LABELS),
    Odd("svm with a kernel", lambda X, y: answer(cs.svm(X, y, kernel="rbf")), LABELS),
    Odd("svm weighted", lambda X, w: answer(cs.svm(X, LABELS, sample_weight=np.abs(w)
        if isinstance(w, np.ndarray) else [abs(v) for v in np.ravel(w)])), LABELS),
    Odd("regression", lambda X, y: answer(cs.regression(X, y, C=0.3, loss="huber")), ANSWERS),
    Odd("sparse_svm", lambda X, y: answer(cs.sparse_svm(X, y, 0.05)), LABELS),
    Odd("sparse_svm as an LP", lambda X, y: answer(cs.sparse_svm(X, y, 0.05, loss="hinge", l2=0)),
        LABELS),
    Odd("sparse_svm, L1 alone", lambda X, y: answer(
        cs.sparse_svm(X, y, 0.05, loss="squared_hinge", l2=0)), LABELS),
    Odd("sparse_svr, L1 alone", lambda X, y: answer(
        cs.sparse_svr(X, y, 0.05, loss="huber", l2=0)), ANSWERS),
    Odd("sparse_svr", lambda X, y: answer(cs.sparse_svr(X, y, 0.05)), ANSWERS),
    Odd("triplets", lambda X, y: answer(cs.rtlm(X, cs.triplets(X, y, k=1), 50.0)), LABELS),
    Odd("triplets, diagonal", lambda X, y: answer(
        cs.rtlm(X, cs.triplets(X, y, k=1), 50.0, diagonal=True)), LABELS),
    Odd("pairs", lambda X, y: answer(cs.rtlm(X, cs.pairs(X, y, k=1), 50.0)), LABELS),
    Odd("tasks", tasks, LABELS),
    Odd("ScreenedSVC", fitted(estimators.ScreenedSVC), LABELS, estimator=True, words=True),
    Odd("ScreenedRegressor", fitted(estimators.ScreenedRegressor), ANSWERS, estimator=True),
    Odd("ScreenedQuantileRegressor", fitted(
        lambda: estimators.ScreenedQuantileRegressor(alpha=0.01)), ANSWERS, estimator=True),
    Odd("SparseSVC", fitted(estimators.SparseSVC), LABELS, estimator=True, words=True),
    Odd("MultiTaskSVC", fitted(lambda: estimators.MultiTaskSVC(h=1), TASK), LABELS),
    Odd("TripletMetricLearner", fitted(lambda: estimators.TripletMetricLearner(k=2)), LABELS,
        dense=True, estimator=True, words=True),
]

NOT_FOR_ESTIMATORS = {
    "np.matrix": "scikit-learn refuses it", "row": "scikit-learn wants a column",
    "column": "scikit-learn warns", "list of rows": "the same as a list",
    "wide indices": "scikit-learn refuses 64-bit indices where 32 are asked for",
    "sparse longdouble": "scikit-learn keeps the type",
}


@cache
def plain(number: int) -> tuple[float, np.ndarray]:
    return DOORS[number].call(BASE.copy(), DOORS[number].y.copy())


def differs(found: tuple[float, np.ndarray], known: tuple[float, np.ndarray]) -> bool:
    same = abs(found[0] - known[0]) <= 1e-6 * max(1.0, abs(known[0]))
    return not (same and np.allclose(found[1], known[1], rtol=1e-3, atol=1e-3))


def faults(number: int, X: Any, y: Any, name: str) -> list[str]:
    before = snapshot(X), snapshot(y)
    try:
        found = DOORS[number].call(X, y)
    except Exception as error:
        return [f"{name}: {type(error).__name__}: {error}"]
    out = [f"{name}: another answer, {found}"] if differs(found, plain(number)) else []
    if (snapshot(X), snapshot(y)) != before:
        out.append(f"{name}: the caller's value was changed")
    return out


@pytest.mark.table
@pytest.mark.parametrize("number", range(len(DOORS)), ids=[door.name for door in DOORS])
def test_the_form_of_the_data_does_not_matter(number: int) -> None:
    door, found = DOORS[number], []
    for name, form in ROWS.items():
        if door.estimator and name in NOT_FOR_ESTIMATORS:
            continue
        if door.dense and sp.issparse(form(BASE)):
            continue
        found += faults(number, form(BASE), door.y.copy(), name)
    assert not found, "\n".join(found)


@pytest.mark.table
@pytest.mark.parametrize("number", range(len(DOORS)), ids=[door.name for door in DOORS])
def test_the_form_of_the_targets_does_not_matter(number: int) -> None:
    door, found = DOORS[number], []
    for name, form in TARGETS.items():
        if (door.estimator or door.name == "MultiTaskSVC") and name in NOT_FOR_ESTIMATORS:
            continue
        if name == "objects" and (door.name == "svm weighted" or door.words):
            continue
        found += faults(number, BASE.copy(), form(door.y), name)
    assert not found, "\n".join(found)


def test_truth_values_are_zeros_and_ones() -> None:
    held = BASE > 0
    for form in (np.asarray, sp.csr_array, sp.coo_matrix, lambda v: v.tolist()):
        assert not differs(answer(cs.svm(form(held), LABELS)),
                           answer(cs.svm(held.astype(float), LABELS)))


@pytest.mark.parametrize("form", DENSE, ids=str)
def test_the_form_of_a_point_does_not_matter(form: str) -> None:
    """What `certify`, `reference_point`, `primal` and a new C, lambda or tolerance are given."""
    problem = cs.svm(BASE, LABELS, C=1.0)
    x, theta = np.array([1.0, 0.0, -2.0]), np.where(np.arange(N) % 2, -1.0, 0.0)
    make = DENSE[form]
    given = make(x), make(theta)
    before = snapshot(given)
    assert cs.certify(problem, *given).gap == cs.certify(problem, x, theta).gap
    assert cs.reference_point(problem, *given).gap == cs.reference_point(problem, x, theta).gap
    assert problem.primal(given[0]) == problem.primal(x)
    assert snapshot(given) == before


def test_the_type_of_a_number_does_not_matter() -> None:
    """Python's and NumPy's, of any width, and arrays without axes."""
    one = [1, 1.0, np.int8(1), np.float32(1), np.float16(1), np.longdouble(1), np.array(1.0)]
    for value in one:
        assert cs.svm(BASE, LABELS, C=value).C == 1.0
        assert cs.svm(BASE, LABELS).with_(C=value).C == 1.0
        assert cs.sparse_svm(BASE, LABELS, value).lam == 1.0
        assert cs.raso([(BASE, LABELS)], h=1, alpha=value, beta=value).alpha == 1.0
    for tol in (np.float32(1e-4), np.float64(1e-4), np.array(1e-4)):
        assert cs.solve(cs.svm(BASE, LABELS), tol=tol).status == "optimal"
        assert cs.path(cs.svm(BASE, LABELS), values=[1.0], tol=tol).points[0].status == "optimal"
    values = [0.5, 1.0]
    for form in (tuple, np.array, lambda v: np.array(v, dtype=np.float32),
                 lambda v: locked_grid(v)):
        assert cs.path(cs.svm(BASE, LABELS), values=form(values)).values.tolist() == values


def locked_grid(values: list[float]) -> np.ndarray:
    out = np.array(values)
    out.flags.writeable = False
    return out


def test_a_gram_matrix_in_any_form() -> None:
    gram = BASE @ BASE.T
    known = answer(cs.svm(gram, LABELS, kernel="precomputed"))
    for name, form in {**DENSE, **MATRICES}.items():
        held = form(gram)
        if not np.array_equal(np.asarray(held, dtype=float), gram):
            continue  # numbers that do not fit into the type
        before = snapshot(held)
        found = answer(cs.svm(held, LABELS, kernel="precomputed"))
        assert found[0] == pytest.approx(known[0], rel=1e-7), name
        assert snapshot(held) == before, name


def test_lists_of_comparisons_in_any_form() -> None:
    known = answer(cs.rtlm(BASE, PICKED, 1.0))
    for form in (np.array, tuple, lambda v: np.array(v, dtype=np.uint8),
                 lambda v: np.asfortranarray(v), lambda v: np.array(v)[::-1].copy()[::-1],
                 lambda v: np.array(v, dtype=">i4")):
        held = form(PICKED)
        before = snapshot(held)
        assert not differs(answer(cs.rtlm(BASE, held, 1.0)), known)
        assert snapshot(held) == before
    assert BASE.shape[1] == D
