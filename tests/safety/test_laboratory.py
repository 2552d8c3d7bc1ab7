"""The safety laboratory: a short campaign, and proof that its checker sees what is wrong."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from exact import optimum as rational_optimum
from strategies import CASES, build, solved_floats

FOLDER = Path(__file__).resolve().parent / "laboratory"
if not FOLDER.is_dir():
    pytest.skip("the examples are not shipped here", allow_module_level=True)
sys.path.insert(0, str(FOLDER))

import active_set  # noqa: E402
import adversary  # noqa: E402
import block_cells  # noqa: E402
import budget_cells  # noqa: E402
import campaign  # noqa: E402
import change_cells  # noqa: E402
import checks  # noqa: E402
import generators  # noqa: E402
import ground_cells  # noqa: E402
import kernel_cells  # noqa: E402
import plugin_cells  # noqa: E402
import report  # noqa: E402
import vector_cells  # noqa: E402
from terms import OPEN, RIGHT, WRONG  # noqa: E402

import cvxscreen  # noqa: E402
from cvxscreen import regression  # noqa: E402
from cvxscreen.bounds import BOUNDS, CONES, PARAMETER_CHANGE, midpoint_ball  # noqa: E402
from cvxscreen.bounds.data_changes import over_weights  # noqa: E402
from cvxscreen.bounds.regions import Ball, Region, TwoBalls  # noqa: E402
from cvxscreen.core.losses import Piece  # noqa: E402
from cvxscreen.cvxpy_plugin import budgets  # noqa: E402
from cvxscreen.data_changes import reweight  # noqa: E402
from cvxscreen.data_changes.reweight import DataChange  # noqa: E402
from cvxscreen.screening.reduction import judge  # noqa: E402

DECISIONS = 50_000


def test_a_short_campaign_finds_nothing_wrong(tmp_path: Path) -> None:
    """Every family of cells, every bound and both modes; nothing fails, hardly anything is open."""
    out = tmp_path / "short.jsonl"
    lines = [
        campaign.run(family, number, seed=1, points=2)
        for family, (_, share) in campaign.FAMILIES.items() for number in range(min(share, 2))
    ]
    out.write_text("".join(json.dumps(line) + "\n" for line in lines))
    lines = campaign.campaign(out, DECISIONS, seed=1, points=2, shown=False)
    assert report.status(lines) == 0, report.table(lines)
    assert not [line["warnings"] for line in lines if line["warnings"]]
    assert sum(report.total(line, "checked") for line in lines) >= DECISIONS
    assert sum(report.total(line, "open") for line in lines) < 0.03 * DECISIONS
    rules = {rule for (rule,) in report.grouped(lines, ("rule",))}
    assert {*BOUNDS, "two_sided", "dome", "ssnsv", "essnsv", "joint", "synergy", "dual"} <= rules
    assert {"safe mode", "certified mode", "C range", "lp", "U-step", "refusal"} <= rules
    assert {"gb, cone", "rrpb, linear", "lambda range, midpoint"} <= rules
    models = {model for (model,) in report.grouped(lines, ("model",))}
    assert {"side constraints", "one class", "kernel + intercept", "elastic net"} <= models
    assert {"attained", "attained metric", "without curvature", "rows as constraints"} <= models
    assert {"pure L1", "changed data", "plugin", "data in chunks", "blocks"} <= models
    assert {"changed kernel problem", "budgets"} <= models
    assert "rows of a CVXPY problem" in models
    assert any(model.startswith("range of weights") for model in models)  # with an intercept or not


def until_wrong(family: str, most: int, *, seed: int, points: int) -> list[dict]:
    """Cells until something wrong is found in one, `most` at the most."""
    lines: list[dict] = []
    while len(lines) < most and not any(report.total(line, "wrong") for line in lines):
        lines.append(campaign.run(family, len(lines), seed=seed, points=points))
    return lines


def test_a_planted_wrong_decision_is_refused() -> None:
    """Every term moved to a piece it is not on is counted, named, and fails the campaign."""
    rng = np.random.default_rng(0)
    for loss in generators.LOSSES:
        problem, x, theta = generators.planted(loss, rng, d=2)
        ref = active_set.optimum(problem, x, theta)
        assert not (ref.states == OPEN).any()
        verdict = judge(problem, midpoint_ball(problem, next(adversary.points(ref, rng, 0))))
        said = np.flatnonzero(verdict.codes >= 0)
        ledger = checks.Ledger()
        key = ("planted", loss, "midpoint", "dense", "float64")
        checks.pieces(ledger, key, ref, verdict.codes)
        assert ledger.total("wrong") == 0
        assert ledger.total("checked") == len(said) > 0
        codes = verdict.codes.copy()
        i = int(said[0])
        codes[i] = next(k for k in np.flatnonzero(problem.losses.exists[i]) if k != codes[i])
        checks.pieces(ledger, key, ref, codes)
        assert ledger.total("wrong") == 1
        assert "1 wrong" in ledger.findings[0]
        line = {"rows": ledger.rows(), "findings": ledger.findings, "error": "", "warnings": [],
                "cell": "planted:0", "seconds": 0.0}
        assert report.status([line]) == 1
        assert ledger.findings[0] in report.table([line])


@pytest.mark.parametrize("share", [
    0.99, pytest.param(1.0 - 1e-6, marks=pytest.mark.long), 1.0 - 1e-12,
])
def test_a_ball_a_little_too_small_is_found_out(
    share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A radius short of one part in 10^12 makes wrong decisions that the laboratory sees."""

    def weak(problem, point):
        ball = midpoint_ball(problem, point)
        return replace(ball, radius=share * ball.radius) if isinstance(ball, Ball) else ball

    monkeypatch.setitem(BOUNDS, "midpoint", weak)
    lines = [campaign.run("planted", number, seed=1, points=2) for number in range(4)]
    wrong = {rule: row["wrong"] for (rule,), row in report.grouped(lines, ("rule",)).items()}
    assert wrong["midpoint"] > 0
    assert wrong["gap"] == 0
    assert report.status(lines) == 1


