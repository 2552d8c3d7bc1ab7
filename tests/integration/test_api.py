"""`solve` and `screen`: names, warm starts, bounds, solvers of CVXPY, verdicts as documented."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import cvxscreen
from cvxscreen import bounds
from cvxscreen.datasets import two_gaussians
from cvxscreen.errors import InvalidInput, UnknownName
from cvxscreen.solvers.interface import SubproblemSolver
from cvxscreen.solvers.newton import Newton

X, Y = two_gaussians(700, 5, bayes_error=0.1)
PROBLEM = cvxscreen.svm(X, Y, C=0.5)


@pytest.mark.parametrize("solver", ["auto", "builtin", "newton", "CLARABEL", "SCS", "osqp"])
@pytest.mark.parametrize("mode", ["certified", "safe"])
def test_every_solver_gives_the_same_certified_answer(solver, mode) -> None:
    reference = cvxscreen.solve(PROBLEM, tol=1e-10)
    found = cvxscreen.solve(PROBLEM, solver=solver, mode=mode)
    assert found.status == "optimal"
    assert found.certificate.ok
    assert found.value == pytest.approx(reference.value, rel=1e-6)
    assert found.mode == mode


def test_conventions_of_a_solution() -> None:
    """alpha in [0, C] and x the sum of alpha_i a_i; the value is the objective at x."""
    found = cvxscreen.solve(PROBLEM, tol=1e-11)
    assert found.alpha.min() >= 0.0
    assert found.alpha.max() <= 0.5
    np.testing.assert_allclose(found.x, (found.alpha * Y) @ X, atol=1e-5)
    by_hand = 0.5 * found.x @ found.x + 0.5 * np.maximum(0, 1 - Y * (X @ found.x)).sum()
    assert found.value == pytest.approx(by_hand, rel=1e-12)
    assert found.intercept == 0.0
    with_b = cvxscreen.solve(cvxscreen.svm(X, Y, C=0.5, intercept=True))
    assert with_b.intercept == with_b.x[-1]
    assert with_b.w.shape == (5,)


def test_verdicts_as_documented() -> None:
    """Masks over terms and features, pieces numbered by increasing argument."""
    reference = cvxscreen.solve(PROBLEM, tol=1e-10)
    verdict = cvxscreen.screen(PROBLEM, reference=reference)
    total = verdict.zero.astype(int) + verdict.linear + verdict.quadratic + verdict.undecided
    assert (total == 1).all()
    assert (verdict.piece[verdict.linear] == 0).all()
    assert (verdict.piece[verdict.zero] == 1).all()
    assert (verdict.piece[verdict.undecided] == -1).all()
    assert verdict.dropped.shape == verdict.kept.shape == (5,)
    assert verdict.kept.all()
    assert verdict.zero.sum() > 400
    assert "bound" in str(verdict)


@pytest.mark.parametrize("bound", sorted(cvxscreen.bounds.BOUNDS))
@pytest.mark.parametrize("C", [0.3, 0.5, 0.8])
def test_every_bound_takes_a_reference_at_another_c(bound, C) -> None:
    """No wrong decision, whichever way C moves."""
    here = PROBLEM.with_(C=C)
    answer = cvxscreen.solve(here, tol=1e-12)
    reference = cvxscreen.solve(PROBLEM, tol=1e-9)
    verdict = cvxscreen.screen(here, reference=reference, bound=bound)
    margins = here.design.forward(answer.x)
    assert (margins[verdict.zero] > 1 - 1e-6).all()
    assert (margins[verdict.linear] < 1 + 1e-6).all()


def test_warm_starts_help_and_must_fit() -> None:
    first = cvxscreen.solve(PROBLEM, tol=1e-9)
    again = cvxscreen.solve(PROBLEM.with_(C=0.55), start=first)
    assert again.status == "optimal"
    assert again.before["zero"] > 0.3
    other = cvxscreen.svm(X[:100], Y[:100])
    with pytest.raises(InvalidInput, match=r"`start`|`reference`"):
        cvxscreen.solve(other, start=first)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(UnknownName, match="`solver`"):
        cvxscreen.solve(PROBLEM, solver="NOPE")
    with pytest.raises(UnknownName, match="`mode`"):
        cvxscreen.solve(PROBLEM, mode="fast")
    with pytest.raises(UnknownName, match="`bound`"):
        cvxscreen.solve(PROBLEM, bounds=["circle"])
    with pytest.raises(UnknownName, match="`bound`"):
        cvxscreen.screen(PROBLEM, reference=cvxscreen.solve(PROBLEM), bound="circle")
    with pytest.raises(InvalidInput, match="`tol`"):
        cvxscreen.solve(PROBLEM, tol=0.0)


def test_an_unknown_name_is_answered_with_all_that_are_known() -> None:
    for word in ("apg", "auto", "builtin", "newton", "sdca", "spdc", "CLARABEL"):
        with pytest.raises(UnknownName, match=rf"`solver` is 'NOPE'.*\b{word}\b"):
            cvxscreen.solve(PROBLEM, solver="NOPE")
    found = cvxscreen.solve(PROBLEM)
    for reference in (found, (found, found)):
        for word in ("midpoint", "dvi_star", "rrpb", "two_sided", "essnsv", "joint"):
            with pytest.raises(UnknownName, match=rf"`bound` is 'circle'.*\b{word}\b"):
                cvxscreen.screen(PROBLEM, reference=reference, bound="circle")


def test_what_fits_the_problem_is_told_from_what_others_have() -> None:
    """Bounds and solvers of metrics are no choice for an SVM, nor its for a metric."""
    found = cvxscreen.solve(PROBLEM)
    other = "choose one of: [^.]*\\. For other problems: [^.]*"
    for word in ("rrpb", "gb", "joint"):
        with pytest.raises(UnknownName, match=rf"{other}\b{word}\b"):
            cvxscreen.screen(PROBLEM, reference=found, bound="circle")
    for word in ("active_set", "projected_gradient", "sdca"):
        with pytest.raises(UnknownName, match=rf"{other}\b{word}\b"):
            cvxscreen.solve(PROBLEM, solver="NOPE")
    metric = cvxscreen.rtlm(X[:30], cvxscreen.triplets(X[:30], Y[:30], k=2), 5.0)
    with pytest.raises(UnknownName, match=rf"{other}\bdcd\b") as refused:
        cvxscreen.solve(metric, solver="NOPE")
    named = str(refused.value).split("choose one of: ")[1].split(". For")[0].split(", ")
    assert len(named) == len(set(named))
    with pytest.raises(UnknownName, match=r"choose one of: [^.]*\brrpb\b[^.]*\. For"):
        cvxscreen.solve(metric, bounds=["circle"])
    with pytest.raises(InvalidInput, match=r"'rrpb' is for problems over a cone.*midpoint"):
        cvxscreen.screen(PROBLEM, reference=found, bound="RRPB")
    pure = cvxscreen.sparse_svm(X, Y, 0.05, loss="hinge", l2=0)
    with pytest.raises(UnknownName, match="choose one of: lp"):
        cvxscreen.screen(pure, reference=cvxscreen.solve(pure), bound="circle")
    tasks = cvxscreen.raso([(X, Y), (X, -Y)], h=1, alpha=0.1, beta=0.1)
    assert cvxscreen.bounds.available(tasks) == ("midpoint",)


@pytest.mark.parametrize(("name", "ours"), [
    ("DVI", "dvi"), ("DVI*", "dvi_star"), ("Midpoint", "midpoint"), ("IT", "it"), ("BT2", "bt2"),
])
def test_names_go_in_any_case_and_as_papers_print_them(name: str, ours: str) -> None:
    found = cvxscreen.solve(PROBLEM, tol=1e-4)
    verdict = cvxscreen.screen(PROBLEM, reference=found, bound=name)
    assert verdict.bound == ours
    assert (verdict.codes == cvxscreen.screen(PROBLEM, reference=found, bound=ours).codes).all()


def test_names_of_pairs_solvers_and_rules_go_in_any_case() -> None:
    low, high = (cvxscreen.solve(PROBLEM.with_(C=C)) for C in (0.4, 0.6))
    for name, ours in (("Two-sided", "two_sided"), ("ESSNSV", "essnsv"), ("DT", "dome")):
        assert cvxscreen.screen(PROBLEM, reference=(low, high), bound=name).bound == ours
    for name in ("Auto", "Builtin", "Newton", "Interior point", "clarabel"):
        assert cvxscreen.solve(PROBLEM, solver=name, bounds="GAP", mode="safe").status == "optimal"
    metric = cvxscreen.rtlm(X[:30], cvxscreen.triplets(X[:30], Y[:30], k=2), 5.0)
    found = cvxscreen.solve(metric, tol=1e-3, solver="Active-set")
    verdict = cvxscreen.screen(metric, reference=found, bound="RRPB", rule="SDLS")
    same = cvxscreen.screen(metric, reference=found, bound="rrpb", rule="cone")
    assert (verdict.codes == same.codes).all()


@pytest.mark.parametrize("loss", ["Hinge", "Smoothed hinge", "SQUARED-HINGE"])
def test_names_of_losses_kernels_modes_and_parameters_go_in_any_case(loss: str) -> None:
    """Problems are those of the plain names, and what is kept is the plain name."""
    plain = loss.lower().replace(" ", "_").replace("-", "_")
    for make in (cvxscreen.svm, partial(cvxscreen.sparse_svm, lam=0.1)):
        ours, same = make(X, Y, loss=loss), make(X, Y, loss=plain)
        for part in ("b", "e", "q", "lo", "hi"):
            assert (getattr(ours.losses, part) == getattr(same.losses, part)).all()
    found = cvxscreen.solve(PROBLEM, mode="Safe")
    assert found.mode == "safe"
    assert (found.x == cvxscreen.solve(PROBLEM, mode="safe").x).all()
    along = cvxscreen.path(cvxscreen.sparse_svm(X, Y, 1.0), over="Lambda", values=[0.2, 0.1])
    assert along.points[0].over == "lam"
    kernels = [cvxscreen.svm(X, Y, kernel=name) for name in ("RBF", "rbf")]
    assert np.array_equal(*(cvxscreen.solve(problem, tol=1e-3).x for problem in kernels))
    for target in ("Absolute", "Huber", "Quantile"):
        given = {"delta": 1.0} if target == "Huber" else {}
        cvxscreen.solve(cvxscreen.regression(X, Y, loss=target, penalty="L1", **given), tol=1e-4)
    with pytest.raises(UnknownName, match="`loss` is 'Hing'; choose one of: hinge"):
        cvxscreen.svm(X, Y, loss="Hing")


def test_estimators_keep_names_as_they_are_given() -> None:
    models = pytest.importorskip("cvxscreen.estimators")
    base = pytest.importorskip("sklearn.base")
    for kernel, data in (("RBF", X), ("Linear", X), ("Precomputed", X @ X.T)):
        model = base.clone(models.ScreenedSVC(loss="Hinge", kernel=kernel, mode="Safe", tol=1e-4))
        plain = models.ScreenedSVC(kernel=kernel.lower(), mode="safe", tol=1e-4).fit(data, Y)
        assert (model.fit(data, Y).predict(data) == plain.predict(data)).all()
        assert (model.loss, model.kernel, model.mode) == ("Hinge", kernel, "Safe")


def test_several_bounds_prove_together() -> None:
    found = cvxscreen.solve(PROBLEM, mode="safe", bounds=["gap", "midpoint"])
    assert {entry.bound for entry in found.screening.evidence} == {"gap", "midpoint"}


def test_progress_is_silent_on_standard_output(capsys) -> None:
    cvxscreen.solve(PROBLEM, progress=True)
    assert capsys.readouterr().out == ""


def test_export_to_cvxpy() -> None:
    """The full and the reduced problem as CVXPY problems have the same optimum."""
    found = cvxscreen.solve(PROBLEM, tol=1e-10)
    reduced = found.screening.reduce()
    assert reduced.n < 100
    for problem in (PROBLEM, reduced):
        exported = problem.to_cvxpy()
        exported.solve(solver="CLARABEL")
        assert exported.value == pytest.approx(found.value, rel=1e-7)


class Recorded(SubproblemSolver):
    """Newton, which keeps count of what it is asked."""

    name = "RECORDED"

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, problem, start=None, target=0.0):
        self.calls += 1
        return Newton()(problem, start, target)


def own_gap_ball(problem, point):
    return bounds.gap_ball(problem, point)


def test_solvers_and_bounds_may_be_objects() -> None:
    problem = cvxscreen.svm(*cvxscreen.datasets.two_gaussians(200, 3), C=0.3)
    plain, own = cvxscreen.solve(problem), Recorded()
    found = cvxscreen.solve(problem, solver=own, bounds=[own_gap_ball, "midpoint"])
    assert found.status == "optimal"
    assert own.calls > 0
    assert found.solver == "RECORDED"
    assert found.value == pytest.approx(plain.value, rel=1e-6)
    path = cvxscreen.path(problem, values=[0.1, 0.3], solver=own)
    assert [point.status for point in path.points] == ["optimal", "optimal"]
    ours = cvxscreen.screen(problem, reference=plain, bound=own_gap_ball)
    theirs = cvxscreen.screen(problem, reference=plain, bound="gap")
    np.testing.assert_array_equal(ours.undecided, theirs.undecided)
    other = cvxscreen.screen(problem.with_(C=0.31), reference=plain, bound=own_gap_ball)
    assert other.undecided.sum() >= ours.undecided.sum()


@pytest.mark.parametrize("given", [3, [3], [None]])
def test_what_is_neither_name_nor_function_is_refused(given) -> None:
    problem = cvxscreen.svm(*cvxscreen.datasets.two_gaussians(20, 2))
    with pytest.raises(cvxscreen.CvxscreenError, match="bound"):
        cvxscreen.solve(problem, bounds=given)
    with pytest.raises(cvxscreen.CvxscreenError, match="solver"):
        cvxscreen.solve(problem, solver=given)
