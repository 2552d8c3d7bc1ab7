"""Pictures of what screening does; plain arrays or records in, a matplotlib ``Figure`` out.

Nothing is shown and no global setting is touched; notebooks show the figure. Every picture draws on
`ax` where given (axes of pyplot, say; pictures of several panels take one a panel), and otherwise
on a new figure of `figsize` inches. Needs the extra ``cvxscreen[plot]``.

* `rejection`: shares of terms fixed along a path, stacked, above the evidence for them;
* `panels`: the same shares of several rules or data sets side by side;
* `sample_plane`: the parts of the plane where a sample is decided;
* `weight_plane`: balls around the optimum among the kinks of the samples;
* `cone_plane`: spheres of 2 x 2 metrics and the positive semidefinite cone;
* `heat`: a rate over two parameters (C and the gap reached, or C and a reference's C);
* `both_sides`: features and samples, alone and together, over lambda and the gap;
* `total_times`, `cost_along`: seconds of whole paths, and of every solve along one;
* `lines`: shares along a path, a line each (rules side by side);
* `three_ways`: seconds of several ways to one answer, and where the terms lie there;
* `kept_and_gap`: kept terms and certified gap against time;
* `left_out`, `surviving`: intervals of left-out margins; predictions that other weights leave;
* `save`: to a file, whole or not at all; `writable`: whether that will be possible.

Three instances::

    rejection(C, {"linear": share_l, "zero": share_r})                  # one panel: shares fixed
    rejection(C, rates, gaps=relative_gaps, kept=terms_kept)            # and a panel of evidence
    save(rejection(lam, {"features dropped": share}, parameter="lambda"), "path.png")
"""

from __future__ import annotations

from cvxscreen.plots.records import (
    both_sides,
    cost_along,
    heat,
    kept_and_gap,
    left_out,
    lines,
    panels,
    rejection,
    surviving,
    three_ways,
    total_times,
)
from cvxscreen.plots.regions import cone_plane, sample_plane, weight_plane
from cvxscreen.plots.style import save, writable

__all__ = [
    "both_sides", "cone_plane", "cost_along", "heat", "kept_and_gap", "left_out", "lines", "panels",
    "rejection", "sample_plane", "save", "surviving", "three_ways", "total_times", "weight_plane",
    "writable",
]
