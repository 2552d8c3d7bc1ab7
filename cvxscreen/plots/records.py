"""Pictures of what was measured: along a path, during a solve, over two parameters, in total.

Of a path or a solve what screening fixed, what was left and how well it is proven; of changed data
the left-out intervals, and how many predictions survive other weights; of features and samples
screened together the rates over lambda and gap, the totals and the cost along a path.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cvxscreen.errors import InvalidInput, quoted
from cvxscreen.plots.style import (
    INK,
    LINES,
    STYLES,
    Floats,
    bar_edges,
    canvas,
    legend_above,
    plain_decades,
    positive_grid,
    series,
)
from cvxscreen.solvers.solution import Solution

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MEAN = "mean share over the path"
MARKS = "os^DvP*Xpdh"
"""More than `LINES` has, so that a dozen rules can be told apart."""

_GAP_FLOOR = 1e-17
"""Gaps are drawn on a logarithmic axis; one of exactly zero is drawn here."""


def _shares(name: str, rates: Mapping[str, ArrayLike], order: NDArray[Any]) -> dict[str, Floats]:
    """Return `rates` sorted by `order`; refuses shares that exceed 1 together."""
    size = order.size
    shares = {k: series(f"{name}[{k!r}]", rate, size)[order] for k, rate in rates.items()}
    total = np.sum([*shares.values(), np.zeros(size)], axis=0)
    if (total > 1 + 1e-9).any():
        raise InvalidInput(f"`{name}` are shares; together they reach {total.max():g}, beyond 1.")
    return shares


def _stack(axes: Axes, edges: Floats, rates: Mapping[str, Floats], heading: str = _MEAN) -> None:
    """Draw the rates on top of each other as bars without seams; the rest up to 1 is kept."""
    below = np.zeros(edges.size - 1)
    for index, (name, rate) in enumerate(rates.items()):
        fill, hatch = STYLES[index % len(STYLES)]
        above = below + rate
        axes.stairs(
            above, edges, baseline=below, fill=True, facecolor=fill, hatch=hatch,
            edgecolor=INK, linewidth=0.0, label=f"{name} {rate.mean():.1%}",
        )
        axes.stairs(above, edges, baseline=None, color=INK, linewidth=0.8)
        below = above
    kept = 1.0 - below
    axes.stairs(
        np.ones_like(below), edges, baseline=below, fill=True, facecolor="white",
        edgecolor=INK, linewidth=0.8, label=f"kept {kept.mean():.1%}",
    )
    axes.set_ylim(0.0, 1.0)
    axes.set_ylabel("share of terms")
    axes.yaxis.set_major_formatter("{x:.0%}")
    legend_above(axes, title=heading)


def _evidence(axes: Axes, grid: Floats, gaps: Floats | None, kept: Floats | None) -> None:
    """Draw certified gaps (left axis, logarithmic) and counts of kept terms (right axis)."""
    lines: list[Any] = []
    if gaps is not None:
        zeros = f" (0 drawn at {_GAP_FLOOR:g})" if (gaps < _GAP_FLOOR).any() else ""
        proven = np.isfinite(gaps)
        shown = np.maximum(gaps[proven], _GAP_FLOOR)
        at = grid[proven]
        lines += axes.plot(at, shown, "o", color=INK, markersize=3, label="relative gap" + zeros)
        axes.set_yscale("log")
        if shown.size:  # whole decades, lest the labels between them overlap
            ends = np.floor(np.log10(shown.min())), np.ceil(np.log10(shown.max()))
            axes.set_ylim(0.8 * 10.0 ** ends[0], 1.25 * 10.0 ** max(ends[1], ends[0] + 1))
        axes.set_ylabel("certified relative gap")
    if kept is not None:
        right = axes if gaps is None else axes.twinx()
        lines += right.plot(grid, kept, "-", color="#c0561b", linewidth=1.8, label="kept terms")
        if grid.size == 1:
            lines[-1].set_marker("s")
        right.set_ylim(0, 1.1 * max(kept.max(), 1.0))
        right.set_ylabel("terms kept in the solve")
        right.yaxis.set_major_formatter("{x:,.0f}")
    axes.grid(alpha=0.3)
    legend_above(axes, lines)


def rejection(
    values: ArrayLike,
    rates: Mapping[str, ArrayLike],
    *,
    gaps: ArrayLike | None = None,
    kept: ArrayLike | None = None,
    title: str = "Screening along the path",
    parameter: str = "C",
    ax: Axes | Sequence[Axes] | None = None,
    figsize: tuple[float, float] | None = None,
) -> Figure:
    """Rejection rates along a path, stacked by piece, above the evidence for them.

    Parameters
    ----------
    values : array_like, shape (m,)
        The path's parameter values: positive, distinct, in any order.
    rates : mapping of str to array_like, shape (m,)
        For each piece, the share of terms fixed on it at each value. The shares are stacked from
        the bottom in the order given, and what is missing to 1 is shown as kept.
    gaps : array_like, shape (m,), optional
        Certified relative duality gap of each solution; infinite (no certificate) is left out.
    kept : array_like, shape (m,), optional
        Number of terms that were left for the solver at each value.
    title : str
        Title of the figure.
    parameter : str
        Name of the parameter, for the horizontal axis.
    ax, figsize
        As in `lines`; `ax` are one a panel.

    Returns
    -------
    matplotlib.figure.Figure
        One panel, or two when `gaps` or `kept` is given.

    Raises
    ------
    InvalidInput
        If an array does not fit, holds a negative entry, or the shares exceed 1 in all.
    MissingDependency
        If matplotlib is not installed.
    """
    grid, order = positive_grid(values)
    shares = _shares("rates", rates, order)
    gap_series = None if gaps is None else series("gaps", gaps, grid.size)[order]
    kept_series = None if kept is None else series("kept", kept, grid.size)[order]

    with_evidence = gap_series is not None or kept_series is not None
    heights = (3, 2) if with_evidence else (3,)
    drawing = canvas(ax, figsize, sum(heights), shape=(len(heights), 1), sharex=True,
                     height_ratios=heights)
    stacked = drawing.axes[:, 0]
    edges = bar_edges(grid)
    _stack(stacked[0], edges, shares)
    if with_evidence:
        _evidence(stacked[1], grid, gap_series, kept_series)
    for axes in stacked:
        axes.set_xscale("log")
        axes.set_xlim(edges[0], edges[-1])
    stacked[-1].set_xlabel(f"{parameter} (logarithmic scale)")
    drawing.title(title)
    return drawing.figure


def panels(
    values: ArrayLike,
    rates: Mapping[str, Mapping[str, ArrayLike]],
    *,
    columns: int = 3,
    title: str = "Screening along the path",
    parameter: str = "C",
    ax: Sequence[Axes] | None = None,
    figsize: tuple[float, float] | None = None,
) -> Figure:
    """Rejection rates of several rules or data sets, one panel each, on common axes.

    Parameters
    ----------
    values, title, parameter
        As for `rejection`; the values are common to all panels.
    rates : mapping of str to mapping of str to array_like, shape (m,)
        For each panel (its heading) what `rejection` takes as rates.
    columns : int
        Panels in a row at most.
    ax, figsize
        As in `lines`; `ax` are one a panel.

    Raises
    ------
    InvalidInput
        If there is no panel, or an array does not fit as in `rejection`.
    """
    if not rates or columns < 1:
        raise InvalidInput(f"`rates` has {len(rates)} panels in {columns} columns; both need one.")
    grid, order = positive_grid(values)
    shares = {name: _shares(f"rates[{name!r}]", rates[name], order) for name in rates}
    columns = min(columns, len(shares))
    rows = -(-len(shares) // columns)
    shape = (rows, columns) if ax is None else (len(shares), 1)
    drawing = canvas(ax, figsize, 3.0 * rows - 1.0, 4.0 * columns, shape, sharex=True, sharey=True)
    for axes, (name, given) in zip(drawing.axes.flat, shares.items(), strict=False):
        _stack(axes, bar_edges(grid), given, name)
        axes.set_xscale("log")
        axes.tick_params(labelbottom=True)
        axes.set_xlabel(parameter)
    for axes in drawing.axes.flat[len(shares):]:
        axes.set_visible(False)
    drawing.title(title)
    return drawing.figure


def _run(name: str, given: Any) -> Floats:
    """One run as an array (3, rounds)."""
    if isinstance(given, Solution):
        rounds = given.rounds
        given = (
            np.cumsum([entry.seconds for entry in rounds]),
            [entry.kept for entry in rounds],
            [entry.relative_gap for entry in rounds],
        )
    if not isinstance(given, Sequence) or len(given) != 3:
        raise InvalidInput(
            f"runs[{name!r}] is {quoted(given)}; give a solution, or seconds, kept and gaps."
        )
    try:
        run = np.array(given, dtype=float)
    except ValueError:
        raise InvalidInput(f"runs[{name!r}]: seconds, kept and gaps differ in length.") from None
    if run.ndim != 2 or not run.shape[1] or np.isnan(run).any() or (run < 0).any():
        raise InvalidInput(
            f"runs[{name!r}] needs three equally long rows of numbers >= 0: seconds, kept, gaps."
        )
    if (np.diff(run[0]) < 0).any():
        raise InvalidInput(f"runs[{name!r}]: the seconds must not fall.")
    return run


def kept_and_gap(
    runs: Mapping[str, Solution | tuple[ArrayLike, ArrayLike, ArrayLike]],
    *,
    title: str = "Kept terms and certified gap during the solve",
    ax: Sequence[Axes] | None = None,
    figsize: tuple[float, float] | None = None,
) -> Figure:
    """Two panels over time: terms in the reduced problem, and the relative gap on the full one.

    Parameters
    ----------
    runs : mapping of str to Solution or (seconds, kept, gaps)
        Solutions are drawn by their rounds. Otherwise for each run three sequences of the same
        length, one entry a round: time since the start, terms of the reduced problem, relative gap
        after the round (infinite before the first point).
    title, ax, figsize
        As in `lines`; `ax` are two.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    InvalidInput
        If there is no run, or its sequences do not fit.
    MissingDependency
        If matplotlib is not installed.
    """
    if not runs:
        raise InvalidInput("`runs` is empty; at least one run is needed.")
    known = {name: _run(name, run) for name, run in runs.items()}
    drawing = canvas(ax, figsize, 3.8, shape=(2, 1), sharex=True)
    top, bottom = drawing.axes[:, 0]
    for index, (name, (seconds, kept, gaps)) in enumerate(known.items()):
        line, marker, color = LINES[index % len(LINES)]
        look = {"linestyle": line, "marker": marker, "color": color, "markersize": 4.0}
        # A round's count holds from the end of the round before it.
        times, counts = np.concatenate([[0.0], seconds]), np.concatenate([kept[:1], kept])
        top.plot(1e3 * times, counts, drawstyle="steps-pre", label=name,
                 markevery=slice(1, None), **look)
        proven = np.isfinite(gaps)
        bottom.plot(1e3 * seconds[proven], np.maximum(gaps[proven], _GAP_FLOOR), **look)
    top.set_ylim(bottom=0)
    top.set_ylabel("terms kept")
    top.yaxis.set_major_formatter("{x:,.0f}")
    bottom.set_yscale("log")
    bottom.set_ylabel("relative gap")
    bottom.set_xlabel("time since the start (ms)")
    for axes in (top, bottom):
        axes.set_xlim(left=0)
        axes.grid(alpha=0.3)
    legend_above(top)
    drawing.title(title)
    return drawing.figure


def lines(
    values: ArrayLike,
    shares: Mapping[str, ArrayLike],
    *,
    title: str = "Screening along the path",
    parameter: str = "C",
    ax: Axes | None = None,
    figsize: tuple[float, float] | None = None,
) -> Figure:
    """Shares of terms along a path, a line for each rule.

    Parameters
    ----------
    values : array_like, shape (m,)
        The path's parameter values: positive, distinct, in any order.
    shares : mapping of str to array_like, shape (m,)
        In [0, 1].
    title, parameter : str
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure with the title is made when omitted.
    figsize : (float, float), optional
        Inches of a new figure.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    InvalidInput
        If there is no line, an array does not fit, or a share exceeds 1.
    MissingDependency
        If matplotlib is not installed.
    """
    if not shares:
        raise InvalidInput("`shares` is empty; at least one line is needed.")
    grid, order = positive_grid(values)
    known = {k: series(f"shares[{k!r}]", v, grid.size)[order] for k, v in shares.items()}
    for name, share in known.items():
        if share.max() > 1 + 1e-9:
            raise InvalidInput(f"`shares[{name!r}]` reaches {share.max():g}, beyond 1.")
    drawing = canvas(ax, figsize, 3.2)
    axes = drawing.axes[0, 0]
    for index, (name, share) in enumerate(known.items()):
        dash, _, color = LINES[index % len(LINES)]
        axes.plot(grid, share, linestyle=dash, marker=MARKS[index % len(MARKS)], color=color,
                  markersize=4, label=name)
    axes.set_xscale("log")
    axes.set_ylim(-0.02, 1.02)
    axes.yaxis.set_major_formatter("{x:.0%}")
    axes.set_xlabel(f"{parameter} (logarithmic scale)")
    axes.set_ylabel("share of terms decided")
    axes.grid(alpha=0.3)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    drawing.title(title)
    return drawing.figure


def three_ways(
    seconds: Mapping[str, float],
    margins: ArrayLike,
    kept: int,
    *,
    title: str = "The same optimum, with and without screening",
    ax: Sequence[Axes] | None = None,
    figsize: tuple[float, float] | None = None,
) -> Figure:
    """Seconds of several ways to one answer, and where the terms lie there.

    Parameters
    ----------
    seconds : mapping of str to float
        Of each way, positive.
    margins : array_like, shape (n,)
        ``y_i (<x_i, w> + b)`` at the optimum of a hinge loss, whose kink is at 1.
    kept : int
        Terms that were solved for.
    title, ax, figsize
        As in `lines`; `ax` are two.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    InvalidInput
        If there is no way, a time is not positive, or a margin is not finite.
    MissingDependency
        If matplotlib is not installed.
    """
    times = np.array(list(seconds.values()), dtype=float)
    if not times.size or not (np.isfinite(times) & (times > 0)).all():
        raise InvalidInput("`seconds` needs at least one way, and positive times.")
    at = np.array(margins, dtype=float)
    if at.ndim != 1 or not at.size or not np.isfinite(at).all():
        raise InvalidInput("`margins` needs one finite number for every term.")
    drawing = canvas(ax, figsize, 2.4, 9.6, (1, 2), width_ratios=(1, 1.4))
    left, right = drawing.axes[0]
    places = np.arange(times.size)[::-1]
    bars = left.barh(places, times, color=[STYLES[0][0], *[STYLES[2][0]] * (times.size - 1)],
                     edgecolor=INK, linewidth=0.8, height=0.6)
    left.bar_label(bars, [f"{v:.3g} s" for v in times], padding=4)
    left.set_yticks(places, list(seconds))
    left.set_xlim(0.0, 1.3 * times.max())
    left.set_xlabel("CPU seconds")
    low, high = np.quantile(at, [0.001, 0.999])
    edges = np.linspace(min(low, 0.9), max(high, 1.1), 80)
    edges = np.sort(np.append(edges, 1.0))
    for where, (fill, hatch), word in (
        (at < 1.0, STYLES[0], "loss on its slope: one linear term for all"),
        (at >= 1.0, STYLES[1], "loss 0: left out"),
    ):
        counts, _ = np.histogram(np.clip(at[where], edges[0], edges[-1]), edges)
        right.stairs(counts, edges, fill=True, facecolor=fill, hatch=hatch, edgecolor=INK,
                     linewidth=0.0, label=word)
    right.axvline(1.0, color=LINES[1][2], linewidth=2.5,
                  label=f"at the kink: {kept:,} of {at.size:,} solved for")
    right.set_xlabel("margin of the sample at the optimum")
    right.set_ylabel("samples")
    right.yaxis.set_major_formatter("{x:,.0f}")
    legend_above(right, columns=1)
    drawing.title(title)
    return drawing.figure


def left_out(
    low: ArrayLike, high: ArrayLike, refitted: ArrayLike, *, classification: bool = True,
    ax: Axes | None = None, figsize: tuple[float, float] | None = None,
) -> Figure:
    """Intervals of left-out margins or residuals, sorted by their middle.

    Parameters
    ----------
    low, high : array_like, shape (n,)
    refitted : array_like of bool, shape (n,)
        Terms that were solved again; drawn as points.
    classification : bool
        Whether the numbers are margins, right where positive, or residuals.
    ax, figsize
        As in `lines`.

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
    drawing = canvas(ax, figsize, 3.0)
    axes = drawing.axes[0, 0]
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
    legend_above(axes)
    return drawing.figure


