"""Rules side by side, rules of one's own by name, and verdicts that reduce."""

from __future__ import annotations

import numpy as np
import pytest

import cvxscreen
from cvxscreen.bounds import BOUNDS, available, gap_ball, midpoint_ball, register
from cvxscreen.errors import InvalidInput
from cvxscreen.screening.reduction import Verdict


@pytest.fixture(scope="module")
def solved():
    problem = cvxscreen.svm(*cvxscreen.datasets.two_gaussians(300, 3), C=1.0)
    return problem, cvxscreen.solve(problem, tol=1e-10)


def test_every_rule_has_its_line(solved) -> None:
    problem, reference = solved
    found = cvxscreen.compare_bounds(problem, reference, [1.0, 1.2, 2.0])
    assert set(found.decided) == set(available(problem)) - set(cvxscreen.bounds.PAIRS)
    for name, shares in found.decided.items():
        verdict = cvxscreen.screen(problem.with_(C=1.2), reference=reference, bound=name)
        assert shares[1] == pytest.approx((~verdict.undecided).mean())
    assert found.decided["midpoint"][0] > 0.5
    assert "midpoint" in str(found)
    lines = {line.get_label() for line in found.plot().axes[0].lines}
    assert lines == set(found.decided)


def test_pairs_and_lambda(solved) -> None:
    problem, high = solved
    low = cvxscreen.solve(problem.with_(C=0.5), tol=1e-10)
    both = cvxscreen.compare_bounds(problem, (low, high), [0.7], ["essnsv", "dvi"])
    assert set(both.decided) == {"essnsv", "dvi"}
    listed = cvxscreen.compare_bounds(problem, [low, high], [0.7], ["essnsv", "dvi"])
    assert {name: share.tolist() for name, share in listed.decided.items()} == {
        name: share.tolist() for name, share in both.decided.items()
    }
    sparse = cvxscreen.sparse_svm(*cvxscreen.datasets.two_gaussians(100, 20), 0.1)
    found = cvxscreen.compare_bounds(sparse, cvxscreen.solve(sparse), [0.09], ["joint"])
    assert found.over == "lam"
    assert 0 <= found.dropped["joint"][0] <= 1


def test_a_line_on_axes_of_ones_own(solved) -> None:
    from matplotlib.figure import Figure

    problem, reference = solved
    figure = Figure()
    axes = figure.subplots()
    found = cvxscreen.compare_bounds(problem, reference, [1.0, 1.2], ["gap"])
    assert found.plot(ax=axes) is figure
    assert found.plot(figsize=(3.0, 2.0)).get_size_inches().tolist() == [3.0, 2.0]


@pytest.mark.parametrize("values", [[], [0.0], [-1.0], [[1.0]]])
def test_values_are_positive(solved, values) -> None:
    with pytest.raises(InvalidInput, match="`values`"):
        cvxscreen.compare_bounds(*solved, values)


def test_a_bound_of_ones_own_goes_by_its_name(solved, monkeypatch) -> None:
    problem, reference = solved
    monkeypatch.setattr(cvxscreen.bounds, "BOUNDS", dict(BOUNDS))
    register("My-own", gap_ball)
    assert "my_own" in available(problem)
    theirs = cvxscreen.screen(problem, reference=reference, bound="gap")
    mine = cvxscreen.screen(problem, reference=reference, bound="MY OWN")
    np.testing.assert_array_equal(mine.codes, theirs.codes)
    for name, bound, words in (("gap", gap_ball, "taken"), (3, gap_ball, "a word"),
                               ("other", "gap", "a function")):
        with pytest.raises(InvalidInput, match=words):
            register(name, bound)


def test_a_verdict_reduces_its_problem(solved) -> None:
    problem, reference = solved
    verdict = cvxscreen.screen(problem, reference=reference)
    small = verdict.reduce()
    assert small.n == verdict.undecided.sum() < problem.n
    again = cvxscreen.solve(small, tol=1e-10)
    assert again.value == pytest.approx(reference.value, rel=1e-9)
    np.testing.assert_allclose(again.x, reference.x, atol=1e-6)
    assert verdict.region.radius == midpoint_ball(problem, reference.point()).radius
    alone = Verdict(problem.losses, verdict.codes, "b", 1.0, 0.0)
    with pytest.raises(InvalidInput, match="does not know its problem"):
        alone.reduce()


def test_lambda_max_of_a_model_with_c() -> None:
    X, y = cvxscreen.datasets.two_gaussians(200, 3)
    for problem in (cvxscreen.svm(X, y), cvxscreen.svm(X, y, loss="smoothed_hinge")):
        C = 1.0 / cvxscreen.lambda_max(problem)
        below = cvxscreen.solve(problem.with_(C=0.999 * C), tol=1e-10)
        assert below.screening.linear.all()
        above = cvxscreen.solve(problem.with_(C=1.01 * C), tol=1e-10)
        assert not above.screening.linear.all()
    assert cvxscreen.lambda_max(cvxscreen.svm(X, y, loss="squared_hinge")) == np.inf
    sparse = cvxscreen.sparse_svm(X, y, 1.0)
    assert cvxscreen.path(sparse, over="lambda", values=[0.1]).points[0].over == "lam"
