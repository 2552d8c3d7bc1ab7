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
    """Base class of all errors raised by cvxscreen.

    Examples
    --------
    >>> import cvxscreen
    >>> try:
    ...     cvxscreen.svm([[1.0], [2.0]], [1, 1])
    ... except cvxscreen.CvxscreenError as error:               # whatever the package refuses
    ...     print(type(error).__name__)
    InvalidInput
    """


class InvalidInput(CvxscreenError, ValueError):
    """An argument cannot be used; the message names it, what was found and what to do.

    Examples
    --------
    >>> import cvxscreen
    >>> try:
    ...     cvxscreen.svm([[1.0], [2.0]], [1, -1], C=-1.0)
    ... except cvxscreen.InvalidInput as error:                 # also a ValueError
    ...     print(error)
    `C` is -1.0; a positive finite number is needed.
    """


class UnknownName(InvalidInput):
    """A name (loss, bound, solver, mode) that is not among the known ones.

    Examples
    --------
    >>> import cvxscreen
    >>> try:
    ...     cvxscreen.svm([[1.0], [2.0]], [1, -1], loss="hing")
    ... except cvxscreen.UnknownName as error:
    ...     print(error)
    `loss` is 'hing'; choose one of: hinge, smoothed_hinge, squared_hinge.
    """

    @classmethod
    def among(
        cls, argument: str, found: object, known: Iterable[str], elsewhere: Iterable[str] = ()
    ) -> UnknownName:
        """Build the message for `argument` given `found` where one of `known` was expected.

        Names `elsewhere` exist, but not for what was asked.
        """
        names = set(known)
        message = f"`{argument}` is {quoted(found)}; choose one of: {', '.join(sorted(names))}."
        others = sorted(set(elsewhere) - names)
        return cls(f"{message} For other problems: {', '.join(others)}." if others else message)


class NotScreenable(CvxscreenError):
    """A CVXPY problem is not of a form that screening can reduce; the message says why.

    Examples
    --------
    >>> import cvxpy as cp, cvxscreen
    >>> x = cp.Variable(2)
    >>> try:
    ...     cvxscreen.reduce(cp.Problem(cp.Minimize(cp.sum(x)), [x >= 1]))
    ... except cvxscreen.NotScreenable as error:
    ...     print(str(error).split(":")[0])
    no loss term was found
    """


class NotScreenedWarning(UserWarning):
    """``prob.solve(method="screen")`` did not recognise a problem, and CVXPY solved it plainly."""


class NotCertified(CvxscreenError):
    """An answer was requested although its certificate does not hold.

    Examples
    --------
    >>> import cvxpy as cp, cvxscreen
    >>> X, y = cvxscreen.datasets.two_gaussians(200, 3)
    >>> w = cp.Variable(3)
    >>> loss = cp.sum(cp.pos(1 - cp.multiply(y, X @ w)))
    >>> prob = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w) + 0.1 * loss))
    >>> reduced = cvxscreen.reduce(prob)
    >>> try:
    ...     reduced.restore()                                   # before reduced.problem.solve()
    ... except cvxscreen.NotCertified as error:
    ...     print(str(error).split(",")[0])
    the reduced problem has not been solved
    """


class NotSaved(CvxscreenError, OSError):
    """Finished points could not be written to their file; they are in `path`."""

    path: Any = None


class TooLarge(CvxscreenError, MemoryError):
    """Something cannot fit into memory; the message says how large it is and what to do instead.

    Examples
    --------
    >>> import cvxscreen
    >>> X, y = cvxscreen.datasets.two_gaussians(2000, 3)
    >>> try:
    ...     with cvxscreen.memory_limit(2**20):
    ...         problem = cvxscreen.svm(X, y, kernel="rbf")
    ... except cvxscreen.TooLarge as error:
    ...     print(str(error).split(" (")[0])
    a cache of 2,000 of the 2,000 rows of the Gram matrix needs 30.5 MiB
    """


class UnsafeEvidence(CvxscreenError):
    """Two proofs about the same term contradict each other, so one of them is wrong."""


class MissingDependency(CvxscreenError, ImportError):
    """An optional library is needed; the message names the extra to install."""
