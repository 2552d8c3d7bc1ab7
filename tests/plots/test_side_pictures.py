"""Pictures of features and samples screened together: what they draw and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matplotlib.patches import Rectangle

from cvxscreen.errors import InvalidInput
from cvxscreen.plots import both_sides, cost_along, save, total_times

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
def test_refuses(make: Any, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        make()
