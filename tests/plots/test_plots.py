"""Pictures: they draw what the arrays say, refuse the rest, and are written whole or not at all."""

from __future__ import annotations

import builtins
import os
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.image import imread
from matplotlib.patches import Rectangle

import cvxscreen
from cvxscreen import plots, screen, solve, svm
from cvxscreen.bounds import dvi_ball
from cvxscreen.datasets import toy2
from cvxscreen.errors import InvalidInput, MissingDependency
from cvxscreen.plots import (
    both_sides,
    cone_plane,
    cost_along,
    heat,
    kept_and_gap,
    panels,
    rejection,
    sample_plane,
    save,
    total_times,
    weight_plane,
)

VALUES = np.geomspace(1e-2, 10, 12)
LINEAR = np.linspace(0.5, 0.2, 12)
ZERO = np.linspace(0.1, 0.4, 12)
RATES = {"linear": LINEAR, "zero": ZERO}


def labels(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.get_legend().get_texts()]


def tops(axes: Any) -> list[np.ndarray]:
    """Return the upper edges of the filled bars, from the bottom of the stack."""
    return [patch.get_data().values for patch in axes.patches if patch.get_fill()]


def test_rates_are_stacked_to_one_and_the_rest_is_kept() -> None:
    figure = rejection(VALUES, RATES, title="Toy", parameter="lambda")
    [panel] = figure.axes
    linear, zero, kept = tops(panel)
    assert np.allclose(linear, LINEAR)
    assert np.allclose(zero, LINEAR + ZERO)
    assert np.array_equal(kept, np.ones(12))
    assert labels(panel) == ["linear 35.0%", "zero 25.0%", "kept 40.0%"]
    assert panel.get_ylim() == (0.0, 1.0)
    assert panel.get_xscale() == "log"
    assert panel.get_xlabel() == "lambda (logarithmic scale)"
    assert panel.get_ylabel()
    assert figure.get_suptitle() == "Toy"


def test_pieces_differ_by_hatch_and_by_lightness() -> None:
    [panel] = rejection(VALUES, RATES).axes
    linear, zero, kept = [patch for patch in panel.patches if patch.get_fill()]
    assert len({patch.get_hatch() for patch in (linear, zero, kept)}) == 3
    grey = [np.dot(patch.get_facecolor()[:3], [0.3, 0.59, 0.11]) for patch in (linear, zero, kept)]
    assert np.diff(grey).min() > 0.12


def test_panels_share_their_axes_and_name_their_rates() -> None:
    rules = {"DVI": RATES, "SSNSV": {"linear": 0.5 * LINEAR}, "none": {}}
    figure = panels(VALUES[::-1], rules, columns=2, title="Rules")
    first, second, third, spare = figure.axes
    assert [axes.get_legend().get_title().get_text() for axes in (first, second, third)] == [
        "DVI", "SSNSV", "none"
    ]
    assert np.allclose(tops(first)[0], LINEAR[::-1])
    assert np.allclose(tops(second)[0], 0.5 * LINEAR[::-1])
    assert labels(third) == ["kept 100.0%"]
    assert not spare.get_visible()
    assert figure.get_suptitle() == "Rules"
    with pytest.raises(InvalidInput, match="panels"):
        panels(VALUES, {})
    with pytest.raises(InvalidInput, match=r"rates\['DVI'\].*beyond 1"):
        panels(VALUES, {"DVI": {"linear": LINEAR, "zero": np.ones(12)}})


def test_evidence_gets_a_panel_of_its_own() -> None:
    gaps, kept = np.geomspace(1e-9, 1e-7, 12), np.arange(12) * 10
    top, left, right = rejection(VALUES, RATES, gaps=gaps, kept=kept).axes
    assert np.array_equal(left.lines[0].get_ydata(), gaps)
    assert np.array_equal(right.lines[0].get_ydata(), kept)
    assert left.get_yscale() == "log"
    assert right.get_yscale() == "linear"
    assert left.get_ylabel() == "certified relative gap"
    assert right.get_ylabel() == "terms kept in the solve"
    assert labels(left) == ["relative gap", "kept terms"]
    assert top.get_xlabel() == ""


@pytest.mark.parametrize("given", ["gaps", "kept"])
def test_either_piece_of_evidence_alone(given: str) -> None:
    figure = rejection(VALUES, RATES, **{given: np.full(12, 3.0)})
    assert len(figure.axes) == 2
    assert len(labels(figure.axes[1])) == 1


