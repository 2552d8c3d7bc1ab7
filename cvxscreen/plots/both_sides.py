"""Features and samples screened together: rates over lambda and gap, totals, cost along a path.

`heat` draws rates over any two parameters, as a map in greys with lines of equal rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from cvxscreen.errors import InvalidInput
from cvxscreen.plots.style import (
    INK,
    LINES,
    STYLES,
    Floats,
    bar_edges,
    empty_figure,
    legend_above,
    plain_decades,
    positive_grid,
    series,
)

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


ENOUGH = 0.95
"""Where one side alone decides this share there is nothing to add: hatched."""


def both_sides(
    values: ArrayLike,
    gaps: ArrayLike,
    rates: Mapping[str, tuple[ArrayLike, ArrayLike, ArrayLike | None]],
    counts: Mapping[str, ArrayLike],
    *,
    title: str = "Screening of features and samples",
    parameter: str = "lambda",
) -> Figure:
    """What one side proves alone, what both add, and what is proven to stay (Fig. 2 of [1]_).

    Parameters
    ----------
    values, gaps : array_like, shapes (p,) and (q,)
        Of the parameter and of the relative duality gap: positive, distinct, in any order.
    rates : mapping of str to (alone, added, kept)
        One row of maps each; shares in [0, 1] of shape (q, p), NaN is left white, `kept` may be
        None. Where `alone` reaches 95 % the second map is hatched.
    counts : mapping of str to array_like, shape (p,)
        What there is to decide at each value: lines in the first place without a map.
    title, parameter : str

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    InvalidInput
        If there is no row, an array does not fit or a rate is no share.
    MissingDependency
        If matplotlib is not installed.

    References
    ----------
    .. [1] A. Shibagaki, M. Karasuyama, K. Hatano, I. Takeuchi, "Simultaneous safe screening of
       features and samples in doubly sparse modeling", ICML 2016. https://arxiv.org/abs/1602.02485
    """
    if not rates:
        raise InvalidInput("`rates` is empty; at least one row of maps is needed.")
    x, by_x = positive_grid(values)
    y, by_y = positive_grid(gaps)
    lines = {k: series(f"counts[{k!r}]", v, x.size)[by_x] for k, v in counts.items()}
    maps = {
        name: [None if m is None else _shares(f"rates[{name!r}]", m, by_y, by_x) for m in row]
        for name, row in rates.items()
    }
    figure = empty_figure(2.7 * len(maps) - 0.8, 10.4)
    grid = figure.subplots(len(maps), 3, squeeze=False)
    heads = ("one side alone", "added by both", "proven to stay")
    drawn: Any = None
    for axes_row, (name, row) in zip(grid, maps.items(), strict=True):
        for axes, shares, head in zip(axes_row, row, heads, strict=True):
            axes.set_title(head, fontsize=11)
            axes.set(xscale="log", xlabel=parameter)
            if shares is None:
                _counts(axes, x, lines)
                lines = {}
                continue
            drawn = axes.pcolormesh(
                bar_edges(x), bar_edges(y), np.ma.masked_invalid(shares), cmap="Greys", vmin=0.0,
                vmax=1.3,
            )
            axes.set(yscale="log", ylabel=f"{name}\nrelative gap")
            axes.invert_yaxis()
            done = np.isnan(shares)
            if head == heads[1] and row[0] is not None:
                done |= row[0] >= ENOUGH
            _hatch(axes, x, y, done)
    if drawn is not None:
        bar = figure.colorbar(drawn, ax=grid, label="share of what can be decided", shrink=0.7)
        bar.ax.set_ylim(0.0, 1.0)
        bar.ax.yaxis.set_major_formatter("{x:.0%}")
    figure.suptitle(title)
    figure.supxlabel("hatched: nothing to decide, or 95 % decided by one side alone", fontsize=9)
    return figure


def _shares(name: str, given: ArrayLike, by_y: Any, by_x: Any) -> Floats:
    share = np.array(given, dtype=float)
    if share.shape != (len(by_y), len(by_x)):
        raise InvalidInput(
            f"`{name}` has shape {share.shape}; `gaps` and `values` ask for "
            f"{(len(by_y), len(by_x))}."
        )
    if ((share < 0) | (share > 1)).any():
        raise InvalidInput(f"`{name}` are shares; an entry lies outside [0, 1].")
    return share[np.ix_(by_y, by_x)]


def _hatch(axes: Axes, x: Floats, y: Floats, where: Any) -> None:
    """Hatch some cells."""
    from matplotlib.patches import Rectangle

    across, up = bar_edges(x), bar_edges(y)
    for i, j in np.argwhere(where):
        corner = (across[j], up[i])
        axes.add_patch(Rectangle(corner, across[j + 1] - across[j], up[i + 1] - up[i], fill=False,
                                 hatch="////", edgecolor="#9a9a9a", linewidth=0.0))


def _counts(axes: Axes, x: Floats, lines: Mapping[str, Floats]) -> None:
    """Numbers over the parameter, in the place of a map."""
    if not lines:
        axes.set_visible(False)
        return
    axes.set_title("how many there are", fontsize=11)
    for (name, line), (style, marker, color) in zip(lines.items(), LINES, strict=False):
        axes.plot(x, line, linestyle=style, marker=marker, markersize=3, color=color, label=name)
    axes.set_ylim(0, 1.7 * max(1.0, *(line.max() for line in lines.values())))
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=9, loc="upper left")


def total_times(
    seconds: Mapping[str, Mapping[str, float]],
    *,
    title: str = "Total time of a path",
    ylabel: str = "CPU seconds",
) -> Figure:
    """Bars of the total time of each way on each set, on a logarithmic axis (Fig. 3 there).

    Parameters
    ----------
    seconds : mapping of str to mapping of str to float
        For each set, the positive seconds of each way; all sets name the same ways.
    title, ylabel : str

    Raises
    ------
    InvalidInput
        If there is no set, or the sets do not agree.
    """
    sets, ways = list(seconds), list(next(iter(seconds.values()), {}))
    if not ways or any(list(row) != ways for row in seconds.values()):
        raise InvalidInput("`seconds` needs a set, and the same ways in every set.")
    table = np.array([[row[way] for way in ways] for row in seconds.values()], dtype=float)
    if not (np.isfinite(table).all() and (table > 0).all()):
        raise InvalidInput("`seconds` must be positive: they go on a logarithmic axis.")
    figure = empty_figure(2.6, max(4.8, 1.2 + 1.6 * len(sets)))
    axes = figure.subplots()
    width = 0.8 / len(ways)
    for k, way in enumerate(ways):
        fill, hatch = ("white", "") if k == 0 else STYLES[(k - 1) % len(STYLES)]
        place = np.arange(len(sets)) + (k - 0.5 * (len(ways) - 1)) * width
        bars = axes.bar(place, table[:, k], width, label=way, facecolor=fill, hatch=hatch,
                        edgecolor=INK, linewidth=0.8)
        axes.bar_label(bars, [f"{v:.3g}" for v in table[:, k]], fontsize=7, padding=2)
    axes.set_yscale("log")
    axes.set_ylim(0.5 * table.min(), 2.0 * table.max())
    plain_decades(axes.yaxis)
    axes.set_ylabel(f"{ylabel} (logarithmic scale)")
    axes.set_xticks(np.arange(len(sets)), sets)
    handles, labels = axes.get_legend_handles_labels()
    legend_above(axes, handles, labels, columns=4)
    figure.suptitle(title)
    return figure


def cost_along(
    values: ArrayLike,
    runs: Mapping[str, tuple[ArrayLike, ArrayLike]],
    *,
    title: str = "Cost along the path",
    parameter: str = "lambda",
    steps: str = "sweeps",
) -> Figure:
    """Optimisation steps and seconds of every solve along a path (Fig. 4 there).

    Parameters
    ----------
    values : array_like, shape (p,)
        Of the parameter.
    runs : mapping of str to (steps, seconds)
        Two series of shape (p,) for each way.
    title, parameter, steps : str

    Raises
    ------
    InvalidInput
        If there is no run, or a series does not fit.
    """
    if not runs:
        raise InvalidInput("`runs` is empty; at least one run is needed.")
    x, order = positive_grid(values)
    known = {
        name: [series(f"runs[{name!r}]", part, x.size)[order] for part in run]
        for name, run in runs.items()
    }
    figure = empty_figure(3.8)
    top, bottom = figure.subplots(2, 1, sharex=True)
    for (name, run), (style, marker, color) in zip(known.items(), LINES, strict=False):
        for axes, part in zip((top, bottom), run, strict=True):
            axes.plot(x, part, linestyle=style, marker=marker, markersize=3, color=color,
                      linewidth=1.0, label=name)
    top.set_ylabel(f"{steps} to convergence")
    bottom.set_ylabel("CPU seconds")
    bottom.set_xlabel(f"{parameter} (logarithmic scale)")
    for side, axes in enumerate((top, bottom)):
        numbers = np.concatenate([run[side] for run in known.values()])
        axes.set_xscale("log")
        if axes is bottom and (numbers > 0).all():
            axes.set_yscale("log")
            axes.set_ylim(0.6 * numbers.min(), 1.6 * numbers.max())
            plain_decades(axes.yaxis)
        else:
            axes.set_yscale("symlog", linthresh=1.0 if axes is top else 1e-2)
            axes.set_ylim(0.0, 2.0 * max(numbers.max(), 1e-300))
        axes.grid(alpha=0.3)
    plain_decades(bottom.xaxis)
    bottom.invert_xaxis()
    handles, labels = top.get_legend_handles_labels()
    legend_above(top, handles, labels, columns=4)
    figure.suptitle(title)
    return figure
