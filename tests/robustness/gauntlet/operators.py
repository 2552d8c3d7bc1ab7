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
    Door("prox.l1", prox.l1, given(z=V, step=0.1), {"z": LIST, "step": STEP}, ("l1",)),
    Door("prox.nonneg", prox.nonneg, given(z=V), {"z": LIST}, ("nonneg",)),
    Door("prox.box", prox.box, given(z=V, low=-1.0, high=1.0),
         {"z": LIST, "low": [Bad("above", 2.0, ("exceeds",)), *LIST]}, ("box",)),
    Door("prox.box_l1", prox.box_l1, given(z=V, step=0.1, low=-1.0, high=1.0),
         {"z": LIST, "step": STEP, "high": [Bad("below", -2.0, ("exceeds",))]}, ("box_l1",)),
    Door("prox.elastic_net", prox.elastic_net, given(z=V, step=0.1, l1_weight=1.0, l2_weight=1.0),
         {"z": LIST, "step": STEP, "l1_weight": STEP, "l2_weight": STEP}, ("elastic_net",)),
    Door("prox.nonneg_elastic_net", prox.nonneg_elastic_net,
         given(z=V, step=0.1, l1_weight=1.0, l2_weight=1.0),
         {"z": LIST, "step": STEP, "l1_weight": STEP, "l2_weight": STEP}, ("nonneg_elastic_net",)),
    Door("prox.capped_simplex", prox.capped_simplex, given(z=V, total=1.0),
         {"z": [*LIST, Bad("nan", [np.nan, 1.0], ("finite",)), Bad("matrix", X, ("vector",))],
          "total": [*bad.NO_NUMBER, bad.NOTHING, bad.NOT_FINITE[0], Bad("large", 4, ("4", "3"))]},
         ("capped_simplex",)),
    Door("prox.psd", prox.psd, given(A=np.eye(3)), {"A": SQUARE}, ("psd",)),
    Door("prox.psd_elastic", prox.psd_elastic,
         given(A=np.eye(3), step=0.1, trace_weight=1.0, l2_weight=1.0),
         {"A": SQUARE, "step": STEP, "trace_weight": STEP, "l2_weight": STEP}, ("psd_elastic",)),
    Door("prox.fantope", prox.fantope, given(A=np.eye(3), h=1),
         {"A": SQUARE, "h": [Bad("large", 5, ("5", "3")), Bad("nan", np.nan, ("nan",))]},
         ("fantope",), says={"h": "total"}),
    *[
        Door(f"prox.{name}", getattr(prox, name), given(s=np.abs(V), eta=0.1, h=1),
             {"s": [*LIST, Bad("negative", [-1.0], ("non-negative",)),
                    Bad("nan", [np.nan], ("finite",))], "eta": bad.POSITIVE,
              "h": [Bad("large", 5, ("5", "3")), Bad("nan", np.nan, ("nan",)), *bad.NO_NUMBER]},
             (name,))
        for name in ("box_norm_weights", "box_norm_weights_linear")
    ],
    *[
        Door(f"prox.{name}", getattr(prox, name), given(U=X, eta=0.1, h=1),
             {"U": RECTANGLE, "eta": bad.POSITIVE, "h": [Bad("large", 13, ("13", "12"))]}, (name,))
        for name in ("spectral_box_norm", "spectral_box_norm_factor")
    ],
    Door("prox.spectral_box_norm_dual", prox.spectral_box_norm_dual, given(V=X, eta=0.1, h=1),
         {"V": RECTANGLE, "eta": bad.POSITIVE, "h": [Bad("large", 13, ("13", "12"))]},
         ("spectral_box_norm_dual",)),
    Door("prox.spectral_box_norm_prox", prox.spectral_box_norm_prox,
         given(U=X, step=0.1, eta=0.1, h=1),
         {"U": RECTANGLE, "step": STEP, "eta": bad.POSITIVE}, ("spectral_box_norm_prox",)),
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