def test_order_of_the_values_does_not_matter() -> None:
    gaps = np.geomspace(1e-9, 1e-7, 12)
    flipped = {name: rate[::-1] for name, rate in RATES.items()}
    one = rejection(VALUES, RATES, gaps=gaps)
    other = rejection(VALUES[::-1], flipped, gaps=gaps[::-1])
    for first, second in zip(tops(one.axes[0]), tops(other.axes[0]), strict=True):
        assert np.allclose(first, second)
    assert np.array_equal(one.axes[1].lines[0].get_ydata(), other.axes[1].lines[0].get_ydata())


def test_zero_gaps_are_drawn_and_said_and_infinite_ones_left_out() -> None:
    gaps = np.full(12, 1e-8)
    gaps[0], gaps[1] = 0.0, np.inf
    panel = rejection(VALUES, RATES, gaps=gaps).axes[1]
    drawn = panel.lines[0].get_ydata()
    assert drawn[0] == 1e-17
    assert drawn.size == 11
    assert labels(panel) == ["relative gap (0 drawn at 1e-17)"]


@pytest.mark.table
@pytest.mark.parametrize("size", [1, 2, 100])
def test_any_number_of_points_and_pieces_can_be_drawn(size: int, tmp_path: Path) -> None:
    values = np.geomspace(1e-3, 1e3, size) if size > 1 else [1.0]
    rates = {f"piece {k}": np.full(size, 0.1) for k in range(7)}
    figure = rejection(values, rates, gaps=np.zeros(size), kept=np.zeros(size))
    assert imread(save(figure, tmp_path / "a.png")).std() > 0.05


def test_nothing_fixed_and_nothing_proven_can_be_drawn(tmp_path: Path) -> None:
    figure = rejection(VALUES, {}, gaps=np.full(12, np.inf))
    assert labels(figure.axes[0]) == ["kept 100.0%"]
    save(figure, tmp_path / "a.png")


def test_arguments_and_settings_are_left_alone() -> None:
    values, linear = VALUES[::-1].copy(), LINEAR.copy()
    settings = dict(mpl.rcParams)
    rejection(values, {"linear": linear}, gaps=linear, kept=linear)
    assert np.array_equal(values, VALUES[::-1])
    assert np.array_equal(linear, LINEAR)
    assert dict(mpl.rcParams) == settings


