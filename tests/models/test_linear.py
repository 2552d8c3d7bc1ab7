"""The front doors `svm` and `regression`: the problem is the formula; bad input is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from cvxscreen.core.problem import Problem
from cvxscreen.errors import InvalidInput, UnknownName
from cvxscreen.models.linear import one_against_rest, regression, svm
from cvxscreen.models.samples import CLASSIFICATION, REGRESSION
from cvxscreen.solvers.newton import Newton

RNG = np.random.default_rng(9)
X = RNG.standard_normal((30, 4))
LABELS = np.where(RNG.random(30) < 0.5, 1.0, -1.0)
Y = RNG.standard_normal(30) * 2.0
WEIGHT = RNG.integers(0, 4, 30).astype(float)
GAMMA, EPS, TAU, DELTA = 0.3, 0.4, 0.7, 0.6


def relu(t: np.ndarray) -> np.ndarray:
    return np.maximum(t, 0.0)


def corner(u: np.ndarray) -> np.ndarray:
    return np.where(u <= GAMMA, u**2 / (2 * GAMMA), u - GAMMA / 2)


# loss -> (arguments, phi of the signed margin or of the residual prediction - response)
FORMULA: dict[str, tuple[dict[str, float], Callable[[np.ndarray], np.ndarray]]] = {
    "hinge": ({}, lambda t: relu(1 - t)),
    "smoothed_hinge": ({"gamma": GAMMA}, lambda t: corner(relu(1 - t))),
    "squared_hinge": ({}, lambda t: relu(1 - t) ** 2 / 2),
    "absolute": ({}, np.abs),
    "quantile": ({"tau": TAU}, lambda r: np.where(r < 0, -TAU * r, (1 - TAU) * r)),
    "epsilon": ({"epsilon": EPS}, lambda r: relu(np.abs(r) - EPS)),
    "smoothed_epsilon": (
        {"epsilon": EPS, "gamma": GAMMA}, lambda r: corner(relu(np.abs(r) - EPS))
    ),
    "huber": (
        {"delta": DELTA},
        lambda r: np.where(np.abs(r) <= DELTA, r**2 / 2, DELTA * np.abs(r) - DELTA**2 / 2),
    ),
}
DEFAULTS = {"gamma": 0.5, "epsilon": 0.1, "tau": 0.5, "delta": 1.0}


def make(loss: str, X: Any = X, y: Any = None, **options: Any) -> Problem:
    if loss in CLASSIFICATION:
        return svm(X, LABELS if y is None else y, loss=loss, **options)
    return regression(X, Y if y is None else y, loss=loss, **options)


def by_hand(loss: str, x: np.ndarray, C: float, weight: np.ndarray, intercept: bool) -> float:
    w, b = (x[:-1], x[-1]) if intercept else (x, 0.0)
    score = X @ w + b
    t = LABELS * score if loss in CLASSIFICATION else score - Y
    return float(0.5 * w @ w + C * np.sum(weight * FORMULA[loss][1](t)))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", FORMULA)
def test_the_objective_is_the_formula(loss: str, intercept: bool, weighted: bool) -> None:
    """``1/2 |w|^2 + C sum c_i phi(...)``, b unpenalised, at random points and at 0."""
    options = FORMULA[loss][0]
    weight = WEIGHT if weighted else np.ones(30)
    for C in (0.01, 1.0, 50.0):
        problem = make(loss, C=C, intercept=intercept, sample_weight=WEIGHT if weighted else None,
                       **options)
        assert problem.C == C
        for size in (0.0, 0.3, 3.0):
            x = size * np.random.default_rng(1).standard_normal(4 + intercept)
            assert problem.primal(x) == pytest.approx(
                by_hand(loss, x, C, weight, intercept), rel=1e-12
            )


@pytest.mark.parametrize("loss", FORMULA)
def test_defaults_are_those_of_the_documentation(loss: str) -> None:
    """C = 1, gamma = 1/2, epsilon = 1/10, tau = 1/2, delta = 1, no intercept, no weights."""
    spelled = {name: DEFAULTS[name] for name in FORMULA[loss][0]}
    x = np.random.default_rng(2).standard_normal(4)
    assert make(loss).primal(x) == make(loss, C=1.0, intercept=False, **spelled).primal(x)


def test_the_default_losses() -> None:
    """The hinge and the absolute loss."""
    x = np.full(4, 0.3)
    assert svm(X, LABELS).primal(x) == svm(X, LABELS, loss="hinge").primal(x)
    assert regression(X, Y).primal(x) == regression(X, Y, loss="absolute").primal(x)


@pytest.mark.parametrize("loss", FORMULA)
def test_changing_C_is_building_anew(loss: str) -> None:
    """``with_(C=...)``: same objective, original untouched, norms carried over."""
    options = FORMULA[loss][0]
    first = make(loss, C=0.5, sample_weight=WEIGHT, intercept=True, **options)
    norms, x = first.norms, np.random.default_rng(3).standard_normal(5)
    before = first.primal(x)
    changed = first.with_(C=8.0)
    fresh = make(loss, C=8.0, sample_weight=WEIGHT, intercept=True, **options)
    assert changed.primal(x) == pytest.approx(fresh.primal(x), rel=1e-14)
    assert changed.norms is norms
    assert changed.C == 8.0
    assert first.primal(x) == before
    assert changed.with_(C=0.5).primal(x) == before
    for bad in (0.0, -1.0, np.nan, np.inf, "big", None):
        with pytest.raises(InvalidInput, match="`C`"):
            first.with_(C=bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("loss", FORMULA)
def test_weights_are_repetitions(loss: str) -> None:
    """Integer weights give the objective of the data with rows repeated; 0 leaves a row out."""
    options = FORMULA[loss][0]
    count = WEIGHT.astype(int)
    y = LABELS if loss in CLASSIFICATION else Y
    weighted = make(loss, sample_weight=count, intercept=True, **options)
    repeated = make(loss, np.repeat(X, count, axis=0), np.repeat(y, count), intercept=True,
                    **options)
    x = np.random.default_rng(4).standard_normal(5)
    assert weighted.primal(x) == pytest.approx(repeated.primal(x), rel=1e-12)
    a = Newton()(weighted, target=1e-10)
    b = Newton()(repeated, target=1e-10)
    np.testing.assert_allclose(a.x[:4], b.x[:4], atol=1e-4)
    off = count == 0
    assert off.any()
    assert not weighted.losses.value(np.full(30, -50.0))[off].any()
    assert not a.theta[off].any()


@pytest.mark.parametrize("storage", ["list", "int", "float32", "csr", "csc", "fortran"])
def test_any_matrix_will_do(storage: str) -> None:
    """Lists, integers, float32 and sparse matrices describe the same problem."""
    grid = np.round(4 * X) / 4
    whole = np.round(4 * X).astype(int)
    data = {
        "list": grid.tolist(), "int": whole, "float32": grid.astype(np.float32),
        "csr": sp.csr_matrix(grid), "csc": sp.csc_array(grid), "fortran": np.asfortranarray(grid),
    }[storage]
    expected = whole.astype(float) if storage == "int" else grid
    x = np.full(5, 0.25)
    for loss in ("hinge", "absolute"):
        y = LABELS if loss == "hinge" else Y
        assert make(loss, data, y.tolist(), intercept=True).primal(x) == make(
            loss, expected, y, intercept=True
        ).primal(x)
    assert svm(data, LABELS.astype(int)).primal(x[:4]) == svm(data, LABELS).primal(x[:4])
    assert svm(data, LABELS[:, None]).n == 30


def test_data_frames_will_do() -> None:
    """A DataFrame with a Series of labels, whatever its index."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, index=np.arange(30)[::-1])
    labels = pandas.Series(LABELS, index=np.arange(30)[::-1])
    x = np.full(4, 0.2)
    assert svm(frame, labels).primal(x) == svm(X, LABELS).primal(x)
    assert regression(frame, pandas.Series(Y)).primal(x) == regression(X, Y).primal(x)


