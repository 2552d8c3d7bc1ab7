"""Doors to projections and to generators of data."""

from __future__ import annotations

import numpy as np
from gauntlet import bad
from gauntlet.bad import Bad, X
from gauntlet.door import Door, given

import cvxscreen as cs
from cvxscreen.multitask import prox

SQUARE = [
    Bad("not square", X, (r"\(12, 3\)", "square")), Bad("nan", np.full((2, 2), np.nan), ("NaN",)),
    Bad("words", "abc", ("<U3",)), Bad("a vector", np.ones(3), (r"\(3,\)",)),
    Bad("nothing", None, ("None",)),
]
RECTANGLE = [b for b in SQUARE if b.name != "not square"]
LIST = [Bad("words", "abc", ("<U3", "needed")), Bad("nothing", None, ("None", "needed")),
        Bad("complex", [1j], ("complex128", "needed"))]
STEP = bad.NOT_NEGATIVE[:6]
V = np.array([1.0, -2.0, 0.5])

PROX = [
    Door("prox.capped_simplex", prox.capped_simplex, given(z=V, total=1.0),
         {"z": [*LIST, Bad("nan", [np.nan, 1.0], ("finite",)), Bad("matrix", X, ("vector",))],
          "total": [*bad.NO_NUMBER, bad.NOTHING, bad.NOT_FINITE[0], Bad("large", 4, ("4", "3"))]},
         ("capped_simplex",)),
    Door("prox.fantope", prox.fantope, given(A=np.eye(3), h=1),
         {"A": SQUARE, "h": [Bad("large", 5, ("5", "3")), Bad("nan", np.nan, ("nan",))]},
         ("fantope",), says={"h": "total"}),
    Door("prox.box_norm_weights", prox.box_norm_weights, given(s=np.abs(V), eta=0.1, h=1),
         {"s": [*LIST, Bad("negative", [-1.0], ("non-negative",)),
                Bad("nan", [np.nan], ("finite",))], "eta": bad.POSITIVE,
          "h": [Bad("large", 5, ("5", "3")), Bad("nan", np.nan, ("nan",)), *bad.NO_NUMBER]},
         ("box_norm_weights",)),
    Door("prox.spectral_box_norm_factor", prox.spectral_box_norm_factor,
         given(U=X, eta=0.1, h=1),
         {"U": RECTANGLE, "eta": bad.POSITIVE, "h": [Bad("large", 13, ("13", "12"))]},
         ("spectral_box_norm_factor",)),
    Door("prox.spectral_box_norm_prox", prox.spectral_box_norm_prox,
         given(U=X, step=0.1, eta=0.1, h=1),
         {"U": RECTANGLE, "step": STEP, "eta": bad.POSITIVE,
          "h": [Bad("large", 13, ("13", "12"))]}, ("spectral_box_norm_prox",)),
]

GENERATORS = [
    Door("datasets.two_gaussians", cs.datasets.two_gaussians, given(n=10, d=2),
         {"n": bad.COUNT, "d": bad.COUNT, "seed": bad.COUNT, "bayes_error": [
             Bad("large", 0.7, (r"0\.7", "between")), *bad.NO_NUMBER, bad.NOTHING]},
         ("datasets", "two_gaussians")),
    *[
        Door(f"datasets.{name}", getattr(cs.datasets, name), given(seed=0), {"seed": bad.COUNT},
             (name,))
        for name in ("toy1", "toy2", "toy3")
    ],
    Door("datasets.sparse_text_like", cs.datasets.sparse_text_like, given(n=30, d=20, density=0.2),
         {"n": bad.COUNT, "d": bad.COUNT, "density": bad.NO_NUMBER, "noise": bad.NO_NUMBER,
          "seed": bad.COUNT}, ("sparse_text_like",)),
    Door("datasets.heavy_tailed_regression", cs.datasets.heavy_tailed_regression,
         given(n=10, d=2), {"n": bad.COUNT, "d": bad.COUNT, "seed": bad.COUNT,
                            "outliers": bad.NO_NUMBER}, ("heavy_tailed_regression",)),
]
