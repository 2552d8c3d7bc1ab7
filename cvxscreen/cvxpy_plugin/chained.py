"""Linear programs with as many variables as rows that hang together like a chain: drawdowns.

Nothing can be left out of them, but a step of the interior point method costs a tenth of what it
does for a solver that does not see the chain (`cvxscreen.solvers.chains`). CVXPY compiles the
problem, and takes the answer as that of its solver, with all dual values.
"""

from __future__ import annotations

import weakref
from time import perf_counter, thread_time
from types import SimpleNamespace
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen.certificates.linear_program import LinearProof, proven
from cvxscreen.cvxpy_plugin.history import history
from cvxscreen.cvxpy_plugin.request import DEFAULT, Report, Request, with_report
from cvxscreen.cvxpy_plugin.size import measured
from cvxscreen.solvers.chains import ENOUGH, ChainSolution, solve_chain

Array = NDArray[np.float64]

NO_CHAIN = "its variables are no chain beside few others"
NOT_SOLVED = "the interior point method for chains came to no optimum"


class _Program(NamedTuple):
    """``min <q, x>`` with ``A x + s = b``, s = 0 in the first rows and ``>= 0`` in the others."""

    q: Array
    A: Any
    b: Array
    equal: int

    @classmethod
    def of(cls, data: dict[str, Any]) -> _Program | None:
        """What CVXPY has compiled; None where that is more than a linear program."""
        settings = cp.settings
        dims, P = data["dims"], data.get(settings.P)
        others = dims.soc or dims.exp or dims.psd or dims.p3d or getattr(dims, "pnd", None)
        if others or (P is not None and P.nnz):
            return None
        return cls(data[settings.C], sp.csr_matrix(data[settings.A]), data[settings.B], dims.zero)

    def same(self, other: _Program) -> bool:
        """Whether both are the same numbers."""
        return (
            self.A.shape == other.A.shape and self.equal == other.equal
            and np.array_equal(self.q, other.q) and np.array_equal(self.b, other.b)
            and np.array_equal(self.A.data, other.A.data)
            and np.array_equal(self.A.indices, other.A.indices)
            and np.array_equal(self.A.indptr, other.A.indptr)
        )

    def solved(self) -> tuple[ChainSolution, Array, LinearProof] | str:
        """Its solution, all multipliers, and their certificate; or why there is none."""
        k = self.equal
        found = solve_chain(self.q, (self.A[k:], self.b[k:]), (self.A[:k], self.b[:k]))
        if found is None:
            return NO_CHAIN
        z = np.concatenate([found.y, found.z])
        proof = proven(self.q, (self.A, self.b, k), found.x, z)
        if not (found.solved and proof.violation <= ENOUGH):
            return NOT_SOLVED
        return found, z, proof


_LAST: weakref.WeakKeyDictionary[Any, tuple[_Program, Any]] = weakref.WeakKeyDictionary()
"""The last program of a problem, and what it was solved to."""

_NONE: weakref.WeakSet[Any] = weakref.WeakSet()
"""Problems that are none."""


def solve_chained(problem: Any, request: Request) -> str:
    """Solve `problem` and write it back; an empty text, or why that was not done."""
    began = perf_counter()
    # CVXPY does not count running maxima as piecewise linear.
    linear = problem.is_lp() or cp.cummax in problem.atoms()
    if problem in _NONE or not linear or problem.is_mixed_integer() or measured(problem).quadratic:
        return NO_CHAIN
    try:
        options = {k: v for k, v in request.options.items() if k in COMPILING}
        data, chain, inverse = problem.get_problem_data(DEFAULT, solver_opts={}, **options)
        program = _Program.of(data)
    except Exception as error:  # CVXPY says it again where it is the problem's own
        return f"it was not compiled ({type(error).__name__})"
    if program is None:
        _NONE.add(problem)
        return NO_CHAIN
    compiled, compiled_cpu = perf_counter(), thread_time()
    last = _LAST.get(problem)
    again = last is not None and program.same(last[0])
    answer = last[1] if last is not None and again else program.solved()
    _LAST[problem] = program, answer
    if isinstance(answer, str):
        if answer == NO_CHAIN:
            _NONE.add(problem)
        else:
            history(problem).vain += thread_time() - compiled_cpu
        return answer
    found, z, proof = answer
    if proof.relative_gap > request.tol:
        return NOT_SOLVED
    ended = perf_counter()
    steps = 0 if again else found.steps
    solution = SimpleNamespace(
        status="Solved", x=found.x, s=found.s, z=z, obj_val=proof.value, iterations=steps,
        solve_time=ended - compiled,
    )
    problem.unpack_results(solution, chain, inverse)
    rows = program.A.shape[0] - program.equal
    report = Report(
        True, mode=request.mode, solver="CHAINS", terms=rows, kept=rows, gap=proof.gap,
        relative_gap=proof.relative_gap, rounds=1,
        times={"recognise": compiled - began, "solve": ended - compiled},
    )
    stats = problem.solver_stats
    stats.solver_name, stats.extra_stats = "CHAINS", with_report(report, None)
    request.say(report)
    return ""


COMPILING = ("ignore_dpp", "enforce_dpp", "canon_backend")
"""Options of ``prob.solve`` that CVXPY compiles by."""
