"""The pictures: what they show, what they refuse, and files written whole or not at all."""

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

from cvxscreen.errors import InvalidInput, MissingDependency
from cvxscreen.plots import panels, rejection, save

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
def test_refuses(values: Any, rates: Any, evidence: Any, words: str) -> None:
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
