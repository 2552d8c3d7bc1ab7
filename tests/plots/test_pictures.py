"""The pictures beyond the path: what they draw is what the arrays say, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread

import cvxscreen
from cvxscreen import plots, screen, solve, svm
from cvxscreen.bounds import dvi_ball
from cvxscreen.datasets import toy2
from cvxscreen.errors import InvalidInput
from cvxscreen.plots import cone_plane, heat, kept_and_gap, sample_plane, save, weight_plane


@pytest.fixture(scope="module")
def screened():
    """Samples in the plane, a ball for C = 0.6 from C = 0.5, and the verdict it gives."""
    X, y = toy2()
    X, y = X[::20], y[::20]
    before = solve(svm(X, y, C=0.5), tol=1e-10)
    problem = svm(X, y, C=0.6)
    return X, y, dvi_ball(problem, before.point()), screen(problem, reference=before, bound="dvi")


def count(axes: Any, colour: str) -> int:
    """Samples drawn with that fill."""
    return sum(
        len(line.get_xdata()) for line in axes.lines
        if line.get_marker() in "os" and line.get_markerfacecolor() == colour
    )


def test_sample_plane_shows_the_verdict(screened, tmp_path) -> None:
    X, y, ball, verdict = screened
    figure = sample_plane(X, y, ball.centre, ball.radius, w=ball.centre, title="A title")
    assert figure.get_suptitle() == "A title"
    for axes, label in zip(figure.axes, (1.0, -1.0), strict=True):
        decided = ~verdict.undecided & (y == label)
        assert count(axes, "white") == decided.sum()
        assert axes.get_xlabel() == "feature 1"
        assert f"{decided.sum() / (y == label).sum():.0%}" in axes.get_title()
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts[:2] == ["proven: loss 0", "proven: linear piece"]
    assert imread(save(figure, tmp_path / "a.png")).std() > 0.05


def test_weight_plane_counts_the_kinks_that_meet_the_last_ball(screened, tmp_path) -> None:
    X, y, ball, verdict = screened
    balls = {"wide": (ball.centre, 3 * ball.radius), "tight": (ball.centre, ball.radius)}
    figure = weight_plane(balls, y[:, None] * X, optimum=ball.centre)
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert f"kink meets it: {verdict.undecided.sum()}" in texts
    assert f"decided: {(~verdict.undecided).sum()}" in texts
    assert [round(c.radius, 12) for c in figure.axes[0].patches] == [
        round(3 * ball.radius, 12), round(ball.radius, 12)
    ]
    save(figure, tmp_path / "a.png")


def test_a_row_of_zeros_has_no_kink() -> None:
    figure = weight_plane({"b": ([0.0, 0.0], 1.0)}, [[0.0, 0.0], [5.0, 0.0]])
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert "kink meets it: 1" in texts


def test_cone_plane_cuts_spheres_in_circles(tmp_path) -> None:
    best = np.array([[2.0, 0.5], [0.5, 1.0]])
    off = np.array([[1.0, 0.0], [0.0, -1.0]]) - 2.0 * np.array([[0.0, 1.0], [1.0, 0.0]])
    off *= 0.6 / np.linalg.norm(off)  # at a right angle to the plane: trace 0, <off, best> = -1
    off -= np.sum(off * (best - 1.5 * np.eye(2))) / 1.0 * (best - 1.5 * np.eye(2))
    balls = {"in": (best, 0.3), "beside": (best + off, 1.0), "far": (best + off, 0.01)}
    figure = cone_plane(balls, best, title="T")
    axes, distance = figure.axes[0], np.linalg.norm(off)
    radii = {c.get_label(): c.radius for c in axes.patches if hasattr(c, "radius")}
    assert radii["in, radius 0.3"] == pytest.approx(0.3)
    assert radii["beside, radius 1"] == pytest.approx(np.sqrt(1 - distance**2))
    assert radii["far, radius 0.01 (misses the plane)"] == 0.0
    star = next(line for line in axes.lines if line.get_marker() == "*")
    x, y = star.get_xdata()[0], star.get_ydata()[0]
    low, high = np.linalg.eigvalsh(best)
    assert ((x - y) / np.sqrt(2), (x + y) / np.sqrt(2)) == pytest.approx((low, high))
    assert imread(save(figure, tmp_path / "a.png")).std() > 0.05


def test_heat_puts_every_share_in_its_place(tmp_path) -> None:
    across, up = [1.0, 0.1, 10.0], [2.0, 1.0]
    rates = [[0.5, 0.4, 0.6], [0.2, 0.1, np.nan]]
    figure = heat(across, up, rates, xlabel="C", ylabel="gap", falling=True, title="T")
    axes = figure.axes[0]
    drawn = axes.collections[0].get_array().reshape(2, 3)
    np.testing.assert_array_equal(drawn.filled(-1), [[0.1, 0.2, -1], [0.4, 0.5, 0.6]])
    assert axes.get_xscale() == axes.get_yscale() == "log"
    assert axes.get_ylim()[0] > axes.get_ylim()[1]
    assert axes.get_ylabel() == "gap (logarithmic scale)"
    assert [t.get_text() for t in axes.get_legend().get_texts()] == ["25%", "50%"]
    assert save(figure, tmp_path / "a.png").is_file()


@pytest.mark.table
@pytest.mark.parametrize("share", [0.0, 1.0, np.nan])
def test_heat_without_contrast_can_be_drawn(share: float, tmp_path) -> None:
    figure = heat([1.0, 2.0], [1.0, 2.0], np.full((2, 2), share))
    assert figure.axes[0].get_legend() is None
    save(figure, tmp_path / "a.png")
    save(heat([1.0], [2.0], [[0.5]]), tmp_path / "b.png")


def test_kept_and_gap_draws_both_against_time(tmp_path) -> None:
    runs = {"a": ([0.1, 0.3], [100, 20], [np.inf, 1e-8]), "b": ([0.2], [50], [0.0])}
    top, bottom = kept_and_gap(runs).axes
    np.testing.assert_allclose(top.lines[0].get_xdata(), [0, 100, 300])
    np.testing.assert_allclose(top.lines[0].get_ydata(), [100, 100, 20])
    np.testing.assert_allclose(bottom.lines[0].get_xdata(), [300])
    np.testing.assert_allclose(bottom.lines[1].get_ydata(), [1e-17])
    assert bottom.get_yscale() == "log"
    assert bottom.get_xlabel() == "time since the start (ms)"
    assert len({line.get_linestyle() for line in top.lines}) == 2
    save(kept_and_gap(runs), tmp_path / "a.png")


def test_kept_and_gap_takes_solutions() -> None:
    X, y = cvxscreen.datasets.two_gaussians(200, 3, seed=0)
    found = cvxscreen.solve(cvxscreen.svm(X, y, C=0.1), mode="safe")
    top, bottom = kept_and_gap({"safe": found}).axes
    assert top.lines[0].get_ydata()[1:] == pytest.approx([entry.kept for entry in found.rounds])
    assert bottom.lines[0].get_ydata()[-1] <= 1e-6


@pytest.mark.parametrize(("call", "words"), [
    (lambda: sample_plane([[1.0]], [1.0], [0, 0], 1), r"`X` has shape"),
    (lambda: sample_plane([[1.0, 2.0]], [2.0], [0, 0], 1), "labels -1 or"),
    (lambda: sample_plane([[1.0, np.nan]], [1.0], [0, 0], 1), "NaN"),
    (lambda: sample_plane([[1.0, 2.0]], [1.0], [0.0], 1), "centre"),
    (lambda: sample_plane([[1.0, 2.0]], [1.0], object(), 1), "`centre`"),
    (lambda: sample_plane([[1.0, 2.0]], [1.0], [0, 0], 1, w=[1.0]), "`w` has shape"),
    (lambda: sample_plane([[1.0, 2.0]], [1.0], [0, 0], np.inf), "radius"),
    (lambda: weight_plane({}, [[1.0, 2.0]]), "`balls` is empty"),
    (lambda: weight_plane({"a": ([0, 0], -1)}, [[1.0, 2.0]]), r"balls\['a'\]"),
    (lambda: cone_plane({}, np.eye(2)), "`balls` is empty"),
    (lambda: cone_plane({"a": (np.eye(3), 1)}, np.eye(2)), r"balls\['a'\]"),
    (lambda: cone_plane({"a": (np.eye(2), -1)}, np.eye(2)), "must be >= 0"),
    (lambda: heat([1.0], [1.0, 2.0], [[0.5]]), r"`rates` has shape \(1, 1\)"),
    (lambda: heat([1.0], [1.0], [[1.5]]), "outside"),
    (lambda: heat([-1.0], [1.0], [[0.5]]), "positive"),
    (lambda: kept_and_gap({}), "`runs` is empty"),
    (lambda: kept_and_gap({"a": ([1], [1, 2], [1])}), "differ in length"),
    (lambda: kept_and_gap({"a": 3}), "give a solution"),
    (lambda: kept_and_gap({"a": ([2, 1], [1, 2], [1, 1])}), "must not fall"),
    (lambda: kept_and_gap({"a": ([1], [-1], [1])}), "numbers >= 0"),
])
def test_refuses(call, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        call()


def pictures() -> dict[str, Any]:
    """Every public picture, by its name."""
    grid, share = [0.1, 1.0, 10.0], [0.2, 0.5, 0.9]
    square = np.outer(share, share)
    row = (square, square, square)
    return {
        "rejection": lambda **k: plots.rejection(grid, {"zero": share}, gaps=share, **k),
        "panels": lambda **k: plots.panels(grid, {"a": {"zero": share}, "b": {}}, **k),
        "lines": lambda **k: plots.lines(grid, {"dvi": share}, **k),
        "kept_and_gap": lambda **k: kept_and_gap({"a": ([1, 2], [9, 3], [1, 1e-7])}, **k),
        "three_ways": lambda **k: plots.three_ways({"a": 1.0, "b": 2.0}, grid, 1, **k),
        "left_out": lambda **k: plots.left_out([0.1] * 3, share, [True] * 3, **k),
        "surviving": lambda **k: plots.surviving(share, 0.4, "l2", **k),
        "heat": lambda **k: heat(grid, grid, square, **k),
        "both_sides": lambda **k: plots.both_sides(grid, grid, {"f": row}, {"n": grid}, **k),
        "total_times": lambda **k: plots.total_times({"set": {"a": 1.0, "b": 2.0}}, **k),
        "cost_along": lambda **k: plots.cost_along(grid, {"a": (grid, share)}, **k),
        "sample_plane": lambda **k: sample_plane(np.eye(2), [1, -1], [1, 0], 0.1, **k),
        "weight_plane": lambda **k: weight_plane({"b": ([0, 0], 0.5)}, np.eye(2), **k),
        "cone_plane": lambda **k: cone_plane({"b": (np.eye(2), 0.5)}, np.eye(2), **k),
    }


def test_every_public_picture_is_asked() -> None:
    assert sorted(pictures()) == sorted(set(plots.__all__) - {"save", "writable"})


@pytest.mark.table
@pytest.mark.parametrize("name", pictures())
def test_a_picture_takes_axes_and_a_size(name: str, tmp_path) -> None:
    from matplotlib.figure import Figure

    draw = pictures()[name]
    own = draw(figsize=(5.0, 4.5))
    assert own.get_size_inches() == pytest.approx((5.0, 4.5))
    assert own._repr_png_()[1:4] == b"PNG", "a notebook shows it without pyplot"
    count = {"rejection": 2, "panels": 2, "kept_and_gap": 2, "three_ways": 2, "both_sides": 3,
             "cost_along": 2, "sample_plane": 2}.get(name, 1)
    figure = Figure(figsize=(9.0, 4.0), layout="constrained")
    spare, *given = figure.subplots(1, 1 + count)
    assert draw(ax=given[0] if count == 1 else given) is figure
    assert all(one.has_data() for one in given)
    assert not spare.has_data()
    assert figure.get_suptitle() == "", "the figure is the caller's"
    save(figure, tmp_path / "a.png")
    with pytest.raises(InvalidInput, match=r"`ax` is .*needs"):
        draw(ax=[spare] * (count + 1))


@pytest.mark.table
@pytest.mark.parametrize("name", pictures())
def test_no_legend_is_cut_in_large_letters(name: str) -> None:
    from matplotlib import rc_context

    with rc_context({"font.size": 18}):
        figure = pictures()[name]()
        figure.draw_without_rendering()
    held = [axes.get_legend() for axes in figure.axes] + figure.legends
    for legend in filter(None, held):
        box = legend.get_window_extent()
        assert box.x0 >= 0, box
        assert box.y0 >= 0, box
        assert box.x1 <= figure.bbox.x1, box
        assert box.y1 <= figure.bbox.y1, box


def test_pictures_of_changed_data_take_axes_and_sizes() -> None:
    from matplotlib.figure import Figure

    X, y = cvxscreen.datasets.two_gaussians(60, 3, seed=0)
    found = cvxscreen.solve(cvxscreen.svm(X, y, C=0.1), tol=1e-9)
    for record in (
        cvxscreen.leave_one_out(found), cvxscreen.weight_range(found, X, size=0.1),
    ):
        figure = Figure()
        left, right = figure.subplots(1, 2)
        assert record.plot(ax=right) is figure
        assert right.has_data()
        assert not left.has_data()
        assert record.plot(figsize=(4.0, 3.0)).get_size_inches() == pytest.approx((4.0, 3.0))