def test_a_range_of_weights_a_little_too_small_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A hundredth less than what the weights move, and predictions leave their intervals."""

    def weak(point, functionals, weights):
        over = over_weights(point, functionals, weights)
        return replace(over, x_rate=0.99 * over.x_rate, down=0.99 * over.down, up=0.99 * over.up)

    monkeypatch.setattr(reweight, "over_weights", weak)
    lines = until_wrong("ranges", 4, seed=3, points=8)
    assert sum(report.total(line, "wrong") for line in lines) > 0
    assert report.status(lines) == 1


def test_left_out_rows_of_a_cvxpy_problem_in_another_order_are_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Intervals of the neighbours' rows are counted as wrong."""
    whole = cvxscreen.leave_one_out

    def rolled(prob, **options):
        found = whole(prob, **options)
        return replace(found, low=np.roll(found.low, 1), high=np.roll(found.high, 1))

    monkeypatch.setattr(cvxscreen, "leave_one_out", rolled)
    line = campaign.run("rows_left_out", 0, seed=1, points=2)
    assert report.total(line, "wrong") > 0
    assert report.status([line]) == 1


def smaller(region: Region, share: float) -> Region:
    """`region` with its balls shrunk."""
    if isinstance(region, TwoBalls):
        return TwoBalls(region.bound, *[smaller(ball, share) for ball in region.balls])
    return replace(region, radius=share * region.radius) if isinstance(region, Ball) else region


