"""The estimators: parameters refused by name, data as scikit-learn does, nothing touched."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pytest
from gauntlet import bad
from gauntlet.bad import Bad, N, X, Y
from gauntlet.door import T
from gauntlet.touch import snapshot
from sklearn.base import is_classifier
from sklearn.exceptions import NotFittedError

from cvxscreen import estimators
from cvxscreen.errors import InvalidInput

TASK = np.arange(N) % 2


@dataclass(frozen=True)
class Model:
    """An estimator with the kinds of its parameters and what `fit` takes beside X and y."""

    model: Callable[..., Any]
    kinds: Mapping[str, list[Bad]]
    y: Any = None
    more: tuple[Any, ...] = ()
    methods: tuple[str, ...] = ("predict",)
    says: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return type(self.model()).__name__

    @property
    def targets(self) -> Any:
        return Y if self.y is None else self.y


OPTION = bad.OPTIONAL_POSITIVE
SHARED = {"tol": bad.TOLERANCE, "mode": bad.NAME}
FIT = {"C": bad.POSITIVE, "fit_intercept": bad.FLAG, "loss": bad.NAME, "gamma": OPTION, **SHARED}
KERNEL = {"kernel": bad.NAME}
OPTIONAL = [b for b in bad.TOLERANCE if b.name != "nothing"]  # what suits the kernel
CS = [Bad(b.name, b.value, ("needed",)) for b in bad.GRID if b.name != "a number"]

MODELS = [
    Model(estimators.ScreenedSVC, {**FIT, **KERNEL, "tol": OPTIONAL},
          methods=("predict", "decision_function")),
    Model(lambda **a: estimators.ScreenedSVC(**{"kernel": "rbf", **a}),
          {"kernel_params": bad.MAPPING, "cache_bytes": bad.POSITIVE},
          says={"kernel_params": "kernel_params`|`gamma"}),
    Model(lambda **a: estimators.ScreenedSVCCV(**{"cv": 2, "Cs": 2, **a}),
          {"Cs": [*CS, Bad("none", 0, ("0", "at least one"))], "fit_intercept": bad.FLAG,
           **SHARED}),
    Model(estimators.ScreenedRegressor,
          {**FIT, **KERNEL, "tol": OPTIONAL, "epsilon": OPTION, "tau": OPTION, "delta": OPTION},
          y=T),
    Model(estimators.ScreenedQuantileRegressor,
          {"quantile": [Bad("one", 1.0, ("between 0 and 1",)), *bad.NO_NUMBER],
           "alpha": bad.NOT_NEGATIVE, "fit_intercept": bad.FLAG, **SHARED}, y=T),
    Model(estimators.SparseSVC,
          {"lam": OPTION, "l2": [b for b in bad.POSITIVE if b.name != "zero"],
           "loss": bad.NAME, "gamma": OPTION, "intercept_scaling": bad.POSITIVE,
           "fit_intercept": bad.FLAG, **SHARED}),
    Model(estimators.SparseSVR,
          {"lam": OPTION, "l2": [b for b in bad.POSITIVE if b.name != "zero"],
           "loss": bad.NAME, "gamma": OPTION, "intercept_scaling": bad.POSITIVE,
           "fit_intercept": bad.FLAG, **SHARED}, y=T),
    Model(lambda **a: estimators.ScreenedRegressorCV(**{"cv": 2, "Cs": 2, **a}),
          {"Cs": [*CS, Bad("none", 0, ("0", "at least one"))], "fit_intercept": bad.FLAG,
           **SHARED}, y=T),
    Model(lambda **a: estimators.SparseSVCCV(**{"cv": 2, "lams": 2, **a}),
          {"lams": [*CS, Bad("none", 0, ("0", "at least one"))], "fit_intercept": bad.FLAG,
           **SHARED}),
    Model(estimators.TripletMetricLearner,
          {"k": bad.WHOLE, "lam": OPTION, "gamma": bad.NOT_NEGATIVE, "diagonal": bad.FLAG,
           "n_components": bad.WHOLE, **SHARED},
          methods=("transform",), says={"n_components": "rank|n_components"}),
    Model(lambda **a: estimators.MultiTaskSVC(**{"h": 1, **a}),
          {"h": bad.WHOLE, "alpha": bad.POSITIVE, "beta": bad.POSITIVE, "loss": bad.NAME,
           "tol": bad.TOLERANCE}, more=(TASK,)),
]


def attempt(call: Callable[[], Any], value: Any, kinds: tuple[type, ...], words: Any) -> str | None:
    before = snapshot(value)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            # scikit-learn's own, on its way to the refusal
            warnings.filterwarnings("ignore", "X has feature names", UserWarning)
            warnings.filterwarnings("ignore", category=RuntimeWarning)
            call()
    except kinds as error:
        missing = [w for w in words if not re.search(w, str(error), re.DOTALL)]
        if missing:
            return f"the message lacks {missing}: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    else:
        return "not refused"
    return "the caller's value was changed" if snapshot(value) != before else None


@pytest.mark.parametrize("row", MODELS, ids=lambda row: row.name)
def test_bad_parameters_are_refused_by_name(row: Model) -> None:
    faults = []
    for name, kind in row.kinds.items():
        for value in kind:
            model = row.model(**{name: value.value})
            named = row.says.get(name, name)
            found = attempt(
                lambda model=model: model.fit(X, row.targets, *row.more),
                value.value, (InvalidInput,), (named, *value.words),
            )
            faults += [f"{name}, {value.name}: {found}"] if found else []
    assert not faults, "\n".join(faults)


DATA = [b for b in (*bad.MATRIX, *bad.FRAMES, *bad.EMPTY) if "sparse" not in b.name]
TARGETS = [b for b in bad.VECTOR if b.name not in ("dates",)]
UNREAD = {"words of digits", "digits as objects", "masked", "dates", "frame dates"}
"""What scikit-learn reads as numbers."""


@cache
def fitted(number: int) -> Any:
    row = MODELS[number]
    return row.model().fit(X, row.targets, *row.more)


@pytest.mark.parametrize("number", range(len(MODELS)), ids=[row.name for row in MODELS])
def test_bad_data_are_refused(number: int) -> None:
    """In `fit` and afterwards; scikit-learn's own checks raise its own ValueError or TypeError."""
    row, kinds, faults = MODELS[number], (ValueError, TypeError), []
    for value in DATA:
        if value.name in UNREAD and row.name != "MultiTaskSVC":
            continue
        calls = {"fit": lambda v=value: row.model().fit(v.value, row.targets, *row.more)}
        for name in row.methods:
            method = getattr(fitted(number), name)
            calls[name] = lambda v=value, m=method: m(v.value, *row.more)
        for name, call in calls.items():
            if name != "fit" and value.name == "no rows" and row.name == "MultiTaskSVC":
                continue
            found = attempt(call, value.value, kinds, ())
            faults += [f"{name} X, {value.name}: {found}"] if found else []
    for value in TARGETS:
        if value.name in ("masked", "complex", "things", "series missing"):
            continue  # labels may be anything that can be compared
        found = attempt(
            lambda v=value: row.model().fit(X, v.value, *row.more), value.value, kinds, ()
        )
        faults += [f"fit y, {value.name}: {found}"] if found else []
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("labels", [np.ones(20), np.full(20, 3)])
def test_one_class_is_shown_as_it_was_written(labels: Any) -> None:
    shown = re.escape(repr(labels.tolist()[0]))
    with pytest.raises(ValueError, match=rf"only one class \({shown}\)"):
        estimators.ScreenedSVC().fit(np.eye(20), labels)


@pytest.mark.parametrize("row", MODELS, ids=lambda row: row.name)
def test_one_class_other_widths_and_order_of_calls(row: Model) -> None:
    for name in row.methods:
        with pytest.raises(NotFittedError):
            getattr(row.model(), name)(X, *row.more)
    found = row.model().fit(X, row.targets, *row.more)
    for name in row.methods:
        with pytest.raises(ValueError, match="features"):
            getattr(found, name)(X[:, :2], *row.more)
    if is_classifier(row.model()) or row.name == "TripletMetricLearner":
        with pytest.raises(InvalidInput, match=r"`y` has (only one|1) class"):
            row.model().fit(X, np.ones(N), *row.more)


def test_tasks_are_checked() -> None:
    model = estimators.MultiTaskSVC(h=1)
    for task, words in ((TASK[:3], r"\(3,\)"), (None, r"\(\)")):
        with pytest.raises(InvalidInput, match=f"`task`.*{words}"):
            model.fit(X, Y, task)
    with pytest.raises(InvalidInput, match=r"`task` holds .*7.*not seen"):
        model.fit(X, Y, TASK).predict(X, TASK + 7)