@pytest.mark.parametrize(
    ("values", "rates", "evidence", "words"),
    [
        ([], {}, {}, "`values` has shape"),
        ([[1.0]], {}, {}, "`values` has shape"),
        ([0.0, 1.0], {}, {}, "`values` must be positive"),
        ([1.0, np.inf], {}, {}, "`values` must be positive"),
        ([1.0, 1.0], {}, {}, "`values` holds the same value twice"),
        ([1.0, 2.0], {"zero": [0.5]}, {}, r"`rates\['zero'\]` has shape \(1,\)"),
        ([1.0], {"zero": [-0.1]}, {}, r"`rates\['zero'\]` holds an entry that is negative"),
        ([1.0], {"zero": [0.6], "linear": [0.6]}, {}, "`rates` are shares; together .* 1.2"),
        ([1.0], {}, {"gaps": [-1.0]}, "`gaps` holds"),
        ([1.0], {}, {"gaps": [np.nan]}, "`gaps` holds"),
        ([1.0], {}, {"kept": [1, 2]}, "`kept` has shape"),
    ],
)
def test_rates_that_are_refused(values: Any, rates: Any, evidence: Any, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        rejection(values, rates, **evidence)


@pytest.mark.parametrize("suffix", [".png", ".PDF", ".svg"])
def test_save_writes_the_format_of_the_suffix(suffix: str, tmp_path: Path) -> None:
    target = tmp_path / f"path{suffix}"
    assert save(rejection(VALUES, RATES), str(target)) == target
    start = {".png": b"\x89PNG", ".PDF": b"%PDF", ".svg": b"<?xml"}[suffix]
    assert target.read_bytes().startswith(start)
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("name", ["path.xyz", "path", "missing/path.png"])
def test_save_refuses_and_creates_nothing(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="`path`"):
        save(rejection(VALUES, RATES), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("broken", ["savefig", "open", "fsync", "replace"])
def test_save_leaves_the_old_file_when_it_fails(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figure = rejection(VALUES, RATES)
    target = tmp_path / "path.png"
    target.write_bytes(b"old")

    def fail(*_: Any, **__: Any) -> None:
        raise OSError("disk full")

    where: Any = {"savefig": figure, "open": Path, "fsync": os, "replace": Path}[broken]
    monkeypatch.setattr(where, broken, fail)
    with pytest.raises(OSError, match="disk full"):
        save(figure, target)
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == ["path.png"]
    assert target.read_bytes() == b"old"


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.split(".")[0] == "matplotlib":
            raise ModuleNotFoundError(f"No module named {name!r}")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingDependency, match=r'pip install "cvxscreen\[plot\]"'):
        rejection(VALUES, RATES)


def test_the_same_picture_is_the_same_bytes() -> None:
    first, second = BytesIO(), BytesIO()
    rejection(VALUES, RATES).savefig(first, format="png")
    rejection(VALUES, RATES).savefig(second, format="png")
    assert first.getvalue() == second.getvalue()


# The pictures beyond the path: what they draw is what the arrays say, and what they refuse.

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
def test_planes_that_are_refused(call, words: str) -> None:
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


# Pictures of features and samples screened together: what they draw and what they refuse.

LAMS, GAPS = np.geomspace(1e-3, 1, 4), np.array([1e-1, 1e-3, 1e-2])
ALONE = np.array([[0.1, 0.2, 0.3, 0.4], [0.9, 0.96, 0.97, 1.0], [0.3, 0.4, np.nan, 0.6]])
COUNTS = {"features": [5, 4, 3, 2], "samples": [1, 2, 3, 4]}


def hatched(axes: Any) -> int:
    return sum(isinstance(p, Rectangle) and p.get_hatch() is not None for p in axes.patches)


def test_maps_say_the_rates_and_hatch_what_is_done(tmp_path: Any) -> None:
    rates = {"features": (ALONE, 0.1 * ALONE, ALONE), "samples": (ALONE, 0.1 * ALONE, None)}
    figure = both_sides(LAMS[::-1], GAPS, rates, COUNTS, title="Toy", parameter="C")
    alone, added, kept, *_, numbers = figure.axes[:6]
    assert figure.get_suptitle() == "Toy"
    assert "hatched" in figure.get_supxlabel()
    drawn = alone.collections[0].get_array()
    order = np.argsort(GAPS)
    assert np.allclose(drawn.filled(-1.0), np.nan_to_num(ALONE[order][:, ::-1], nan=-1.0))
    assert (hatched(alone), hatched(added), hatched(kept)) == (1, 4, 1)
    assert alone.yaxis_inverted()
    assert "features" in alone.get_ylabel()
    assert [line.get_label() for line in numbers.lines] == list(COUNTS)
    assert np.array_equal(numbers.lines[0].get_ydata(), [2, 3, 4, 5])
    assert save(figure, tmp_path / "maps.png").is_file()


def test_bars_and_lines_say_the_seconds(tmp_path: Any) -> None:
    seconds = {"one": {"none": 10.0, "both": 1.0}, "two": {"none": 3.0, "both": 4.0}}
    [axes] = total_times(seconds).axes
    assert [bar.get_height() for bar in axes.patches] == [10.0, 3.0, 1.0, 4.0]
    assert axes.get_yscale() == "log"
    hatches = {bar.get_hatch() for bar in axes.patches}
    assert len(hatches) == 2
    figure = cost_along(LAMS, {"none": ([1, 2, 3, 4], [0.1, 0.2, 0.3, 0.4])}, steps="passes")
    top, bottom = figure.axes
    assert np.array_equal(top.lines[0].get_ydata(), [1, 2, 3, 4])
    assert np.array_equal(bottom.lines[0].get_ydata(), [0.1, 0.2, 0.3, 0.4])
    assert "passes" in top.get_ylabel()
    assert "seconds" in bottom.get_ylabel()
    assert bottom.xaxis_inverted()
    assert save(figure, tmp_path / "lines.png").is_file()


@pytest.mark.parametrize(("make", "words"), [
    (lambda: both_sides(LAMS, GAPS, {}, COUNTS), "`rates` is empty"),
    (lambda: both_sides(LAMS, GAPS, {"a": (ALONE.T, ALONE, None)}, {}), "ask for"),
    (lambda: both_sides(LAMS, GAPS, {"a": (2 * ALONE, ALONE, None)}, {}), "outside"),
    (lambda: both_sides(LAMS, GAPS, {"a": (ALONE, ALONE, None)}, {"n": [1]}), "counts"),
    (lambda: total_times({}), "`seconds` needs a set"),
    (lambda: total_times({"a": {"x": 1.0}, "b": {"y": 1.0}}), "same ways"),
    (lambda: total_times({"a": {"x": 0.0}}), "positive"),
    (lambda: cost_along(LAMS, {}), "`runs` is empty"),
    (lambda: cost_along(LAMS, {"a": ([1], [1])}), "runs"),
])
def test_sides_that_are_refused(make: Any, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        make()
