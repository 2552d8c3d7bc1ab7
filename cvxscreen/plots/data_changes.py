"""Where left-out predictions are: certified intervals in order, refitted ones marked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from cvxscreen.errors import InvalidInput
from cvxscreen.plots.style import INK, LINES, empty_figure, legend_above

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def left_out(
    low: ArrayLike, high: ArrayLike, refitted: ArrayLike, *, classification: bool = True
) -> Figure:
    """Intervals of left-out margins or residuals, sorted by their middle.

    Parameters
    ----------
    low, high : array_like, shape (n,)
    refitted : array_like of bool, shape (n,)
        Terms that were solved again; drawn as points.
    classification : bool
        Whether the numbers are margins, right where positive, or residuals.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    InvalidInput
        Unless the three have one shape and every ``low <= high``.
    """
    below, above = np.asarray(low, dtype=float), np.asarray(high, dtype=float)
    again = np.asarray(refitted, dtype=bool)
    if not below.shape == above.shape == again.shape or below.ndim != 1 or not len(below):
        raise InvalidInput("`low`, `high` and `refitted` need one entry for every term.")
    if not (below <= above).all():
        raise InvalidInput("`low` is above `high` somewhere.")
    shown = np.isfinite(below) & np.isfinite(above)
    known = np.flatnonzero(shown)
    order = known[np.argsort(below[known] + above[known], kind="stable")]
    at = np.arange(len(order))
    figure = empty_figure(3.0)
    axes = figure.add_subplot()
    axes.vlines(at, below[order], above[order], color=LINES[2][2], linewidth=1.0,
                label="proven interval")
    again = again[order]
    middle = 0.5 * (below[order] + above[order])
    # A narrow interval is a dot: a line of no length would not be seen.
    axes.plot(at[~again], middle[~again], LINES[2][1], color=LINES[2][2], markersize=2)
    axes.plot(at[again], middle[again], LINES[1][1], color=LINES[1][2], markersize=3,
              label="refitted")
    axes.axhline(0.0, color=INK, linewidth=0.8)
    axes.set_xlabel("terms, in order")
    axes.set_ylabel("left-out margin" if classification else "left-out residual")
    missing = len(shown) - len(order)
    if missing:
        axes.set_title(f"{missing} terms without an interval are not shown", fontsize=9)
    handles, labels = axes.get_legend_handles_labels()
    legend_above(axes, handles, labels)
    return figure
