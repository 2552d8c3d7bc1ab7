"""A problem that is solved plainly, with its tall least squares written as short ones.

Beside terms and variables that no rule takes (an entropy, a nuclear norm, integers) nothing can be
left out, but what the squares cost can: CVXPY gets the triangle of their residuals
(`cvxscreen.cvxpy_plugin.recognise.triangular`), the same variables and the same constraints, and
whatever solver was asked for. Both lengths are compared at the answer.
"""

from __future__ import annotations

import weakref
from typing import Any

from cvxscreen.cvxpy_plugin.answer import StoredAnswer
from cvxscreen.cvxpy_plugin.recognise.triangular import Shortened, with_triangles

Short = tuple[Any, tuple[Shortened, ...]]

_KNOWN: weakref.WeakKeyDictionary[Any, Short | None] = weakref.WeakKeyDictionary()
"""What became of each problem met; an expression tree never changes."""


def with_short_squares(problem: Any) -> Short | None:
    """`problem` with triangles in place of long residuals, and these; None where it has none.

    What CVXPY has compiled of it is kept for the next solve.

    Parameters
    ----------
    problem : cvxpy.Problem
    """
    if problem not in _KNOWN:
        made = with_triangles(problem, objective=True) if problem.is_dcp() else (problem, ())
        _KNOWN[problem] = made if made[1] else None
    return _KNOWN[problem]


def write_answer(problem: Any, short: Short) -> bool:
    """Make the answer of the short problem the user's; False where it is not one of theirs.

    CVXPY evaluates the user's own objective for its value, on all of the data.
    """
    solved, shortened = short
    if not all(one.agrees() for one in shortened):
        return False
    StoredAnswer.of(solved).write(problem)
    problem._compilation_time = solved.compilation_time
    return True
