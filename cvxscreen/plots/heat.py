"""Rates over two parameters, as a map in greys with lines of equal rate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from cvxscreen.errors import InvalidInput
from cvxscreen.plots.style import INK, Floats, bar_edges, empty_figure, positive_grid

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LEVELS = {0.25: ":", 0.5: "--", 0.75: "-.", 0.9: "-"}


def heat(
    across: ArrayLike,
    up: ArrayLike,
    rates: ArrayLike,
    *,
    xlabel: str = "C",
    ylabel: str = "C of the reference",
    title: str = "Share of terms decided",
    falling: bool = False,
) -> Figure:
    """A share over two positive parameters, both on logarithmic axes.

    Parameters
    ----------
    across, up : array_like, shapes (p,) and (q,)
        Values of the two parameters: positive, distinct, in any order.
    rates : array_like, shape (q, p)
        Shares in [0, 1]; NaN is left white.
    xlabel, ylabel, title : str
    falling : bool
        Whether the vertical axis falls (for a gap, say, that shrinks during the solve).

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    InvalidInput
        If an array does not fit or a share is outside [0, 1].
    MissingDependency
        If matplotlib is not installed.
    """
    x, by_x = positive_grid(across)
    y, by_y = positive_grid(up)
    share = np.array(rates, dtype=float)
    if share.shape != (len(y), len(x)):
        raise InvalidInput(
            f"`rates` has shape {share.shape}; `up` and `across` ask for {(len(y), len(x))}."
        )
    if ((share < 0) | (share > 1)).any():
        raise InvalidInput("`rates` are shares; an entry lies outside [0, 1].")
    share = share[np.ix_(by_y, by_x)]
    figure = empty_figure(3.4)
    axes = figure.subplots()
    drawn = axes.pcolormesh(
        bar_edges(x), bar_edges(y), np.ma.masked_invalid(share), cmap="Greys", vmin=0.0, vmax=1.3
    )
    if min(share.shape) > 1:
        _lines(axes, x, y, share)
    axes.set(xscale="log", yscale="log", xlabel=f"{xlabel} (logarithmic scale)",
             ylabel=f"{ylabel} (logarithmic scale)")
    if falling:
        axes.invert_yaxis()
    bar = figure.colorbar(drawn, ax=axes, label="share of terms")
    bar.ax.set_ylim(0.0, 1.0)
    bar.ax.yaxis.set_major_formatter("{x:.0%}")
    figure.suptitle(title)
    return figure


def _lines(axes: Axes, x: Floats, y: Floats, share: Floats) -> None:
    """Lines of equal share, white under black, with a legend instead of labels on the lines."""
    known = share[np.isfinite(share)]
    shown = [item for item in _LEVELS.items() if known.size and known.min() < item[0] < known.max()]
    for level, look in shown:
        axes.contour(x, y, share, levels=[level], colors="white", linewidths=3.2)
        axes.contour(x, y, share, levels=[level], colors=INK, linewidths=1.4, linestyles=[look])
    handles = [
        axes.plot([], [], color=INK, linewidth=1.4, linestyle=look, label=f"{level:.0%}")[0]
        for level, look in shown
    ]
    if handles:
        axes.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4,
                    frameon=False)
