"""Where a region lies among what it decides: samples, kinks, the cone of 2 x 2 metrics.

`sample_plane` and `weight_plane` show a classifier without intercept on two features, the hinge's
kink at margin 1: which samples a ball decides, and how the ball sits among the samples' kinks.

`cone_plane`: a symmetric 2 x 2 matrix is a point of a space of three dimensions, where the positive
semidefinite ones are a round cone. The plane through its axis and the optimum cuts it in a right
angle and every sphere in a circle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from cvxscreen._support.validation import array
from cvxscreen.errors import InvalidInput
from cvxscreen.plots.style import INK, STYLES, Floats, canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_MESH = 400
"""Points along each axis of the grid that regions are drawn from."""
_LINES = ("-", "--", ":", "-.")


def _plane(argument: str, given: ArrayLike) -> Floats:
    """`given` as points of the plane."""
    points = array(argument, given)
    if points.ndim != 2 or points.shape[1] != 2 or not len(points):
        raise InvalidInput(f"`{argument}` has shape {points.shape}; points (n, 2) are needed.")
    if not np.isfinite(points).all():
        raise InvalidInput(f"`{argument}` holds NaN or infinity.")
    return points


def _ball(name: str, centre: ArrayLike, radius: float) -> tuple[Floats, float]:
    """A ball of the plane."""
    middle = array("centre", centre)
    if middle.shape != (2,) or not np.isfinite(middle).all():
        raise InvalidInput(f"{name}: the centre has shape {middle.shape}; (2,) is needed.")
    if not (np.isfinite(radius) and radius >= 0):
        raise InvalidInput(f"{name}: the radius is {radius}; a finite number >= 0 is needed.")
    return middle, float(radius)


def _limits(points: Floats) -> tuple[tuple[float, float], tuple[float, float]]:
    low, high = points.min(axis=0), points.max(axis=0)
    room = 0.08 * np.maximum(high - low, 1e-12)
    return (low[0] - room[0], high[0] + room[0]), (low[1] - room[1], high[1] + room[1])


def sample_plane(
    X: ArrayLike,
    y: ArrayLike,
    centre: ArrayLike,
    radius: float,
    *,
    w: ArrayLike | None = None,
    title: str = "Samples that are decided before training",
    ax: Sequence[Axes] | None = None,
    figsize: tuple[float, float] | None = None,
) -> Figure:
    """Where a sample is decided by the ball that the optimum lies in (Ogawa et al. 2014, Fig. 1).

    One panel a class. A sample z of class y is proven on the zero piece of the hinge where
    ``y <z, c> - r ||z|| > 1`` and on its linear piece where ``y <z, c> + r ||z|| < 1``; those parts
    of the plane are hatched, whether or not there is a sample.

    Parameters
    ----------
    X : array_like, shape (n, 2)
        Samples.
    y : array_like, shape (n,)
        Labels -1/+1.
    centre, radius : array_like, shape (2,), and float
        The ball.
    w : array_like, shape (2,), optional
        The optimum, drawn as the line ``<w, z> = 0``.
    title, ax, figsize
        As in `lines`; `ax` are two.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    InvalidInput
        If an array does not fit.
    MissingDependency
        If matplotlib is not installed.
    """
    points = _plane("X", X)
    labels = array("y", y)
    if labels.shape != (len(points),) or not np.isin(labels, (-1.0, 1.0)).all():
        raise InvalidInput(f"`y` must hold {len(points)} labels -1 or +1.")
    middle, r = _ball("the ball", centre, radius)
    drawing = canvas(ax, figsize, 4.0, 9.0, (1, 2), sharex=True, sharey=True)
    panels = drawing.axes[0]
    handles: list[Any] = []
    for axes, label in zip(panels, (1.0, -1.0), strict=True):
        handles = _class_panel(axes, points, labels == label, label, (middle, r))
        if w is not None:
            handles += _boundary(axes, array("w", w, (2,)), points)
        axes.set_xlabel("feature 1")
    panels[0].set_ylabel("feature 2")
    drawing.legend_below(handles, len(handles) if drawing.own else 2)
    drawing.title(title)
    return drawing.figure


def _class_panel(
    axes: Axes, points: Floats, own: Any, label: float, ball: tuple[Floats, float]
) -> list[Any]:
    """One class: the decided parts of the plane, and its samples."""
    from matplotlib.patches import Patch

    middle, r = ball

    def span(z1: Any, z2: Any) -> tuple[Any, Any]:
        centre = label * (z1 * middle[0] + z2 * middle[1])
        reach = r * np.hypot(z1, z2)
        return centre - reach, centre + reach

    xlim, ylim = _limits(points)
    z1, z2 = np.meshgrid(np.linspace(*xlim, _MESH), np.linspace(*ylim, _MESH))
    low, high = span(z1, z2)
    patches = []
    for value, name, (fill, hatch) in (
        (low - 1.0, "proven: loss 0", STYLES[0]), (1.0 - high, "proven: linear piece", STYLES[1]),
    ):
        if (value > 0).any():
            drawn = axes.contourf(
                z1, z2, value, levels=[0.0, np.inf], colors=[fill], hatches=[hatch], alpha=0.55
            )
            drawn.set_edgecolor(INK)
            drawn.set_linewidth(0.0)
        patches.append(Patch(facecolor=fill, hatch=hatch, edgecolor=INK, alpha=0.55, label=name))
    low, high = span(*points.T)
    decided = (low > 1.0) | (high < 1.0)
    marker = "o" if label > 0 else "s"
    axes.plot(*points[own & decided].T, marker, markersize=4, markerfacecolor="white",
              markeredgecolor=INK, markeredgewidth=0.6)
    axes.plot(*points[own & ~decided].T, marker, markersize=4, color=INK)
    share = float(np.mean(decided[own])) if own.any() else 0.0
    text = f"class {label:+.0f}: {share:.0%} of {int(own.sum())} decided"
    axes.set_title(text, fontsize="medium")
    axes.set_xlim(*xlim)
    axes.set_ylim(*ylim)
    axes.set_aspect("equal")
    hollow, full = (
        axes.plot([], [], "o", color=INK, markerfacecolor=c, markersize=4, label=text)[0]
        for c, text in (("white", "decided"), (INK, "left for the solver"))
    )
    return [*patches, hollow, full]


def _boundary(axes: Axes, w: Floats, points: Floats) -> list[Any]:
    """The optimal classifier's line through the origin."""
    reach = 2.0 * float(np.abs(points).max())
    along = np.array([-w[1], w[0]]) / max(float(np.hypot(*w)), 1e-300) * reach
    ends = np.array([-along, along])
    return axes.plot(*ends.T, "-", color="#1b6e3c", linewidth=1.8, label="optimal classifier")


