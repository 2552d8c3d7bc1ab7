"""Verdicts against references: what is checked, what is wrong, what the reference cannot say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from references import Reference
from terms import OPEN, WRONG

from cvxscreen.screening.reduction import Pieces

Key = tuple[str, str, str, str, str]
"""Model, loss, rule, design, dtype."""
FIELDS = ("asked", "checked", "wrong", "open")


@dataclass
class Ledger:
    """Counts by key, and where to find what is wrong."""

    counts: dict[Key, Counter[str]] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)

    def add(self, key: Key, asked: int, states: np.ndarray, what: str = "") -> None:
        """Enter decisions by what the reference says about each."""
        row = self.counts.setdefault(key, Counter())
        bad = int((states == WRONG).sum())
        row.update(asked=asked, wrong=bad, open=int((states == OPEN).sum()))
        row.update(checked=int((states != OPEN).sum()))
        if bad:
            self.findings.append(f"{'/'.join(key)}: {what}: {bad} wrong")

    def total(self, name: str) -> int:
        return sum(row[name] for row in self.counts.values())

    def rows(self) -> list[list]:
        return [[*key, *(row[name] for name in FIELDS)] for key, row in sorted(self.counts.items())]


def pieces(ledger: Ledger, key: Key, ref: Reference, codes: np.ndarray, what: str = "") -> None:
    """Terms decided to be on a piece."""
    said = np.flatnonzero(codes >= 0)
    ledger.add(key, len(codes), ref.states[said, codes[said]], f"{what} terms")


def verdict(ledger: Ledger, key: Key, ref: Reference, found: Pieces, what: str = "") -> None:
    """Everything a verdict or a screening says: pieces, dropped features, safe keeping."""
    pieces(ledger, key, ref, found.codes, what)  # type: ignore[attr-defined]
    sides: Iterable = (
        ("dropped", ref.dropped), ("needed_features", ref.needed), ("needed_terms", ref.kept),
    )
    for name, states in sides:
        mask = getattr(found, name)
        if name == "needed_terms" and not len(ref.needed):
            continue
        if len(mask) and mask.any():
            ledger.add(key, len(mask), states[mask], f"{what} {name}")
