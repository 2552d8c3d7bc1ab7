"""What the pictures share: an empty figure, greys and hatches, checks, a file on disk.

A picture is written whole or not at all.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cvxscreen._support.files import written_whole
from cvxscreen._support.validation import file_path
from cvxscreen.errors import InvalidInput, MissingDependency, quoted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure


Floats = NDArray[np.float64]

# Fill, hatch: told apart by lightness and by hatch alone, so also in greyscale and by every eye.
STYLES = (
    ("#6d9dc5", "////"),
    ("#f8d2a0", "...."),
    ("#7fb285", "\\\\\\\\"),
    ("#8d6a9f", "xxxx"),
    ("#d9d375", "++++"),
    ("#5c5c5c", "oo"),
)
INK = "#1a1a1a"

# Line, marker, colour.
LINES = (("-", "o", "#1a1a1a"), ("--", "s", "#c0561b"), (":", "^", "#3f6f9f"),
         ("-.", "D", "#7fb285"))


def empty_figure(height: float, width: float = 7.2) -> Figure:
    """Return an empty figure with room for panels of `height` inches in all.

    The inches are for letters of ten points; larger ones get a larger figure, lest a legend be cut.
    """
    try:
        from matplotlib import rcParams
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingDependency(
            'Pictures need matplotlib: pip install "cvxscreen[plot]"'
        ) from error
    scale = float(rcParams["font.size"]) / 10.0
    figure: Any = Figure(figsize=(scale * width, scale * (1.5 + height)), layout="constrained")
    figure._repr_png_ = partial(_png, figure)
    return figure


def _png(figure: Figure) -> bytes:
    """The figure as notebooks show it, which know only figures of pyplot by themselves."""
    drawn = BytesIO()
    figure.savefig(drawn, format="png", dpi=100)
    return drawn.getvalue()


@dataclass(frozen=True)
class Canvas:
    """Where a picture is drawn: a new figure, or axes of the caller's.

    A title, and what is written outside the panels, belong to a figure of our own; on the axes of
    somebody else there is only what the axes hold.
    """

    figure: Figure
    axes: NDArray[Any]
    own: bool

    def title(self, text: str) -> None:
        """Write the title over all panels of a new figure."""
        if self.own:
            self.figure.suptitle(text)

    def legend_below(self, handles: Sequence[Any], columns: int) -> None:
        """One legend under all panels; under the last one where the axes were given."""
        if self.own:
            self.figure.legend(handles=handles, loc="outside lower center", ncols=columns,
                               frameon=False)
        else:
            self.axes.flat[-1].legend(handles=handles, loc="upper center", frameon=False,
                                      bbox_to_anchor=(0.5, -0.15), ncols=columns)


def canvas(
    given: Axes | Sequence[Axes] | None,
    figsize: tuple[float, float] | None,
    height: float,
    width: float = 7.2,
    shape: tuple[int, int] = (1, 1),
    **layout: Any,
) -> Canvas:
    """The axes to draw on, as an array of `shape`: those given, or those of a new figure.

    `height` is that of the panels, `layout` goes to `Figure.subplots`.

    Raises
    ------
    InvalidInput
        If something else than axes is given, or not as many as there are panels.
    """
    figure = empty_figure(height, width)
    if given is None:
        if figsize is not None:
            figure.set_size_inches(*figsize)
        return Canvas(figure, figure.subplots(*shape, squeeze=False, **layout), own=True)
    from matplotlib.axes import Axes

    axes = np.array([given] if isinstance(given, Axes) else given, dtype=object).ravel()
    count = shape[0] * shape[1]
    if len(axes) != count or not all(isinstance(one, Axes) for one in axes):
        wanted = "an `Axes`" if count == 1 else f"a sequence of {count} `Axes`, one a panel"
        raise InvalidInput(f"`ax` is {quoted(given)}; this picture needs {wanted}.")
    found: Any = axes[0].get_figure(root=True)
    return Canvas(found, axes.reshape(shape), own=False)


def series(argument: str, given: ArrayLike, size: int) -> Floats:
    """Return `given` as an array with one non-negative entry per value of the path."""
    array = np.array(given, dtype=float)
    if array.shape != (size,):
        raise InvalidInput(f"`{argument}` has shape {array.shape}; `values` asks for ({size},).")
    if not (array >= 0).all():
        raise InvalidInput(f"`{argument}` holds an entry that is negative or not a number.")
    return array


def positive_grid(values: ArrayLike) -> tuple[Floats, NDArray[np.intp]]:
    """Return the sorted grid and the order that sorts it."""
    grid = np.array(values, dtype=float)
    if grid.ndim != 1 or grid.size == 0:
        raise InvalidInput(f"`values` has shape {grid.shape}; a path needs one axis and a point.")
    if not (np.isfinite(grid).all() and (grid > 0).all()):
        raise InvalidInput("`values` must be positive and finite: they go on a logarithmic axis.")
    order = np.argsort(grid)
    if (np.diff(grid[order]) == 0).any():
        raise InvalidInput("`values` holds the same value twice.")
    return grid[order], order


def bar_edges(grid: Floats) -> Floats:
    """Return bar edges: geometric means of neighbours, the outer bars as wide as they reach in."""
    if grid.size == 1:
        return np.array([grid[0] / 2, grid[0] * 2])
    inner = np.sqrt(grid[:-1]) * np.sqrt(grid[1:])
    return np.concatenate([[grid[0] ** 2 / inner[0]], inner, [grid[-1] ** 2 / inner[-1]]])


def plain_decades(axis: Axis) -> None:
    """Mark a logarithmic axis at 1, 2 and 5 times the powers of ten, in plain numbers."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