def test_nothing_of_the_caller_is_written_to() -> None:
    """Data, labels and weights hold the same numbers after building and solving."""
    matrix, y, c = X.copy(), LABELS.copy(), WEIGHT.copy()
    problem = svm(matrix, y, sample_weight=c, intercept=True)
    Newton()(problem, target=1e-8)
    np.testing.assert_array_equal(matrix, X)
    np.testing.assert_array_equal(y, LABELS)
    np.testing.assert_array_equal(c, WEIGHT)


BAD_DATA = {
    "NaN": (np.where(np.eye(30, 4) > 0, np.nan, X), "`X`.*NaN"),
    "infinity": (np.where(np.eye(30, 4) > 0, np.inf, X), "`X`.*infinity"),
    "no rows": (np.zeros((0, 4)), "`X`"),
    "no columns": (np.zeros((30, 0)), "`X` is empty"),
    "one dimension": (X[:, 0], "`X` has shape"),
    "three dimensions": (X[None], "`X` has shape"),
    "strings": (np.full((30, 2), "a"), "`X`"),
    "ragged": ([[1.0], [1.0, 2.0]], "`X`"),
    "sparse NaN": (sp.csr_matrix(np.where(np.eye(30, 4) > 0, np.nan, X)), "`X`.*NaN"),
}


@pytest.mark.parametrize("name", BAD_DATA)
@pytest.mark.parametrize("loss", ["hinge", "absolute"])
def test_bad_data_name_X(loss: str, name: str) -> None:
    """The message names `X`."""
    data, words = BAD_DATA[name]
    y = np.zeros(0) if name == "no rows" else None
    with pytest.raises(InvalidInput, match=words):
        make(loss, data, y)


