"""All planted faults, in the order of the package's layers."""

from __future__ import annotations

from faults import (
    alone,
    bounds,
    budgets,
    certificates,
    changes,
    designs,
    few_rows,
    kept,
    levels,
    linear,
    loops,
    losses,
    multitask,
    norms,
    proofs,
    reducer,
    regions,
    runs,
    sparse,
    streamed,
    unheld,
    written,
)
from faults.table import KINDS, Fault

PARTS = (
    losses,
    designs,
    proofs,
    certificates,
    regions,
    bounds,
    changes,
    sparse,
    alone,
    kept,
    levels,
    linear,
    loops,
    runs,
    multitask,
    reducer,
    budgets,
    norms,
    streamed,
    unheld,
    written,
    few_rows,
)
FAULTS: tuple[Fault, ...] = tuple(fault for part in PARTS for fault in part.FAULTS)

__all__ = ["FAULTS", "KINDS", "Fault"]
