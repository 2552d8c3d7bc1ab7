"""Modules import only from the layers above their own; outside libraries stay where they belong.

The table below is read from the top: a row may import from earlier rows, never from its own row and
never from a later one. A module that is not in the table is refused until somebody places it.
Imports for type checkers count like any other.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "cvxscreen"

ROWS = (
    (
        "compiling", "errors", "interrupts", "pieces", "progress", "registration", "rounding",
        "shares", "tables",
    ),
    ("inputs", "whole_files"),
    ("matrices",),
    ("capacity", "limits", "chunk_loops", "cone_loops", "pair_loops", "product_loops", "prox"),
    ("kernels",),
    ("kernel_rows", "pair_table", "streams", "term_sets"),
    ("row_columns", "sources"),
    ("losses", "designs", "cones"),
    ("chunk_rows", "chunk_terms", "columns", "quadratic", "penalty"),
    ("chunks",),
    ("chunk_survey", "problem"),
    ("balance", "certificate_balance", "chunk_slopes", "held", "point", "proximity"),
    ("start", "certificate_terms", "packed"),
    ("certificate_held",),
    ("duality", "certificate"),  # so the certificate shares nothing with what it judges
    ("metric_certificate", "certificate_batch", "chunk_certificate"),
    ("regions",),
    ("bounds",),
    ("rules",),
    ("lam_ranges", "lp_svm", "ranges", "selection"),
    ("lp_solve", "screening"),
    ("solvers",),
    ("multitask",),
    ("reducer",),
    ("doors", "plots", "datasets", "checkpoint"),
    ("path_record",),
    ("lp_path", "path_metric", "path_run"),
    ("paths",),
    ("parameters",),
    ("models",),
    ("estimators",),
    ("demo", "arguments"),
    ("cli",),
)
ROW_OF = {part: row for row, parts in enumerate(ROWS) for part in parts}

FAMILIES = {
    "bounds", "estimators", "models", "multitask", "plots", "prox", "reducer", "regions", "solvers",
    "sources",
}
"""Packages whose modules may import each other."""

HOMES = {
    "cvxpy": {"reducer", "registration"},
    "sklearn": {"models", "datasets", "estimators"},
    "matplotlib": {"plots"},
    "dask": {"sources"},
    "distributed": {"sources"},
}
"""Outside libraries that only some parts of the package may import."""

LATE = {
    ("cvxscreen.registration", "cvxscreen.cvxpy_plugin"),
    ("cvxscreen.core.problem", "cvxscreen.cvxpy_plugin.build"),
    ("cvxscreen.multitask.problem", "cvxscreen.cvxpy_plugin.build"),
    ("cvxscreen.solvers.lp_svm", "cvxscreen.cvxpy_plugin.build"),
    ("cvxscreen.api", "cvxscreen.cvxpy_plugin.inner"),
    ("cvxscreen.paths.path", "cvxscreen.cvxpy_plugin.parameter_path"),
    ("cvxscreen.cli.commands", "cvxscreen.cli.demo"),
    ("cvxscreen.cli.commands", "cvxscreen.cvxpy_plugin.doors"),
}
"""Imports inside a function, of the parts that load CVXPY: it takes longer to import than all the
rest, and is loaded when a problem of CVXPY's own, or one of its solvers, comes in. The first three
reach down a layer: `to_cvxpy` and ``method="screen"`` are doors in a place where users look."""


class Import(NamedTuple):
    """One import as written: the module it reaches, the names it takes, and how it does it."""

    target: str
    names: tuple[str, ...]
    line: int
    delayed: bool
    opaque: bool = False


def part_of(module: str) -> str:
    """Return the row entry of a module: ``cvxscreen.solvers.loop`` is of part ``solvers``."""
    return [*module.split("."), ""][1]


def imports(module: str, tree: ast.AST, *, is_package: bool) -> Iterator[Import]:
    """Yield every import in `tree`, relative ones resolved, with those inside functions marked."""
    package = module.split(".") if is_package else module.split(".")[:-1]

    def visit(node: ast.AST, delayed: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, (), node.lineno, delayed)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            target = ".".join([*above, *(node.module.split(".") if node.module else [])])
            names = tuple(alias.name for alias in node.names)
            if target == "cvxscreen":  # `from cvxscreen import losses` reaches cvxscreen.core.losses
                for name in names:
                    reached = f"cvxscreen.{name}" if name in ROW_OF else target
                    yield Import(reached, (name,), node.lineno, delayed)
            else:
                yield Import(target, names, node.lineno, delayed)
        elif isinstance(node, ast.Call):
            called = node.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if name in {"import_module", "__import__"}:
                given = node.args[0] if node.args else None
                value = given.value if isinstance(given, ast.Constant) else None
                plain = isinstance(value, str) and not value.startswith(".")
                yield Import(value if plain else "?", (), node.lineno, delayed, not plain)
        inside = delayed or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, inside)

    return visit(tree, False)


def fault_of(module: str, found: Import, *, is_package: bool) -> str | None:
    """Return what is wrong with one import of `module`, or None."""
    part, target = part_of(module), found.target
    library = target.split(".")[0]
    if found.opaque:
        if module == "cvxscreen":  # from its table of public names, which a test reads
            return None
        return "imports a module whose name cannot be read from the source"
    if library in HOMES and part not in HOMES[library]:
        return f"imports {library}, which belongs to {sorted(HOMES[library])}"
    if library != "cvxscreen":
        return None
    if found.delayed:
        if (module, target) in LATE:
            return None
        return f"imports {target} inside a function"
    reached = part_of(target)
    if not reached:
        return "imports the top of the package, which imports everything"
    if reached not in ROW_OF:
        return f"imports {target}, which has no layer"
    if module == "cvxscreen":
        private = [name for name in found.names if name.startswith("_")]
        return f"imports private names {private} from {target}" if private else None
    if reached == part:
        own_init = is_package and module == f"cvxscreen.{part}"
        return None if part in FAMILIES or own_init else f"imports its sibling {target}"
    if ROW_OF[reached] == ROW_OF[part]:
        return f"imports its sibling {target}"
    if ROW_OF[reached] > ROW_OF[part]:
        return f"imports {target} from a lower layer"
    return None


def violations(module: str, source: str, *, is_package: bool = False) -> list[str]:
    """Return one line for each rule that the source of `module` breaks."""
    if module != "cvxscreen" and part_of(module) not in ROW_OF:
        return [f"{module} has no layer: place it in the table of this test"]
    found = imports(module, ast.parse(source), is_package=is_package)
    faults = ((entry.line, fault_of(module, entry, is_package=is_package)) for entry in found)
    return [f"{module}:{line} {fault}" for line, fault in faults if fault]


def package_sources() -> Iterator[tuple[str, str, bool]]:
    """Yield (module name, source, is it a package) for every file of cvxscreen."""
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        yield ".".join(parts[:-1] if is_package else parts), path.read_text("utf-8"), is_package


def test_every_module_keeps_to_its_layer() -> None:
    sources = list(package_sources())
    assert "cvxscreen" in [module for module, _, _ in sources]
    faults = [
        fault
        for module, source, is_package in sources
        for fault in violations(module, source, is_package=is_package)
    ]
    assert not faults, "\n".join(faults)


def test_every_late_import_is_still_one() -> None:
    seen = {
        (module, found.target)
        for module, source, is_package in package_sources()
        for found in imports(module, ast.parse(source), is_package=is_package)
        if found.delayed
    }
    assert seen >= LATE


def test_no_part_is_named_twice() -> None:
    assert len(ROW_OF) == sum(len(parts) for parts in ROWS)
    assert set(ROW_OF) >= FAMILIES.union(*HOMES.values())


REFUSED = [
    ("cvxscreen.helpers", "", "has no layer"),
    ("cvxscreen.screening.verdict", "import cvxscreen.helpers", "has no layer"),
    ("cvxscreen.core.losses", "from cvxscreen.core.cones import FREE", "sibling"),
    ("cvxscreen.core.losses", "from .cones import FREE", "sibling"),
    ("cvxscreen.designs.rows", "from cvxscreen.designs.gram import Gram", "sibling"),
    ("cvxscreen.designs.rows", "from . import gram", "sibling"),
    ("cvxscreen.certificates.certificate", "from cvxscreen.core.duality import gap", "sibling"),
    ("cvxscreen.certificates.certificate", "from cvxscreen.bounds.regions import Ball", "lower layer"),
    ("cvxscreen.bounds.regions", "from cvxscreen.bounds import dvi", "lower layer"),
    ("cvxscreen.solvers.loop", "from cvxscreen.cvxpy_plugin import build", "lower layer"),
    ("cvxscreen.solvers.loop", "from ..paths import Path", "lower layer"),
    ("cvxscreen.screening.verdict", "from cvxscreen import plots", "lower layer"),
    ("cvxscreen.models.svm", "import cvxscreen.cli.commands", "lower layer"),
    ("cvxscreen.plots", "import cvxscreen.datasets", "sibling"),
    ("cvxscreen.core.problem", "import cvxscreen", "top of the package"),
    ("cvxscreen.core.problem", "from cvxscreen import __version__", "top of the package"),
    ("cvxscreen.core.problem", "from . import solve", "top of the package"),
    ("cvxscreen", "from cvxscreen.core.losses import _secret", "private"),
    ("cvxscreen.screening.verdict", "def f():\n    from cvxscreen.core.problem import P", "inside a function"),
    ("cvxscreen.api", "def f():\n    from cvxscreen.cvxpy_plugin import build", "inside a function"),
    ("cvxscreen.api", "from cvxscreen import paths", "lower layer"),
    ("cvxscreen.screening.verdict", "async def f():\n    import cvxscreen.paths.path", "inside a function"),
    ("cvxscreen.screening.verdict", "class A:\n    def f(self):\n        import cvxscreen.core.problem", "inside"),
    (
        "cvxscreen.core.problem",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from cvxscreen.paths.path import Path",
        "lower layer",
    ),
    ("cvxscreen.screening.verdict", "from importlib import import_module\nimport_module(name)", "be read"),
    ("cvxscreen.screening.verdict", "import importlib\nimportlib.import_module('.path', 'x')", "be read"),
    ("cvxscreen.screening.verdict", "__import__('cvxscreen.paths.path')", "lower layer"),
    ("cvxscreen.core.problem", "import cvxpy as cp", "imports cvxpy"),
    ("cvxscreen", "import cvxpy", "imports cvxpy"),
    ("cvxscreen.core.problem", "def f():\n    from cvxpy import Variable", "imports cvxpy"),
    ("cvxscreen.cli.commands", "from sklearn.datasets import load_svmlight_file", "imports sklearn"),
    ("cvxscreen.paths.path", "def plot():\n    import matplotlib.pyplot", "imports matplotlib"),
]


@pytest.mark.parametrize(("module", "source", "words"), REFUSED)
def test_refuses(module: str, source: str, words: str) -> None:
    faults = violations(module, source)
    assert len(faults) == 1
    assert words in faults[0]


ACCEPTED = [
    ("cvxscreen.core.losses", "import numpy\nfrom cvxscreen.errors import InvalidInput", False),
    ("cvxscreen.certificates.certificate", "from cvxscreen.core.problem import P\nimport cvxscreen.core.losses", False),
    ("cvxscreen.bounds", "from cvxscreen.bounds.regions import Ball", False),
    ("cvxscreen.solvers.dcd", "from cvxscreen.solvers.loop import run\nfrom . import loop", False),
    ("cvxscreen.cvxpy_plugin.build", "import cvxpy\nfrom cvxscreen.solvers import solve", False),
    ("cvxscreen.cvxpy_plugin.build", "from .recognise import Layout", False),
    ("cvxscreen.designs", "from .rows import Rows\nfrom cvxscreen.designs.gram import G", True),
    ("cvxscreen.plots", "def f():\n    from matplotlib.figure import Figure", False),
    ("cvxscreen.datasets", "def f():\n    import sklearn.datasets", False),
    ("cvxscreen", "from cvxscreen.cli.commands import main\nfrom cvxscreen import bounds", True),
    ("cvxscreen.cli.commands", "from cvxscreen import paths\nfrom . import plots", False),
    ("cvxscreen.api", "def f():\n    from cvxscreen.cvxpy_plugin.inner import cvxpy_inner", False),
    ("cvxscreen", "from importlib import import_module\nimport_module(name)", True),
]


@pytest.mark.parametrize(("module", "source", "is_package"), ACCEPTED)
def test_accepts(module: str, source: str, is_package: bool) -> None:
    assert violations(module, source, is_package=is_package) == []
