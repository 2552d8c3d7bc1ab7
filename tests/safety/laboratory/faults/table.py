"""What a planted fault is."""

from __future__ import annotations

from typing import NamedTuple

KINDS = (
    "radius x 0.99",  # or an interval, a range, a threshold: one per cent less than proven
    "flipped sign",
    "dropped term",  # of Fenchel-Young or of another sum that must be whole
    "gap by subtraction",
    "non-strict comparison",
    "stale reference",
    "swapped piece",
    "no rounding slack",
)
SHRUNK, SIGN, DROPPED, SUBTRACTED, STRICT, STALE, SWAPPED, SLACK = KINDS


class Fault(NamedTuple):
    """One text of a module replaced by another.

    Attributes
    ----------
    name : str
    kind : str
        Of `KINDS`.
    module : str
        Path below the package.
    old, new : str
        `old` occurs exactly once in the module.
    tests : tuple of str
        What should notice, as pytest takes it.
    means : str
        What a user would get.
    """

    name: str
    kind: str
    module: str
    old: str
    new: str
    tests: tuple[str, ...]
    means: str


def smaller(call: str) -> str:
    """The region of `call` with 0.99 of its radius."""
    shrink = "__import__('dataclasses').replace(region, radius=0.99 * region.radius)"
    return f"(lambda region: {shrink} if hasattr(region, 'centre') else region)({call})"


def of(module: str, *tests: str):
    """Faults of one module, met by the same tests: a function of what is left of each."""
    where = tuple(f"tests/{test}" for test in tests)

    def fault(name: str, kind: str, old: str, new: str, means: str, *own: str) -> Fault:
        return Fault(name, kind, module, old, new, tuple(f"tests/{t}" for t in own) or where, means)

    return fault
