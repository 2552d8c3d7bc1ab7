"""Doors that make problems."""

from __future__ import annotations

from typing import Any

import numpy as np
from gauntlet import bad
from gauntlet.bad import Bad, D, N, X, Y
from gauntlet.door import DENSE, FULL, Door, T, given, plain

import cvxscreen as cs

CLASSIFIERS = {"X": FULL, "y": bad.LABELS, "sample_weight": bad.WEIGHTS}
REGRESSIONS = {"X": FULL, "y": bad.TARGETS, "sample_weight": bad.WEIGHTS}
KERNEL = {"kernel": bad.OPTIONAL_NAME, "kernel_params": bad.MAPPING,
          "cache_bytes": bad.POSITIVE}
COEFFICIENTS = {
    "nonneg": [Bad("words", "yes", ("nonneg",)), Bad("beyond", [D], ("nonneg",)),
               Bad("long", np.ones(D + 1, dtype=bool), ("nonneg",))],
    "monotone": [Bad("words", "up", ("monotone",)), Bad("two", np.full(D, 2), ("monotone",)),
                 Bad("long", np.ones(D + 1), ("monotone",))],
    "constraints": [Bad("words", "w >= 0", ("constraints",)),
                    Bad("wide", (np.ones((1, D + 1)), 0.0), ("constraints|A",)),
                    Bad("nan", (np.full((1, D), np.nan), 0.0), ("constraints|A",)),
                    Bad("three", (1, 2, 3), ("constraints",))],
}
PLAIN = {"C": bad.POSITIVE, "loss": bad.NAME, "intercept": bad.FLAG}
SHAPES = dict.fromkeys(("gamma", "epsilon", "delta"), bad.OPTIONAL_POSITIVE)


def _task_rows(X: Any = X, y: Any = Y, **more: Any) -> Any:
    return cs.raso([(X, y)], **{"h": 1, "alpha": 0.1, "beta": 0.1, **more})


