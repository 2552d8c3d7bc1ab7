"""Scores of several classes from intervals of margins: contained, attained, and the votes' own."""

from __future__ import annotations

import numpy as np
import pytest

from cvxscreen.data_changes.leave_one_out import OneVsOneScores, OneVsRestScores, _ahead
from cvxscreen.estimators.classifier import votes

K = 4
OWN = np.random.default_rng(0).integers(0, K, 500)
ROWS = np.arange(500)


def decisions(scores: OneVsRestScores | OneVsOneScores, margins: np.ndarray) -> np.ndarray:
    """The scores as `predict` has them, from margins, labels times decisions."""
    if isinstance(scores, OneVsRestScores):
        return np.where(OWN[:, None] == np.arange(K), margins, -margins)
    second = OWN[:, None] == np.array([j for _, j in scores.pairs])
    return votes(np.where(second, margins, -margins), K)


def ahead(scores: np.ndarray) -> np.ndarray:
    """How far the own class is ahead of the best other one."""
    others = np.where(OWN[:, None] == np.arange(K), -np.inf, scores)
    return scores[ROWS, OWN] - others.max(axis=1)


@pytest.mark.parametrize("kind", [OneVsRestScores, OneVsOneScores])
def test_scores_of_any_margins_inside_are_inside(kind: type) -> None:
    rng, scores = np.random.default_rng(1), kind(OWN, K)
    P = K if kind is OneVsRestScores else K * (K - 1) // 2
    middle = rng.normal(size=(500, P)) * 10.0 ** rng.integers(-6, 6, (500, P))
    width = rng.exponential(size=(500, P)) * 10.0 ** rng.integers(-9, 1, (500, P))
    width[rng.random((500, P)) < 0.3] = 0.0
    low, high = middle - width, middle + width
    least, most = scores.scores(ROWS, low, high)
    below, above, able = _ahead(scores, ROWS, low, high)
    for share in (-1.0, 1.0, *rng.uniform(-1.0, 1.0, (6, 500, P))):
        values = decisions(scores, np.clip(middle + share * width, low, high))
        assert (least <= values).all()
        assert (values <= most).all()
        assert (below <= ahead(values)).all()
        assert (ahead(values) <= above).all()
        assert able[ROWS, values.argmax(axis=1)].all()


@pytest.mark.parametrize("kind", [OneVsRestScores, OneVsOneScores])
def test_margins_that_are_known_give_the_scores_themselves(kind: type) -> None:
    rng, scores = np.random.default_rng(2), kind(OWN, K)
    margins = rng.normal(size=(500, K if kind is OneVsRestScores else K * (K - 1) // 2))
    expected = decisions(scores, margins)
    for end in scores.scores(ROWS, margins, margins):
        np.testing.assert_allclose(end, expected, rtol=0, atol=1e-13)
    below, above, _ = _ahead(scores, ROWS, margins, margins)
    np.testing.assert_allclose(below, ahead(expected), rtol=0, atol=1e-13)
    np.testing.assert_allclose(above, ahead(expected), rtol=0, atol=1e-13)


def test_each_end_of_a_lead_is_attained_by_margins_inside() -> None:
    """Of classes against the rest, whose margins are free of each other."""
    rng, scores = np.random.default_rng(3), OneVsRestScores(OWN, K)
    low = rng.normal(size=(500, K))
    high = low + rng.exponential(size=(500, K))
    below, above, _ = _ahead(scores, ROWS, low, high)
    mine = OWN[:, None] == np.arange(K)
    np.testing.assert_allclose(below, ahead(decisions(scores, low)), atol=1e-13)
    np.testing.assert_allclose(above, ahead(decisions(scores, high)), atol=1e-13)
    assert mine.sum() == 500


def test_nothing_is_known_of_margins_without_bounds() -> None:
    for scores, P in ((OneVsRestScores(OWN, K), K), (OneVsOneScores(OWN, K), K * (K - 1) // 2)):
        endless = np.full((500, P), np.inf)
        below, above, able = _ahead(scores, ROWS, -endless, endless)
        assert (below < 0).all()
        assert (above > 0).all()
        assert able.all()
