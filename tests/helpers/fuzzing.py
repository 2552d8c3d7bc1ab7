"""Random problems solved in both ways: what every such test asks of all of its seeds."""

from __future__ import annotations

from collections.abc import Callable

import pytest


def both_ways_agree(
    disagreement: Callable[[int], tuple[str, bool]], seeds: range, shares: tuple[float, float]
) -> None:
    """No seed disagrees, and a share of them between the two is screened.

    `disagreement` gives for a seed what differs ("" where nothing does), and whether its problem
    was recognised.
    """
    found = {seed: disagreement(seed) for seed in seeds}
    wrong = [f"{seed}: {word}" for seed, (word, _) in found.items() if word]
    if wrong:
        pytest.fail("\n".join(wrong))
    low, high = shares
    assert low * len(seeds) < sum(screened for _, screened in found.values()) <= high * len(seeds)
