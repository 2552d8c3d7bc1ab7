"""Which cells of a crossed table every run has: all pairs of levels of three factors and more.

Most mistakes need one level, or two together, of what a test crosses; a few cells hold all those
pairs, where all cells are their product. A list or a table of two factors is its own pairs: there
every other cell is taken, by the Thue-Morse sequence, which keeps step with neither of the two.
Where three levels together matter (an intercept, single precision and sparse rows, say) a table is
not to be marked.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import combinations

Column = tuple[int, ...]
"""The level of one factor in every cell, numbered as they come."""


def level(value: object) -> Hashable:
    """What makes `value` the same level again; of what has no hash, that it is the same object."""
    try:
        hash(value)
    except TypeError:
        return id(value)
    return type(value), value


def factors(cells: Sequence[Mapping[str, object]]) -> list[Column]:
    """Those parameters that tell the cells apart, without any that follows from another."""
    columns: list[Column] = []
    for name in cells[0]:
        numbers: dict[Hashable, int] = {}
        column = tuple(numbers.setdefault(level(c[name]), len(numbers)) for c in cells)
        columns = [other for other in columns if not _follows(other, column)]
        if len(numbers) > 1 and not any(_follows(column, other) for other in columns):
            columns.append(column)
    return columns


def _follows(one: Column, other: Column) -> bool:
    return len(set(zip(one, other, strict=True))) == len(set(other))


def chosen(cells: Sequence[Mapping[str, object]]) -> list[int]:
    """Which of `cells` (values by parameter) to run, in order.

    Each time one that holds most of the pairs that are still missing, and of those the first whose
    pairs were taken least: so also three levels meet in many ways.
    """
    columns = factors(cells)
    if len(columns) < 3:
        return [number for number in range(len(cells)) if number.bit_count() % 2 == 0]
    pairs = [
        {(first, row[first], second, row[second])
         for first, second in combinations(range(len(columns)), 2)}
        for row in zip(*columns, strict=True)
    ]
    taken, kept = dict.fromkeys(set().union(*pairs), 0), list[int]()
    while not all(taken.values()):
        counts = [[taken[pair] for pair in cell] for cell in pairs]
        best = min(range(len(cells)), key=lambda k: (-counts[k].count(0), sum(counts[k])))
        kept.append(best)
        for pair in pairs[best]:
            taken[pair] += 1
    return sorted(kept)
