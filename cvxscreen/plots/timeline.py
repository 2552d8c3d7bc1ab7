"""Kept terms and certified gap against time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from cvxscreen.errors import InvalidInput
from cvxscreen.plots.style import LINES, Floats, empty_figure, legend_above

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_GAP_FLOOR = 1e-17


def _run(name: str, seconds: ArrayLike, kept: ArrayLike, gaps: ArrayLike) -> Floats:
    """One run as an array (3, rounds)."""
    try:
        run = np.array([seconds, kept, gaps], dtype=float)
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
    runs: Mapping[str, tuple[ArrayLike, ArrayLike, ArrayLike]],
    *,
    title: str = "Kept terms and certified gap during the solve",
) -> Figure:
    """Two panels over time: terms in the reduced problem, and the relative gap on the full one.

    Parameters
    ----------
    runs : mapping of str to (seconds, kept, gaps)
        For each run three sequences of the same length, one entry a round: time since the start,
        terms of the reduced problem, relative gap after the round (infinite before the first
        point).
    title : str

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
    known = {name: _run(name, *run) for name, run in runs.items()}
    figure = empty_figure(3.8)
    top, bottom = figure.subplots(2, 1, sharex=True)
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
    top.set_xlim(left=0)
    top.set_ylabel("terms kept")
    top.yaxis.set_major_formatter("{x:,.0f}")
    bottom.set_yscale("log")
    bottom.set_ylabel("relative gap")
    bottom.set_xlabel("time since the start (ms)")
    for axes in (top, bottom):
        axes.grid(alpha=0.3)
    legend_above(top, *top.get_legend_handles_labels())
    figure.suptitle(title)
    return figure