MODELS = [
    Door("svm", cs.svm, given(X=X, y=Y),
         {**CLASSIFIERS, **PLAIN, **COEFFICIENTS, "gamma": bad.OPTIONAL_POSITIVE,
          "penalty": bad.NAME}, ("svm",)),
    Door("svm with a kernel", cs.svm, given(X=X, y=Y, kernel="rbf"),
         {"X": DENSE, **KERNEL}, says={"kernel_params": "kernel_params`|`gamma"}),
    Door("regression", cs.regression, given(X=X, y=T),
         {**REGRESSIONS, **PLAIN, **SHAPES, **COEFFICIENTS, "tau": bad.OPTIONAL_POSITIVE,
          "penalty": bad.NAME,
          "C": [b for b in bad.POSITIVE if b.name != "infinity"]}, ("regression",)),
    Door("regression without a penalty", cs.regression, given(X=X, y=T, C=np.inf),
         {**REGRESSIONS, **SHAPES, "loss": bad.NAME, "intercept": bad.FLAG}),
    Door("cvar", cs.cvar, given(R=X),
         {"R": FULL, "beta": [Bad("one", 1.0, ("between 0 and 1",)),
                              Bad("zero", 0.0, ("between 0 and 1",)), *bad.NO_NUMBER],
          "sample_weight": bad.WEIGHTS,
          "lower": [Bad("nan", np.nan, ("without NaN",)),
                    Bad("length", np.ones(2), ("needed|must",))],
          "upper": [Bad("nan", np.nan, ("without NaN",)),
                    Bad("length", np.ones(2), ("needed|must",))],
          "mean": [], "min_return": bad.NO_NUMBER, "budget": bad.NO_NUMBER,
          "A": [Bad("alone", np.ones((1, D)), ("belong together",))],
          "b": [Bad("alone", np.ones(1), ("belong together",))]},
         ("cvar",), says={"R": "R`|`X", "A": "`A`", "b": "`b`"}),
    Door("regression with a kernel", cs.regression, given(X=X, y=T, kernel="rbf"),
         KERNEL, says={"kernel_params": "kernel_params`|`gamma"}),
    Door("sparse_svm", cs.sparse_svm, given(X=X, y=Y, lam=0.1),
         {**CLASSIFIERS, "lam": bad.POSITIVE, "loss": bad.NAME, "gamma": bad.OPTIONAL_POSITIVE,
          "l2": [b for b in bad.POSITIVE if b.name != "zero"]}, ("sparse_svm",)),
    Door("sparse_svm as an LP", cs.sparse_svm, given(X=X, y=Y, lam=0.1, loss="hinge", l2=0),
         {**CLASSIFIERS, "lam": bad.POSITIVE}),
    Door("sparse_svm, L1 alone", cs.sparse_svm,
         given(X=X, y=Y, lam=0.1, loss="squared_hinge", l2=0),
         {**CLASSIFIERS, "lam": bad.POSITIVE, "loss": bad.NAME}),
    Door("sparse_svr, L1 alone", cs.sparse_svr, given(X=X, y=T, lam=0.1, loss="huber", l2=0),
         {**REGRESSIONS, "lam": bad.POSITIVE, "loss": bad.NAME, "delta": bad.OPTIONAL_POSITIVE}),
    Door("sparse_svr", cs.sparse_svr, given(X=X, y=T, lam=0.1),
         {**REGRESSIONS, **SHAPES, "lam": bad.POSITIVE, "loss": bad.NAME, "l2": bad.POSITIVE},
         ("sparse_svr",)),
    Door("triplets", cs.triplets, given(X=X, y=Y),
         {"X": FULL, "y": bad.CLASSES, "k": bad.WHOLE}, ("triplets",)),
    Door("triplets by index", cs.triplets, given(X=X, index=[[0, 1, 2]]),
         {"X": FULL, "index": bad.index(3)}),
    Door("pairs", cs.pairs, given(X=X, y=Y),
         {"X": FULL, "y": bad.CLASSES, "k": bad.WHOLE, "upper": bad.OPTIONAL_POSITIVE,
          "lower": bad.OPTIONAL_POSITIVE}, ("pairs",)),
    Door("pairs by index", cs.pairs, given(X=X, index=[[0, 1]], same=[True]),
         {"index": bad.index(2), "same": [
             Bad("nothing", None, ("booleans",)), Bad("numbers", [1], ("int", "booleans")),
             Bad("long", [True, False], (r"\(2,\)", "booleans"))]}),
    Door("quadruplets", cs.quadruplets, given(X=X, index=[[0, 1, 2, 3]]),
         {"X": FULL, "index": bad.index(4)}, ("quadruplets",)),
    Door("rtlm", cs.rtlm, given(X=X, T=[[0, 1, 2]], lam=1.0),
         {"X": FULL, "T": bad.index(3), "lam": bad.POSITIVE, "gamma": bad.NOT_NEGATIVE,
          "diagonal": bad.FLAG, "linear": [
              Bad("a vector", np.ones(D), (r"\(3,\)", "needed")),
              Bad("nan", np.full((D, D), np.nan), ("finite",)),
              Bad("words", "abc", ("<U3", "needed"))]},
         ("rtlm",), says={"T": "T`|`index"}),
    Door("raso", _task_rows, given(X=X, y=Y),
         {"X": FULL, "y": [*bad.VECTOR, bad.WORDS],
          "alpha": bad.POSITIVE, "beta": bad.POSITIVE, "h": [*bad.WHOLE, bad.NOTHING,
          Bad("too large", 4, ("4", "between 1 and"))], "loss": bad.NAME, **SHAPES,
          "tau": bad.OPTIONAL_POSITIVE}, ("raso",)),
    Door("raso's list", cs.raso, given(tasks=[(X, Y)], alpha=0.1, beta=0.1),
         {"tasks": [Bad("empty", [], ("empty", "needed")), Bad("nothing", None, ("pairs",)),
                    Bad("no pairs", [X], ("pairs",)),
                    Bad("different widths", [(X, Y), (X[:, :2], Y)], ("2 features", "same"))]}),
    Door("Losses", cs.Losses,
         lambda: {"b": np.ones(N), "e": 0.0, "q": 0.0, "lo": -1.0, "hi": 0.0},
         {"b": [Bad("nan", np.full(N, np.nan), ("finite",)), Bad("words", "abc", ("<U3", "needed")),
                Bad("two axes", np.ones((N, 1)), ("shape",)), Bad("nothing", None, ("None",))],
          "e": [Bad("negative", -1.0, ("non-negative",)), Bad("length", np.ones(3), ("fit",))],
          "lo": [Bad("positive", 1.0, ("lo <= 0",)), Bad("infinite", np.inf, ("lo <= 0",)),
                 Bad("nan", np.nan, ("lo <= 0",))],
          "q": [Bad("negative", -1.0, ("non-negative",)), Bad("nan", np.nan, ("non-neg|finite",)),
                Bad("length", np.ones(3), ("fit",))],
          "hi": [Bad("negative", -1.0, ("hi",)), Bad("nan", np.nan, ("hi",))]},
         ("Losses",), says={"lo": "q`|`e|lo <= 0|slope", "e": "e`|`lo", "q": "q`|`e|`lo",
                            "hi": "hi|slope"}),
    Door("Quadratic", cs.Quadratic, given(diagonal=np.ones(D)),
         {"diagonal": [Bad("negative", -np.ones(D), ("non-negative",)),
                       Bad("nan", np.full(D, np.nan), ("finite",)),
                       Bad("a matrix", np.eye(D), ("vector",)), Bad("words", "a", ("<U1",)),
                       Bad("nothing", None, ("None",))],
          "matrix": [Bad("indefinite", -5.0 * np.eye(D), ("not positive definite",)),
                     Bad("shape", np.eye(2), (r"\(3, 3\)",)), Bad("words", "a", ("<U1",)),
                     Bad("nan", np.full((D, D), np.nan), ("finite",))]},
         ("Quadratic",), says={"matrix": "matrix`|the quadratic term"}),
    Door("Problem", cs.Problem,
         lambda: {name: getattr(plain().problem, name)
                  for name in ("design", "losses", "quadratic", "linear")},
         {"design": bad.SOMETHING_ELSE[:4], "losses": bad.SOMETHING_ELSE,
          "quadratic": bad.SOMETHING_ELSE[:4], "linear": bad.finite_point(D)[:-2],
          "constant": [*bad.NO_NUMBER, *bad.NOT_FINITE]}, ("Problem",)),
]
