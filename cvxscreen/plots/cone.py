"""A plane through the cone of 2 x 2 metrics, with the spheres that hold the optimum.

A symmetric 2 x 2 matrix is a point of a space of three dimensions, where the positive semidefinite
ones are a round cone. The plane through its axis and the optimum cuts it in a right angle and every
sphere in a circle.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from cvxscreen.errors import InvalidInput
from cvxscreen.plots.style import INK, STYLES, Floats, empty_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    title : str

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

    figure = empty_figure(4.6, 6.8)
    from matplotlib.patches import Circle, Polygon

    axes = figure.subplots()
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
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    figure.suptitle(title)
    return figure
