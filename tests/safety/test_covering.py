"""What is left of a table in every run: each pair of levels, in far fewer cells than there are."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations, product
from types import SimpleNamespace

import numpy as np
import pytest
from covering import chosen, factors

LEVELS = ((3, 4, 9), (8, 2, 7), (2, 2, 2, 2), (2, 3, 2, 6), (5, 2, 3, 4))


def crossed(levels: tuple[int, ...]) -> list[dict[str, object]]:
    return [dict(zip("abcde", cell, strict=False)) for cell in product(*map(range, levels))]


@pytest.mark.parametrize("levels", LEVELS)
def test_each_pair_of_levels_is_there(levels: tuple[int, ...]) -> None:
    """Also where some of the cells do not occur; and no more than 3 in 2 of what pairs need."""
    whole = crossed(levels)
    gaps = np.random.default_rng(len(whole)).random(len(whole)) > 0.2
    for cells in (whole, [cell for cell, there in zip(whole, gaps, strict=True) if there]):
        kept = [cells[number] for number in chosen(cells)]
        for one, other in combinations(cells[0], 2):
            assert {(c[one], c[other]) for c in kept} == {(c[one], c[other]) for c in cells}
    sizes = sorted(levels)
    assert len(chosen(whole)) <= 1.5 * sizes[-1] * sizes[-2]
    assert len(chosen(whole)) <= len(whole) / 2


def test_what_follows_from_another_parameter_is_no_factor() -> None:
    """A name and what it stands for are one, a parameter with one value is none."""
    cells = [{"name": name, "of it": name.upper(), "b": b, "one": 1, "array": array}
             for name in "xyz" for b in (1, True, 1.0) for array in ARRAYS]
    assert [len(set(column)) for column in factors(cells)] == [3, 3, 2]
    del cells[0]["array"]
    assert len(factors([{key: c[key] for key in ("name", "of it", "b")} for c in cells])) == 2


ARRAYS = [np.zeros(2), np.zeros(2)]


def test_of_two_factors_every_level_is_left() -> None:
    for levels in ((7, 5), (18, 2), (40, 3), (4, 13)):
        cells = crossed(levels)
        kept = [cells[number] for number in chosen(cells)]
        assert len(kept) <= (len(cells) + 1) // 2
        for name, count in zip("ab", levels, strict=True):
            assert {cell[name] for cell in kept} == set(range(count))


@dataclass(frozen=True)
class Cell:
    """What is asked of an item of pytest's."""

    nodeid: str
    marks: tuple[str, ...]
    callspec: SimpleNamespace = field(compare=False)

    def get_closest_marker(self, name: str) -> str | None:
        return name if name in self.marks else None


def test_tables_are_cut_so_when_tests_are_collected(request: pytest.FixtureRequest) -> None:
    """What is marked `long` waits, of a `table` the rest; unmarked tests stay whole."""
    def cells(name: str, *marks: str) -> list[Cell]:
        whole = crossed((3, 4, 9))
        return [Cell(f"{name}[{k}]", marks, SimpleNamespace(params=c)) for k, c in enumerate(whole)]

    waited: list[Cell] = []
    option = {"--every": 1, "--long": False}
    config = SimpleNamespace(
        getoption=option.get, args=["tests"],
        hook=SimpleNamespace(pytest_deselected=lambda items: waited.extend(items)),
    )
    (here,) = (
        plugin for plugin in request.config.pluginmanager.get_plugins()
        if hasattr(plugin, "plain_solves_are_known")
    )
    whole, table, long = cells("whole"), cells("table", "table"), cells("long", "table", "long")
    items = [*whole, *table, *long]
    here.pytest_collection_modifyitems(config, items)
    assert items == [*whole, *(table[number] for number in chosen(crossed((3, 4, 9))))]
    assert {*waited, *items} == {*whole, *table, *long}
    for changed in ({"--long": True}, {"args": ["tests/a.py::table"]}):
        items = [*whole, *table]
        option.update({key: value for key, value in changed.items() if key in option})
        config.args = changed.get("args", config.args)
        here.pytest_collection_modifyitems(config, items)
        assert items == [*whole, *table]
        option["--long"] = False