def weight_plane(
    balls: Mapping[str, tuple[ArrayLike, float]],
    rows: ArrayLike,
    *,
    optimum: ArrayLike | None = None,
    title: str = "What the region decides",
    ax: Axes | None = None,
    figsize: tuple[float, float] | None = None,
) -> Figure:
    """Balls in the plane of weights, and the kink of every sample, the line ``<a_i, w> = 1``.

    A sample whose line does not meet the last ball is decided: whichever point of the ball is
    the optimum, its margin is on the same side of the kink.

    Parameters
    ----------
    balls : mapping of str to (centre, radius)
        Regions that hold the optimum, drawn in this order.
    rows : array_like, shape (n, 2)
        The rows ``a_i = y_i x_i``.
    optimum : array_like, shape (2,), optional
    title, ax, figsize
        As in `lines`.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    InvalidInput
        If an array does not fit or there is no ball.
    MissingDependency
        If matplotlib is not installed.
    """
    lines = _plane("rows", rows)
    if not balls:
        raise InvalidInput("`balls` is empty; at least one region is needed.")
    known = {name: _ball(f"balls[{name!r}]", *ball) for name, ball in balls.items()}
    drawing = canvas(ax, figsize, 5.2, 6.4)
    axes = drawing.axes[0, 0]
    from matplotlib.patches import Circle

    corners = np.concatenate([[c - r, c + r] for c, r in known.values()])
    wide = float(np.ptp(corners, axis=0).max()) * 0.62
    middle = 0.5 * (corners.min(axis=0) + corners.max(axis=0))
    xlim, ylim = ((m - wide, m + wide) for m in middle)
    centre, radius = list(known.values())[-1]
    sizes = np.hypot(*lines.T)
    met = np.abs(lines @ centre - 1.0) <= radius * sizes
    for row, size, cut in zip(lines, sizes, met, strict=True):
        if size > 0:
            foot, along = row / size**2, np.array([-row[1], row[0]]) / size
            reach = np.linalg.norm(foot - middle) + 3.0 * wide
            ends = np.array([foot - reach * along, foot + reach * along])
            axes.plot(*ends.T, color=INK if cut else "#8c8c8c", linewidth=1.2 if cut else 0.7,
                      linestyle="-" if cut else "--", zorder=2.5)
    for index, (name, (c, r)) in enumerate(known.items()):
        fill, _ = STYLES[index % len(STYLES)]
        axes.add_patch(Circle(
            tuple(c), r, facecolor=fill, alpha=0.35, edgecolor=INK, zorder=2,
            linestyle=_LINES[index % len(_LINES)], linewidth=1.6, label=f"{name}, radius {r:.3g}",
        ))
    if optimum is not None:
        axes.plot(*np.array(optimum, dtype=float), "*", color=INK, markersize=12, zorder=3,
                  label="optimum", linestyle="none")
    axes.plot([], [], "-", color=INK, linewidth=1.4, label=f"kink meets it: {int(met.sum())}")
    axes.plot([], [], "--", color="#8c8c8c", label=f"decided: {int((~met).sum())}")
    axes.set(xlim=xlim, ylim=ylim, xlabel="weight 1", ylabel="weight 2", aspect="equal")
    drawing.legend_below(axes.get_legend_handles_labels()[0], 3 if drawing.own else 2)
    drawing.title(title)
    return drawing.figure