@pytest.mark.parametrize("name", [*BOUNDS, *CONES])
def test_every_ball_is_attained_at_a_kink(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every bound a radius short of one part in a thousand million is found out."""
    table = BOUNDS if name in BOUNDS else CONES
    bound = table[name]
    monkeypatch.setitem(table, name, lambda p, point: smaller(bound(p, point), 1.0 - 1e-9))
    family = "attained" if name in PARAMETER_CHANGE else "attained_metrics"
    lines = [campaign.run(family, number, seed=1, points=2) for number in range(3)]
    wrong = {rule: row["wrong"] for (rule,), row in report.grouped(lines, ("rule",)).items()}
    found = [rule for rule, count in wrong.items() if count]
    assert found
    assert {rule.split(",")[0] for rule in found} == {name}


def test_a_certificate_that_claims_too_much_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the gap, and a violation that is not seen."""
    certify = ground_cells.certify

    def halved(*args, **kwargs):
        proof = certify(*args, **kwargs)
        return replace(proof, gap=0.5 * proof.gap)

    def blind(*args, **kwargs):
        return replace(certify(*args, **kwargs), primal_residual=0.0)

    for patch in (halved, blind):
        monkeypatch.setattr(ground_cells, "certify", patch)
        lines = until_wrong("without_curvature", 6, seed=1, points=3)
        wrong = {rule: row["wrong"] for (rule,), row in report.grouped(lines, ("rule",)).items()}
        assert wrong["certificate"] > 0, patch


@pytest.mark.parametrize("fault", ["half of the gap", "slack that is free", "excess that is free"])
def test_a_certificate_of_budgets_that_claims_too_much(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, value = budget_cells.certify_budgets, budgets.budget_value

    def halved(*args):
        proof = whole(*args)
        return replace(proof, gap=0.5 * proof.gap)

    def free(part, x):
        spent, size, error = value(part, x)
        return (max if fault.startswith("slack") else min)(spent, 0.0), size, error

    if fault.startswith("half"):
        monkeypatch.setattr(budget_cells, "certify_budgets", halved)
    else:
        monkeypatch.setattr(budgets, "budget_value", free)
    lines = until_wrong("budgets", 6, seed=1, points=4)
    assert not any(line["error"] for line in lines)
    assert sum(report.total(line, "wrong") for line in lines) > 0


def within(found: Any, share: float) -> Any:
    """A record of changed data whose intervals are a share of what is proven, about the middle."""
    middle, half = 0.5 * (found.low + found.high), 0.5 * share * (found.high - found.low)
    if isinstance(found, DataChange):  # its intervals are made when they are asked for
        vars(found)["_intervals"] = middle - half, middle + half
        return found
    return replace(found, low=middle - half, high=middle + half)


@pytest.mark.parametrize("name", ["reweight", "remove", "leave_one_out"])
def test_an_interval_that_misses_is_found_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of what is proven about changed data, around the middle of the interval."""
    whole = getattr(change_cells.cvxscreen, name)

    def narrowed(*args, **kwargs):
        return within(whole(*args, **kwargs), 0.1)

    monkeypatch.setattr(change_cells.cvxscreen, name, narrowed)
    lines = [campaign.run("changes", number, seed=1, points=3) for number in range(4)]
    wrong = {rule: row["wrong"] for (rule,), row in report.grouped(lines, ("rule",)).items()}
    tampered = {"leave_one_out": ["leave one out", "leave a group out"]}
    for rule in tampered.get(name, [name]):
        assert wrong.pop(rule) > 0
    assert not any(wrong.values())


def test_certificates_of_chunks_and_blocks_that_claim_too_much(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the gap of data in chunks, and of a fit in a block of weightings."""
    certify, together = block_cells.certify_chunks, block_cells.Replicates.solve

    def halved(*args, **kwargs):
        proof = certify(*args, **kwargs)
        return replace(proof, gap=0.5 * proof.gap)

    def half_gaps(self, W):
        X, gap, ok = together(self, W)
        return X, 0.01 * gap, ok

    monkeypatch.setattr(block_cells, "certify_chunks", halved)
    monkeypatch.setattr(block_cells.Replicates, "solve", half_gaps)
    for family in ("chunks", "blocks"):
        lines = until_wrong(family, 4, seed=1, points=4)
        assert not any(line["error"] for line in lines)
        assert sum(report.total(line, "wrong") for line in lines) > 0, family


def test_a_gap_is_not_short_by_an_ulp() -> None:
    """With an intercept the norm of ``x - x_theta`` alone was the gap, and was rounded down."""
    line = campaign.run("chunks", 8, seed=7, points=12)
    assert not line["error"]
    assert report.total(line, "wrong") == 0


@pytest.mark.parametrize("name", ["reweight", "weight_range"])
def test_a_kernel_interval_that_misses_is_found_out(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundredth of what is proven, around the middle of the interval."""
    whole = getattr(change_cells.cvxscreen, name)

    def narrowed(*args, **kwargs):
        return within(whole(*args, **kwargs), 0.01)

    monkeypatch.setattr(change_cells.cvxscreen, name, narrowed)
    lines = until_wrong("kernel_changes", 4, seed=1, points=3)
    assert sum(report.total(line, "wrong") for line in lines) > 0


def test_a_budget_that_is_read_wrongly_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A budget a little larger than the planted optimum spends."""
    budget = plugin_cells.budget

    def larger(*args):
        constraints, pull = budget(*args)
        return [constraint.args[0] <= constraint.args[1] + 0.2 for constraint in constraints], pull

    monkeypatch.setattr(plugin_cells, "budget", larger)
    monkeypatch.setattr(plugin_cells, "SIDES", ("cvar", "sum_largest", "hinges in a budget"))
    lines = [campaign.run("plugin", number, seed=1, points=6) for number in range(2)]
    assert not any(line["error"] for line in lines)
    assert sum(report.total(line, "wrong") for line in lines) > 0


def test_a_wrong_optimum_through_cvxpy_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The slope of one term forgotten: "optimal" is not believed, nor are the pieces."""
    cost = plugin_cells.cost
    monkeypatch.setattr(plugin_cells, "cost", lambda loss, z: cost(loss, z) + 0.25 * z[0])
    line = campaign.run("plugin", 0, seed=1, points=3)
    assert not line["error"]
    assert report.total(line, "wrong") > 0


def test_a_kernel_that_is_let_through_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_cells, "svm", lambda *args, **kwargs: None)
    line = campaign.run("refusals", 0, seed=0, points=1)
    assert report.total(line, "wrong") == 2


def test_a_cell_that_fails_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setitem(campaign.FAMILIES, "single", (broken, 1))
    line = campaign.run("single", 0, seed=0, points=1)
    assert "a defect" in line["error"]
    assert report.status([line]) == 1


def test_a_campaign_goes_on_where_it_ended(tmp_path: Path, capsys, monkeypatch) -> None:
    """Finished cells are not run again; a half-written last line does no harm."""
    few = {name: campaign.FAMILIES[name] for name in ("refusals", "linear_program")}
    monkeypatch.setattr(campaign, "FAMILIES", few)
    out = tmp_path / "some.jsonl"
    first = campaign.campaign(out, 300, points=1, shown=False)
    with out.open("a") as file:
        file.write('{"cell": "linear_pro')
    assert campaign.main([str(out), "--decisions", "1500", "--points", "1"]) == 0
    shown = capsys.readouterr().out
    lines = report.read(out)
    cells = [line["cell"] for line in lines]
    assert len(cells) == len(set(cells)) > len(first)
    assert [line["cell"] for line in first] == cells[: len(first)]
    assert report.main([str(out), "--full"]) == 0
    assert "LP-SVM" in capsys.readouterr().out
    assert "0 wrong" in shown
    assert f"{len(lines)} cells" in shown


def test_references_agree_with_rational_optima() -> None:
    """Two exact computations of the same optima that share nothing."""
    compared = 0
    for case in CASES[::29]:
        problem = build(case)
        x, theta = solved_floats(problem)
        ref, truth = active_set.optimum(problem, x, theta), rational_optimum(problem, x, theta)
        if truth is None or ref.gap > 1e-60 * abs(float(truth.value)):
            continue
        compared += 1
        off = np.array([float(a) for a in truth.margins]) - ref.margins
        size = np.abs(ref.margins) + problem.norms * float(np.linalg.norm(ref.x))
        if not case.intercept:  # otherwise the optimum need not be unique
            assert (np.abs(off) <= 1e-14 * size + 1e-300).all()
        assert (ref.states != OPEN).all()
    assert compared >= 6


def test_a_knot_out_of_reach_is_no_place_to_sit() -> None:
    """A row of zeros never reaches a target next to 0: it is on a linear piece."""
    problem = regression([[1.0], [0.0]], [1.0, 1e-25], C=1.0)
    ref = active_set.optimum(problem, np.array([1.0]), np.array([-1.0, -1e-30]))
    assert ref.states[1, Piece.LOW] == RIGHT
    assert ref.states[1, Piece.HIGH] == WRONG


def test_an_inaccurate_reference_stays_silent() -> None:
    """What its own error does not allow is left open, and counted apart."""
    problem, x, theta = generators.planted("hinge", np.random.default_rng(3), d=2)
    model = active_set.Model(problem)
    rough = [mp.mpf(float(v)) * (1 + mp.mpf(10) ** (-3)) for v in x]
    t = active_set.apply(model.rows, rough)
    slopes = active_set.clipped(model, [mp.mpf(float(v)) for v in theta])
    ref = active_set.judged(model, rough, t, *model.gap(rough, t, slopes))
    best = active_set.optimum(problem, x, theta)
    assert (ref.states == OPEN).any()
    sure = ref.states != OPEN
    np.testing.assert_array_equal(ref.states[sure], best.states[sure])


def test_cells_are_reproducible() -> None:
    first, again = (campaign.run("elastic", 3, seed=5, points=1) for _ in range(2))
    assert first["rows"] == again["rows"]
    assert first["rows"] != campaign.run("elastic", 3, seed=6, points=1)["rows"]
    assert vector_cells.ELASTIC[3] in {row[1] for row in first["rows"]}
