"""Every exception that cvxscreen raises on purpose.

::

    CvxscreenError
    ├── InvalidInput (also ValueError)         a wrong argument: which, what was found, the remedy
    │   └── UnknownName                        a loss, bound, solver or mode that does not exist
    ├── NotScreenable                          a CVXPY problem is not of a form that is reduced
    ├── NotCertified                           an answer was asked for that its certificate refuses
    ├── NotSaved (also OSError)                a file could not be written; `path` has the points
    ├── TooLarge (also MemoryError)            does not fit into memory: how large, what else
    ├── UnsafeEvidence                         two proofs contradict each other: a defect, report it
    └── MissingDependency (also ImportError)   an optional library is not installed

and one warning, ``NotScreenedWarning`` (a ``UserWarning``): a CVXPY problem was solved plainly.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

SHOWN = 60
"""Characters of a value that a message quotes."""


def quoted(value: object) -> str:
    """`value` as a message shows it: on one line, and not for pages."""
    text = " ".join(repr(value).split())
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


class CvxscreenError(Exception):
    """Base class of all errors raised by cvxscreen."""


class InvalidInput(CvxscreenError, ValueError):
    """An argument cannot be used; the message names it, what was found and what to do."""


class UnknownName(InvalidInput):
    """A name (loss, bound, solver, mode) that is not among the known ones."""

    @classmethod
    def among(cls, argument: str, found: object, known: Iterable[str]) -> UnknownName:
        """Build the message for `argument` given `found` where one of `known` was expected."""
        return cls(f"`{argument}` is {quoted(found)}; choose one of: {', '.join(sorted(known))}.")


class NotScreenable(CvxscreenError):
    """A CVXPY problem is not of a form that screening can reduce; the message says why."""


class NotScreenedWarning(UserWarning):
    """``prob.solve(method="screen")`` did not recognise a problem, and CVXPY solved it plainly."""


class NotCertified(CvxscreenError):
    """An answer was requested although its certificate does not hold."""


class NotSaved(CvxscreenError, OSError):
    """Finished points could not be written to their file; they are in `path`."""

    path: Any = None


class TooLarge(CvxscreenError, MemoryError):
    """Something cannot fit into memory; the message says how large it is and what to do instead."""


class UnsafeEvidence(CvxscreenError):
    """Two proofs about the same term contradict each other, so one of them is wrong."""


class MissingDependency(CvxscreenError, ImportError):
    """An optional library is needed; the message names the extra to install."""