BAD_Y = {
    "NaN": np.r_[np.nan, LABELS[1:]],
    "infinity": np.r_[np.inf, LABELS[1:]],
    "too short": LABELS[1:],
    "too long": np.r_[LABELS, 1.0],
    "matrix": np.tile(LABELS[:, None], 2),
    "scalar": 1.0,
    "strings": np.where(LABELS > 0, "yes", "no"),
    "nothing": None,
    "ragged": [[1.0], [1.0, -1.0]],
}


@pytest.mark.parametrize("name", BAD_Y)
@pytest.mark.parametrize("door", [svm, regression])
def test_bad_responses_name_y(door: Callable[..., Problem], name: str) -> None:
    """The message names `y`, for labels and for responses."""
    with pytest.raises(InvalidInput, match="`y`"):
        door(X, BAD_Y[name])


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (np.ones(30), "only one class"),
        (-np.ones(30), "only one class"),
        (np.where(LABELS > 0, 1.0, 0.0), "labels 0, 1"),
        (np.arange(30.0), "labels 0, 1, 2, 3, 4, ..."),
        (LABELS > 0, "labels 0, 1"),
    ],
)
def test_labels_are_minus_and_plus_one(labels: np.ndarray, words: str) -> None:
    """Anything else is refused with what was found and how to recode it."""
    with pytest.raises(InvalidInput, match=words) as caught:
        svm(X, labels)
    assert "`y`" in str(caught.value)


BAD_NUMBERS = (0.0, -1.0, np.nan, np.inf, "big", None, [1.0, 2.0])


@pytest.mark.parametrize("name", ["C", "gamma", "epsilon", "tau", "delta"])
@pytest.mark.parametrize("value", BAD_NUMBERS, ids=repr)
def test_bad_parameters_are_named(name: str, value: Any) -> None:
    """Zero, negative, NaN, infinite, strings and lists; None is the default but for C."""
    loss = {"gamma": "smoothed_epsilon", "epsilon": "epsilon", "tau": "quantile",
            "delta": "huber"}.get(name, "absolute")
    if value is None and name != "C":
        assert make(loss, **{name: value}).n == 30
        return
    if name == "C" and value == np.inf:
        assert make(loss, C=value).quadratic.free.all()  # a fit without a ridge
    else:
        with pytest.raises(InvalidInput, match=f"`{name}`"):
            make(loss, **{name: value})
    if name in ("C", "gamma"):
        with pytest.raises(InvalidInput, match=f"`{name}`"):
            svm(X, LABELS, loss="smoothed_hinge", **{name: value})


def test_quantile_levels_lie_strictly_between_0_and_1() -> None:
    """1 and more are refused like 0 and less."""
    for tau in (1.0, 1.5):
        with pytest.raises(InvalidInput, match="`tau`"):
            regression(X, Y, loss="quantile", tau=tau)


@pytest.mark.parametrize("door", [svm, regression])
def test_bad_weights_are_named(door: Callable[..., Problem]) -> None:
    """Negative, all zero, NaN, infinite, of a wrong length, strings."""
    bad = (np.r_[-1.0, np.ones(29)], np.zeros(30), np.r_[np.nan, np.ones(29)],
           np.r_[np.inf, np.ones(29)], np.ones(29), np.ones((30, 2)), np.full(30, "a"), 1.0)
    for weight in bad:
        with pytest.raises(InvalidInput, match="`sample_weight`"):
            door(X, LABELS, sample_weight=weight)


@pytest.mark.parametrize("loss", ["logistic", "", None, 3, "absolute"])
def test_unknown_losses_list_the_known_ones(loss: Any) -> None:
    """A name outside the door's own list, even if the other door has it."""
    with pytest.raises(UnknownName, match=r"`loss`.*hinge, smoothed_hinge, squared_hinge"):
        svm(X, LABELS, loss=loss)
    if loss != "absolute":
        with pytest.raises(UnknownName, match="`loss`.*" + ", ".join(sorted(REGRESSION))):
            regression(X, Y, loss=loss)


def test_a_message_quotes_no_pages() -> None:
    X = np.ones((40, 3))
    with pytest.raises(UnknownName) as caught:
        regression(X, X[:, 0], loss=X)  # type: ignore[arg-type]
    assert "`loss` is array([[" in str(caught.value)
    assert len(str(caught.value)) < 250
    assert "\n" not in str(caught.value)


def test_classes_against_the_rest_have_intercepts_of_their_own_labels() -> None:
    """Lengths of rows are those of any labels, and shared; the column of an intercept is not."""
    problem, others = svm(X, LABELS, intercept=True), np.roll(LABELS, 5)
    problem.compute_row_norms()
    [own] = one_against_rest(problem, [others])
    np.testing.assert_array_equal(own.free_columns[:, 0], others)
    np.testing.assert_array_equal(own.sizes, problem.sizes)