_CONE_LINES = ("-", "--", ":", "-.", (0, (6, 2, 1, 2, 1, 2)), (0, (1, 3)))


def _symmetric(name: str, given: ArrayLike) -> Floats:
    """`given` as a symmetric 2 x 2 matrix."""
    matrix = np.array(given, dtype=float)
    if matrix.shape == (4,):
        matrix = matrix.reshape(2, 2)
    if matrix.shape != (2, 2) or not np.isfinite(matrix).all():
        raise InvalidInput(f"{name} has shape {matrix.shape}; a finite 2 x 2 matrix is needed.")
    return 0.5 * (matrix + matrix.T)


def cone_plane(
    balls: Mapping[str, tuple[ArrayLike, float]],
    optimum: ArrayLike,
    *,
    title: str = "Spheres around the optimal metric",
    ax: Axes | None = None,
    figsize: tuple[float, float] | None = None,
) -> Figure:
    """Spheres of 2 x 2 metrics and the cone, cut by the plane of its axis and the optimum.

    The coordinates of M are ``<M, I>/sqrt(2)`` and ``<M, E>``, E the direction of the optimum's
    traceless part; both are lengths in the Frobenius norm. Metrics are where
    ``|<M, E>| <= <M, I>/sqrt(2)``.

    Parameters
    ----------
    balls : mapping of str to (centre, radius)
        Centres are 2 x 2 matrices (or their four entries), radii in the Frobenius norm. The circle
        that is drawn is the sphere's section; one that misses the plane is named without a circle.
    optimum : array_like, shape (2, 2)
    title, ax, figsize
        As in `lines`.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    InvalidInput
        If a matrix does not fit, a radius is negative, or there is no ball.
    MissingDependency
        If matplotlib is not installed.
    """
    if not balls:
        raise InvalidInput("`balls` is empty; at least one region is needed.")
    best = _symmetric("`optimum`", optimum)
    axis = np.eye(2) / np.sqrt(2.0)
    across = best - np.sum(best * axis) * axis
    size = float(np.linalg.norm(across))
    across = across / size if size > 1e-12 else np.diag([1.0, -1.0]) / np.sqrt(2.0)

    def place(matrix: Floats) -> Floats:
        return np.array([np.sum(matrix * axis), np.sum(matrix * across)])

    drawing = canvas(ax, figsize, 4.6, 6.8)
    from matplotlib.patches import Circle, Polygon

    axes = drawing.axes[0, 0]
    corners, rings = [place(best)], []
    for index, (name, (centre, radius)) in enumerate(balls.items()):
        matrix = _symmetric(f"the centre of balls[{name!r}]", centre)
        if not (np.isfinite(radius) and radius >= 0):
            raise InvalidInput(f"the radius of balls[{name!r}] is {radius}; it must be >= 0.")
        middle = place(matrix)
        off = float(np.linalg.norm(matrix - middle[0] * axis - middle[1] * across))
        label = f"{name}, radius {radius:.3g}" + ("" if off < radius else " (misses the plane)")
        inside = np.sqrt(max(radius**2 - off**2, 0.0))
        fill, _ = STYLES[index % len(STYLES)]
        rings.append(Circle(
            tuple(middle), inside, facecolor="none", edgecolor=INK, linewidth=1.6, label=label,
            linestyle=_CONE_LINES[index % len(_CONE_LINES)],
        ))
        axes.add_patch(Circle(tuple(middle), inside, facecolor=fill, alpha=0.2, linewidth=0))
        axes.plot(*middle, "+", color=INK, markersize=7)
        corners += [middle - inside, middle + inside]
    low, high = np.min(corners, axis=0), np.max(corners, axis=0)
    room = 0.08 * float(np.max(high - low)) + 1e-12
    reach = 2.0 * float(np.abs([low, high]).max()) + 1.0
    axes.add_patch(Polygon(
        [(0, 0), (reach, reach), (reach, -reach)], facecolor="#e4e4e4", edgecolor=INK, zorder=0,
        label="metrics (positive semidefinite)",
    ))
    for ring in rings:
        axes.add_patch(ring)
    axes.plot(*place(best), "*", color=INK, markersize=12, linestyle="none", label="optimum")
    axes.set(
        xlim=(low[0] - room, high[0] + room), ylim=(low[1] - room, high[1] + room), aspect="equal",
        xlabel="along the axis of the cone: trace / sqrt(2)",
        ylabel="across, towards the optimum",
    )
    drawing.legend_below(axes.get_legend_handles_labels()[0], 2)
    drawing.title(title)
    return drawing.figure