def legend_above(
    axes: Axes, lines: Sequence[Any] | None = None, title: str = "", columns: int = 3
) -> None:
    """Put the legend of a panel, or of the `lines` given, over it, where it hides nothing."""
    handles = axes.get_legend_handles_labels()[0] if lines is None else lines
    axes.legend(
        handles=handles, title=title, loc="lower center", bbox_to_anchor=(0.5, 1.0),
        ncols=columns, frameon=False,
    )


def save(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """Write `figure` to `path`, whole or not at all.

    The picture is drawn in memory, written to a temporary file beside its destination and then
    moved there in one step: a failure leaves the destination as it was.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        The picture.
    path : path
        Destination; its suffix (``.png``, ``.pdf``, ``.svg`` ...) chooses the format.

    Returns
    -------
    Path
        The destination.

    Raises
    ------
    InvalidInput
        If the suffix names no known format, or the folder does not exist.
    """
    target = writable(path)
    form = target.suffix.removeprefix(".").lower()
    from matplotlib import rc_context

    drawn = BytesIO()
    with rc_context({"pdf.fonttype": 42, "ps.fonttype": 42}):  # letters that journals can embed
        figure.savefig(drawn, format=form, dpi=150)
    with written_whole(target) as stream:
        stream.write(drawn.getvalue())
    return target


def writable(path: str | os.PathLike[str], name: str = "path") -> Path:
    """`path` if a picture can be written there, asked before the work that leads to the picture.

    Messages call it `name`.

    Raises
    ------
    InvalidInput
        If the suffix names no known format, or the folder does not exist.
    MissingDependency
        If matplotlib is not installed.
    """
    target = file_path(name, path)
    known = empty_figure(1.0).canvas.get_supported_filetypes()
    if target.suffix.removeprefix(".").lower() not in known:
        raise InvalidInput(
            f"`{name}` ends in {target.suffix!r}; choose one of: "
            f"{', '.join(f'.{name}' for name in sorted(known))}."
        )
    if not target.parent.is_dir():
        raise InvalidInput(f"`{name}` lies in {target.parent}, which is not a folder.")
    return target
