"""Projections and proximal operators: ``prox_{t g}(z) = argmin_x g(x) + 1/(2 t) ||x - z||^2``.

Plain functions over arrays, nothing else: vectors in `vectors`, the weights behind the spectral box
norm in `box_norm`, matrices in `spectral`.
"""

from cvxscreen.prox.box_norm import box_norm_weights, box_norm_weights_linear
from cvxscreen.prox.spectral import (
    fantope,
    psd,
    psd_elastic,
    spectral_box_norm,
    spectral_box_norm_dual,
    spectral_box_norm_factor,
    spectral_box_norm_prox,
)
from cvxscreen.prox.vectors import (
    box,
    box_l1,
    capped_simplex,
    elastic_net,
    l1,
    nonneg,
    nonneg_elastic_net,
)

__all__ = [
    "box",
    "box_l1",
    "box_norm_weights",
    "box_norm_weights_linear",
    "capped_simplex",
    "elastic_net",
    "fantope",
    "l1",
    "nonneg",
    "nonneg_elastic_net",
    "psd",
    "psd_elastic",
    "spectral_box_norm",
    "spectral_box_norm_dual",
    "spectral_box_norm_factor",
    "spectral_box_norm_prox",
]
