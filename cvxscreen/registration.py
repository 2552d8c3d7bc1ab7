"""``prob.solve(method="screen")`` is there as soon as CVXPY is, and costs nothing before.

CVXPY takes twice the time of everything else to import, and has no way to announce a solve method
before it is imported. So where it is not, an import hook waits for it: a finder that lets all
others find ``cvxpy``, registers with the module once it has been executed, and takes itself away.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from cvxscreen._support.extensions import supplied, supply

CVXPY = "cvxpy"

SUPPLIES = {
    "cvxpy.solve": "cvxscreen.cvxpy_plugin.request:solve",
    "cvxpy.screened": "cvxscreen.cvxpy_plugin.plugin:screened_solve",
    "cvxpy.chained": "cvxscreen.cvxpy_plugin.chained:solve_chained",
    "cvxpy.short_squares": "cvxscreen.cvxpy_plugin.recognise.short_squares:with_short_squares",
    "cvxpy.written_out": "cvxscreen.cvxpy_plugin.recognise.short_squares:written_out",
    "cvxpy.short_answer": "cvxscreen.cvxpy_plugin.answer:write_short_answer",
    "cvxpy.another_solver": "cvxscreen.cvxpy_plugin.plugin:another_solver",
    "cvxpy.solver": "cvxscreen.cvxpy_plugin.cvxpy_solver:named_cvxpy_solver",
    "cvxpy.certify": "cvxscreen.cvxpy_plugin.inspection:certify_cvxpy",
    "cvxpy.leave_one_out": "cvxscreen.cvxpy_plugin.rows_left_out:rows_left_out",
    "cvxpy.path": "cvxscreen.cvxpy_plugin.parameter_path:parameter_path",
    "cvxpy.problem": "cvxscreen.cvxpy_plugin.cvxpy_solver:to_cvxpy",
    "cvxpy.multitask": "cvxscreen.cvxpy_plugin.cvxpy_solver:joint_sdp",
    "cvxpy.multitask_solver": "cvxscreen.cvxpy_plugin.cvxpy_solver:solve_joint_sdp",
}
"""What `cvxscreen._support.extensions` hands to lower layers: the plugin, and a later file."""


def solve(problem: Any, *args: Any, **options: Any) -> Any:
    """Solve a ``cvxpy.Problem`` by screening; see `cvxscreen.cvxpy_plugin.request.solve`."""
    return supplied("cvxpy.solve")(problem, *args, **options)


def register() -> None:
    """Make ``prob.solve(method="screen")`` available, now or when CVXPY is imported."""
    for name, place in SUPPLIES.items():
        supply(name, place)
    if CVXPY in sys.modules:
        import cvxpy  # waits where another thread is just importing it

        _announce(cvxpy)
    elif not any(isinstance(finder, _Watch) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Watch())


def _announce(cvxpy: ModuleType) -> None:
    cvxpy.Problem.register_solve("screen", solve)


class _Watch(MetaPathFinder):
    """Finds nothing itself; wraps the loader that the others find for CVXPY."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of CVXPY with a loader that registers afterwards; None for all other names."""
        if fullname != CVXPY:
            return None
        finders = [finder for finder in sys.meta_path if not isinstance(finder, _Watch)]
        for finder in finders:
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = None if find is None else find(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Announcing(spec.loader, self)
                return spec
        return None


class _Announcing(Loader):
    """Another loader, and `register` after it; gone from the module before its code runs."""

    def __init__(self, loader: Loader, watch: _Watch) -> None:
        self._loader, self._watch = loader, watch

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """As the other loader does."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """As the other loader does; then CVXPY knows the method and nobody watches any more."""
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        _announce(module)
        if self._watch in sys.meta_path:
            sys.meta_path.remove(self._watch)

    def __getattr__(self, name: str) -> Any:
        # Whoever only looks at the spec (for resources, a file name) sees the other loader.
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._loader, name)
