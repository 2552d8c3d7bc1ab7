"""What changed data do to predictions: left-out intervals, and how many survive other weights."""

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


def surviving(largest: ArrayLike, size: float, norm: str) -> Figure:
    """The share of the predictions that no weights within a size can change, over that size.

    Parameters
    ----------
    largest : array_like, shape (m,)
        The largest size for which each prediction is certain.
    size : float
        The one that was asked about, marked.
    norm : str
        Of the set of weights, for the axis.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    InvalidInput
        Unless there is a prediction, and every size is a number that is not negative.
    """
    sizes = np.sort(np.asarray(largest, dtype=float))
    if sizes.ndim != 1 or not len(sizes) or not (sizes >= 0).all():
        raise InvalidInput("`largest` needs the size of one prediction at least; give `X`.")
    known = sizes[np.isfinite(sizes)]
    end = 1.05 * max(float(known.max(initial=0.0)), size)
    share = 1.0 - np.arange(len(known) + 1) / len(sizes)
    figure = empty_figure(2.6)
    axes = figure.add_subplot()
    axes.step(np.concatenate([[0.0], known, [end]]), np.append(share, share[-1]), where="post",
              color=LINES[2][2], linewidth=1.8, label="certain predictions")
    here = float((sizes >= size).mean())
    axes.axvline(size, color=LINES[1][2], linestyle=LINES[1][0], linewidth=1.0)
    axes.plot([size], [here], LINES[1][1], color=LINES[1][2], label=f"{here:.0%} at {size:g}")
    axes.set_xlim(0.0, end)
    axes.set_ylim(0.0, 1.03)
    ball = {"l2": "$\\|w - 1\\|_2$", "l1": "$\\|w - 1\\|_1$", "interval": "the intervals"}
    axes.set_xlabel(f"size S of {ball.get(norm, norm)}")
    axes.set_ylabel("share of the predictions")
    handles, labels = axes.get_legend_handles_labels()
    legend_above(axes, handles, labels)
    return figure