def surviving(
    largest: ArrayLike, size: float, norm: str, *, ax: Axes | None = None,
    figsize: tuple[float, float] | None = None,
) -> Figure:
    """The share of the predictions that no weights within a size can change, over that size.

    Parameters
    ----------
    largest : array_like, shape (m,)
        The largest size for which each prediction is certain.
    size : float
        The one that was asked about, marked.
    norm : str
        Of the set of weights, for the axis.
    ax, figsize
        As in `lines`.

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
    drawing = canvas(ax, figsize, 2.6)
    axes = drawing.axes[0, 0]
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
    legend_above(axes)
    return drawing.figure


# -- features and samples together: maps over two parameters, totals, cost along a path ------------

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
    ax: Axes | None = None,
    figsize: tuple[float, float] | None = None,
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
    ax, figsize
        As in `lines`.

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
    share = _share_map("rates", rates, by_y, by_x, "`up` and `across`")
    drawing = canvas(ax, figsize, 3.4)
    axes = drawing.axes[0, 0]
    drawn = _map(axes, x, y, share)
    if min(share.shape) > 1:
        _lines(axes, x, y, share)
    axes.set(xscale="log", yscale="log", xlabel=f"{xlabel} (logarithmic scale)",
             ylabel=f"{ylabel} (logarithmic scale)")
    if falling:
        axes.invert_yaxis()
    _scale(drawing.figure.colorbar(drawn, ax=axes, label="share of terms"))
    drawing.title(title)
    return drawing.figure


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
    ax: Sequence[Axes] | None = None,
    figsize: tuple[float, float] | None = None,
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
    ax, figsize
        As in `lines`; `ax` are one a panel.

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
        name: [
            None if m is None
            else _share_map(f"rates[{name!r}]", m, by_y, by_x, "`gaps` and `values`")
            for m in row
        ]
        for name, row in rates.items()
    }
    drawing = canvas(ax, figsize, 2.7 * len(maps) - 0.8, 10.4, (len(maps), 3))
    heads = ("one side alone", "added by both", "proven to stay")
    drawn: Any = None
    for axes_row, (name, row) in zip(drawing.axes, maps.items(), strict=True):
        for axes, shares, head in zip(axes_row, row, heads, strict=True):
            axes.set_title(head, fontsize=11)
            axes.set(xscale="log", xlabel=parameter)
            if shares is None:
                _counts(axes, x, lines)
                lines = {}
                continue
            drawn = _map(axes, x, y, shares)
            axes.set(yscale="log", ylabel=f"{name}\nrelative gap")
            axes.invert_yaxis()
            done = np.isnan(shares)
            if head == heads[1] and row[0] is not None:
                done |= row[0] >= ENOUGH
            _hatch(axes, x, y, done)
    if drawn is not None:
        _scale(drawing.figure.colorbar(
            drawn, ax=drawing.axes, label="share of what can be decided", shrink=0.7
        ))
    drawing.title(title)
    if drawing.own:
        words = "hatched: nothing to decide, or 95 % decided by one side alone"
        drawing.figure.supxlabel(words, fontsize=9)
    return drawing.figure


def _share_map(name: str, given: ArrayLike, by_y: Any, by_x: Any, asking: str) -> Floats:
    """`given` as shares in the order of both grids; `asking` names the arguments they are from."""
    share = np.array(given, dtype=float)
    if share.shape != (len(by_y), len(by_x)):
        raise InvalidInput(
            f"`{name}` has shape {share.shape}; {asking} ask for {(len(by_y), len(by_x))}."
        )
    if ((share < 0) | (share > 1)).any():
        raise InvalidInput(f"`{name}` are shares; an entry lies outside [0, 1].")
    return share[np.ix_(by_y, by_x)]


def _map(axes: Axes, x: Floats, y: Floats, share: Floats) -> Any:
    """Shares as greys, a quarter of the scale left out at its dark end; NaN stays white."""
    known = np.ma.masked_invalid(share)
    return axes.pcolormesh(bar_edges(x), bar_edges(y), known, cmap="Greys", vmin=0.0, vmax=1.3)


def _scale(bar: Any) -> None:
    """A bar of colours from 0 to 100 %."""
    bar.ax.set_ylim(0.0, 1.0)
    bar.ax.yaxis.set_major_formatter("{x:.0%}")


def _hatch(axes: Axes, x: Floats, y: Floats, where: Any) -> None:
    """Hatch the cells of a grid `where` a mask says so."""
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
    ax: Axes | None = None,
    figsize: tuple[float, float] | None = None,
) -> Figure:
    """Bars of the total time of each way on each set, on a logarithmic axis.

    As in Fig. 3 of Shibagaki et al. 2016, see `both_sides`.

    Parameters
    ----------
    seconds : mapping of str to mapping of str to float
        For each set, the positive seconds of each way; all sets name the same ways.
    title, ylabel : str
    ax, figsize
        As in `lines`.

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
    drawing = canvas(ax, figsize, 2.6, max(4.8, 1.2 + 1.6 * len(sets)))
    axes = drawing.axes[0, 0]
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
    legend_above(axes, columns=4)
    drawing.title(title)
    return drawing.figure


def cost_along(
    values: ArrayLike,
    runs: Mapping[str, tuple[ArrayLike, ArrayLike]],
    *,
    title: str = "Cost along the path",
    parameter: str = "lambda",
    steps: str = "sweeps",
    ax: Sequence[Axes] | None = None,
    figsize: tuple[float, float] | None = None,
) -> Figure:
    """Optimisation steps and seconds of every solve along a path.

    As in Fig. 4 of Shibagaki et al. 2016, see `both_sides`.

    Parameters
    ----------
    values : array_like, shape (p,)
        Of the parameter.
    runs : mapping of str to (steps, seconds)
        Two series of shape (p,) for each way.
    title, parameter, steps : str
    ax, figsize
        As in `lines`; `ax` are two.

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
    drawing = canvas(ax, figsize, 3.8, shape=(2, 1), sharex=True)
    top, bottom = drawing.axes[:, 0]
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
        plain_decades(axes.xaxis)
        axes.set_xlim(bar_edges(x)[-1], bar_edges(x)[0])
    legend_above(top, columns=4)
    drawing.title(title)
    return drawing.figure
