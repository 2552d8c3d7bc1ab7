"""Whole ranges of C as one region."""

from __future__ import annotations

import numpy as np
from strategies import Case, reference

from cvxscreen.bounds import ScaledReference
from cvxscreen.bounds.regions import Functionals
from cvxscreen.core.duality import reference_point
from cvxscreen.screening.ranges import _Sweep


def test_a_sweep_contains_the_balls_at_both_of_its_ends(rng: np.random.Generator) -> None:
    """The radius is convex along a ray: the larger of the two ends counts, whichever it is."""
    ref = reference(Case("hinge"))
    x = ref.x * (1.0 + 0.1 * rng.standard_normal(ref.problem.d))
    ray = ScaledReference.of(reference_point(ref.problem, x, ref.theta))
    assert ray is not None
    wanted = Functionals.rows(ref.problem)
    (start, _), (rate, _) = map(wanted.at, ray.places())
    for first, last in ((0.5, 1.0), (1.0, 1.5), (0.7, 1.4)):
        low, high = _Sweep(ray, first, last).span(wanted)
        for s in (first, last):
            middle, reach = 0.5 * (start + s * rate), ray.radius(s) * wanted.norms
            assert (low <= middle - reach).all()
            assert (high >= middle + reach).all()
