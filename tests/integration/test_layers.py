"""Folders import only from the layers above their own; outside libraries stay where they belong.

The table below is read from the top: a folder, or a module at the package's root, may import from
earlier rows, never from another of its own row and never from a later one. Inside a folder modules
may import each other, but not in a circle. Imports for type checkers count like any other, and none
is hidden inside a function but those of `LATE`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "cvxscreen"

ROWS = (
    ("errors",),
    ("_support",),
    ("registration",),
    ("out_of_core",),
    ("designs",),
    ("core",),
    ("certificates", "bounds"),
    ("screening",),
    ("solvers",),
    ("multitask",),
    ("plots", "datasets"),
    ("api",),
    ("data_changes", "paths"),
    ("cvxpy_plugin", "models"),
    ("estimators",),
    ("cli",),
    ("__main__",),
)
ROW_OF = {part: row for row, parts in enumerate(ROWS) for part in parts}

APART = {
    "cvxscreen.certificates": {
        "cvxscreen.core.duality", "cvxscreen.core.closed_form",
    },
}
"""What a folder may not import though it lies above: a certificate shares no formula with what it
judges."""

HOMES = {
    "cvxpy": {"cvxpy_plugin", "registration", "cli"},
    "sklearn": {"models", "datasets", "estimators"},
    "matplotlib": {"plots"},
    "dask": {"out_of_core"},
    "distributed": {"out_of_core"},
}
"""Outside libraries that only some parts of the package may import."""

LATE = {
    ("cvxscreen.bounds.theorems", "cvxscreen.bounds.regions.cone_ball"),
    ("cvxscreen.cli.commands", "cvxscreen.cli.demo"),
    ("cvxscreen.cli.commands", "cvxscreen.cvxpy_plugin.inspection"),
    ("cvxscreen.cli.commands", "cvxscreen.estimators"),
    ("cvxscreen.cvxpy_plugin.plugin", "cvxscreen.cvxpy_plugin.budgets"),
    ("cvxscreen.cvxpy_plugin.plugin", "cvxscreen.cvxpy_plugin.composite"),
    ("cvxscreen.cvxpy_plugin.plugin", "cvxscreen.cvxpy_plugin.cvxpy_solver"),
    ("cvxscreen.cvxpy_plugin.plugin", "cvxscreen.cvxpy_plugin.weighed_losses"),
    ("cvxscreen.cvxpy_plugin.plugin", "cvxscreen.solvers.loop"),
    ("cvxscreen.cvxpy_plugin.recognise.recognise", "cvxscreen.cvxpy_plugin.recognise.few_rows"),
    ("cvxscreen.cvxpy_plugin.recognise.recognise", "cvxscreen.cvxpy_plugin.recognise.rules"),
    ("cvxscreen.cvxpy_plugin.solution_cache", "cvxscreen.cvxpy_plugin.recognise.changed_costs"),
    ("cvxscreen.solvers.compiled_path.segments", "cvxscreen.certificates.many"),
    ("cvxscreen.solvers.loop", "cvxscreen.solvers.streamed"),
    ("cvxscreen.solvers.newton", "cvxscreen.solvers.box_qp"),
    ("cvxscreen.solvers.rows", "cvxscreen.solvers.beginning"),
    ("cvxscreen.solvers.rows", "cvxscreen.solvers.dual_coordinate_descent"),
    ("cvxscreen.solvers.rows", "cvxscreen.solvers.truncated_newton"),
    ("cvxscreen.solvers.solve", "cvxscreen.certificates.many"),
    ("cvxscreen.solvers.solve", "cvxscreen.solvers.beginning"),
    ("cvxscreen.solvers.solve", "cvxscreen.solvers.dual_coordinate_descent"),
    ("cvxscreen.solvers.solve", "cvxscreen.solvers.smo"),
    ("cvxscreen.solvers.solve", "cvxscreen.solvers.loop"),
    ("cvxscreen.solvers.solve", "cvxscreen.solvers.metric.solver"),
    ("cvxscreen.solvers.solve", "cvxscreen.solvers.truncated_newton"),
}
"""Imports inside a function, of the parts that load CVXPY or scikit-learn: either takes longer to
import than all the rest, and is loaded when a command wants it; and of what
``prob.solve(method="screen")`` does not need for one loss over data beside squares: the rest of a
call's imports are a tenth of a second. Solvers have places in a table instead (`PLACE`). The
layers below the plugin reach CVXPY by `cvxscreen._support.extensions`, where
`cvxscreen.registration` says what lives where."""

OPAQUE = {"cvxscreen._support.extensions"}
"""Modules that import by a name that is not in their source."""

PLACE = re.compile(r"(cvxscreen(?:\.\w+)+):(\w+)")
"""``"module:name"``, which `cvxscreen._support.extensions` imports when it is asked for; it counts
as an import of the module that says it, but for `cvxscreen.registration`, whose places are those of
lower layers."""


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


@cache
def imports(module: str, source: str, *, is_package: bool) -> list[Import]:
    """Return every import in `source`, relative ones resolved, with those in functions marked."""
    package = module.split(".") if is_package else module.split(".")[:-1]
    found: list[Import] = []

    def visit(node: ast.AST, delayed: bool) -> None:
        if isinstance(node, ast.Import):
            found.extend(Import(alias.name, (), node.lineno, delayed) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            target = ".".join([*above, *(node.module.split(".") if node.module else [])])
            names = tuple(alias.name for alias in node.names)
            if target == "cvxscreen":  # `from cvxscreen import plots` reaches cvxscreen.plots
                for name in names:
                    reached = f"cvxscreen.{name}" if name in ROW_OF else target
                    found.append(Import(reached, (name,), node.lineno, delayed))
            else:
                found.append(Import(target, names, node.lineno, delayed))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            place = PLACE.fullmatch(node.value)
            if place is not None and module != "cvxscreen.registration":
                found.append(Import(place[1], (place[2],), node.lineno, False))
        elif isinstance(node, ast.Call):
            called = node.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if name in {"import_module", "__import__"}:
                given = node.args[0] if node.args else None
                value = given.value if isinstance(given, ast.Constant) else None
                plain = isinstance(value, str) and not value.startswith(".")
                found.append(Import(value if plain else "?", (), node.lineno, delayed, not plain))
        inside = delayed or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            visit(child, inside)

    visit(parsed(source), False)
    return found


def fault_of(module: str, found: Import, *, is_package: bool) -> str | None:
    """Return what is wrong with one import of `module`, or None."""
    part, target = part_of(module), found.target
    library = target.split(".")[0]
    if found.opaque:
        if module in OPAQUE:
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
        return None
    if any(
        module.startswith(folder) and target in kept_away for folder, kept_away in APART.items()
    ):
        return f"imports {target}, with which it must share nothing"
    if ROW_OF[reached] == ROW_OF[part]:
        return f"imports its sibling {target}"
    if ROW_OF[reached] > ROW_OF[part]:
        return f"imports {target} from a lower layer"
    return None


def violations(module: str, source: str, *, is_package: bool = False) -> list[str]:
    """Return one line for each rule that the source of `module` breaks."""
    if module != "cvxscreen" and part_of(module) not in ROW_OF:
        return [f"{module} has no layer: place it in the table of this test"]
    found = imports(module, source, is_package=is_package)
    faults = ((entry.line, fault_of(module, entry, is_package=is_package)) for entry in found)
    return [f"{module}:{line} {fault}" for line, fault in faults if fault]


@cache
def parsed(source: str) -> ast.Module:
    """Return the tree of a source; several tests walk those of the whole package."""
    return ast.parse(source)


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
        for found in imports(module, source, is_package=is_package)
        if found.delayed
    }
    assert seen >= LATE


def test_every_place_is_one() -> None:
    places = [
        found
        for _, source, _ in package_sources()
        for node in ast.walk(parsed(source))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        and (found := PLACE.fullmatch(node.value))
    ]
    assert len(places) > 10
    for module, name in (place.groups() for place in places):
        assert hasattr(import_module(module), name)


def test_no_part_is_named_twice() -> None:
    assert len(ROW_OF) == sum(len(parts) for parts in ROWS)
    assert set(ROW_OF) >= set().union(*HOMES.values())


REFUSED = [
    ("cvxscreen.helpers", "", "has no layer"),
    ("cvxscreen.core.losses", "import cvxscreen.helpers", "has no layer"),
    ("cvxscreen.bounds", "from cvxscreen.certificates.many import certify_all", "sibling"),
    ("cvxscreen.datasets", "from . import plots", "sibling"),
    ("cvxscreen.certificates.one_pass", "from cvxscreen.core.duality import gap", "share nothing"),
    ("cvxscreen.certificates.certificate", "from cvxscreen.bounds import dvi", "sibling"),
    ("cvxscreen.bounds.regions", "from cvxscreen.screening.reduction import judge", "lower layer"),
    ("cvxscreen.solvers.loop", "from cvxscreen.cvxpy_plugin import build", "lower layer"),
    ("cvxscreen.solvers.loop", "from ..paths import Path", "lower layer"),
    ("cvxscreen.screening.reduction", "from cvxscreen import plots", "lower layer"),
    ("cvxscreen.models.linear", "import cvxscreen.cli", "lower layer"),
    ("cvxscreen.plots", "import cvxscreen.datasets", "sibling"),
    ("cvxscreen.core.problem", "import cvxscreen", "top of the package"),
    ("cvxscreen.core.problem", "from cvxscreen import __version__", "top of the package"),
    ("cvxscreen.core.problem", "from .. import solve", "top of the package"),
    ("cvxscreen", "from cvxscreen.core.losses import _secret", "private"),
    ("cvxscreen.bounds", "def f():\n    from cvxscreen.core.problem import P", "inside a function"),
    ("cvxscreen.api", "def f():\n    from cvxscreen.cvxpy_plugin import build", "inside a fun"),
    ("cvxscreen.api", "from cvxscreen import paths", "lower layer"),
    ("cvxscreen.bounds", "async def f():\n    import cvxscreen.paths.path", "inside a function"),
    ("cvxscreen.solvers.registry", "WHERE = 'cvxscreen.paths.path:path'", "lower layer"),
    ("cvxscreen.bounds", "class A:\n    def f(self):\n        import cvxscreen.core", "inside"),
    (
        "cvxscreen.core.problem",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from cvxscreen.paths import Path",
        "lower layer",
    ),
    ("cvxscreen.bounds", "from importlib import import_module\nimport_module(name)", "be read"),
    ("cvxscreen.bounds", "import importlib\nimportlib.import_module('.path', 'x')", "be read"),
    ("cvxscreen.screening.reduction", "__import__('cvxscreen.paths.path')", "lower layer"),
    ("cvxscreen.core.problem", "import cvxpy as cp", "imports cvxpy"),
    ("cvxscreen", "import cvxpy", "imports cvxpy"),
    ("cvxscreen.core.problem", "def f():\n    from cvxpy import Variable", "imports cvxpy"),
    ("cvxscreen.cli", "from sklearn.datasets import load_svmlight_file", "imports sklearn"),
    ("cvxscreen.paths.path", "def plot():\n    import matplotlib.pyplot", "imports matplotlib"),
]


@pytest.mark.parametrize(("module", "source", "words"), REFUSED)
def test_refuses(module: str, source: str, words: str) -> None:
    faults = violations(module, source)
    assert len(faults) == 1
    assert words in faults[0]


ACCEPTED = [
    ("cvxscreen.core.losses", "import numpy\nfrom cvxscreen.errors import InvalidInput", False),
    ("cvxscreen.certificates.many", "from cvxscreen.core.problem import P", False),
    ("cvxscreen.bounds", "from cvxscreen.bounds.regions import Ball", False),
    ("cvxscreen.solvers.dcd", "from cvxscreen.solvers.loop import run\nfrom . import loop", False),
    ("cvxscreen.cvxpy_plugin.reduced", "import cvxpy\nfrom cvxscreen.solvers import loop", False),
    ("cvxscreen.cvxpy_plugin.cvxpy_solver", "from .recognise import Layout", False),
    ("cvxscreen.designs", "from .rows import Rows\nfrom cvxscreen.designs.gram import G", True),
    ("cvxscreen.registration", "WHERE = 'cvxscreen.paths.path:path'", False),
    ("cvxscreen.solvers.registry", "WHERE = 'cvxscreen.solvers.smo:Smo'", False),
    ("cvxscreen.plots", "def f():\n    from matplotlib.figure import Figure", False),
    ("cvxscreen.datasets", "def f():\n    import sklearn.datasets", False),
    ("cvxscreen", "from cvxscreen.cli import main\nfrom cvxscreen import bounds", True),
    ("cvxscreen.cli.commands", "from cvxscreen import paths\nfrom cvxscreen import plots", False),
    ("cvxscreen.cli.commands", "def f():\n    from cvxscreen.cli.demo import run_demo", False),
    ("cvxscreen._support.extensions", "from importlib import import_module as i\ni(name)", False),
]


@pytest.mark.parametrize(("module", "source", "is_package"), ACCEPTED)
def test_accepts(module: str, source: str, is_package: bool) -> None:
    assert violations(module, source, is_package=is_package) == []


def arrows() -> dict[str, set[str]]:
    """The modules that every module imports."""
    sources = list(package_sources())
    known = {module for module, _, _ in sources}
    reached: dict[str, set[str]] = {}
    for module, source, is_package in sources:
        found = imports(module, source, is_package=is_package)
        targets = {
            name
            for entry in found
            for name in [entry.target, *(f"{entry.target}.{n}" for n in entry.names)]
        }
        reached[module] = targets & known - {module}
    return reached


def circle(graph: dict[str, set[str]]) -> list[str]:
    """Some circle of a graph, or nothing."""
    done: set[str] = set()

    def follow(node: str, way: list[str]) -> list[str]:
        if node in way:
            return way[way.index(node):]
        if node not in done:
            for child in sorted(graph[node]):
                if found := follow(child, [*way, node]):
                    return found
            done.add(node)
        return []

    return next((found for node in graph if (found := follow(node, []))), [])


def test_no_module_imports_itself_on_some_way() -> None:
    graph = arrows()
    assert len(graph) > 100
    assert not circle(graph)
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c"]


def test_about_twenty_entries_at_the_root() -> None:
    entries = [p for p in PACKAGE.iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()]
    assert len(entries) <= 22


def test_tests_have_the_folders_of_the_package() -> None:
    folders = {init.parent.name for init in PACKAGE.glob("*/__init__.py")}
    assert len(folders) >= 16
    tests = Path(__file__).resolve().parents[1]
    assert not [folder for folder in sorted(folders) if not any(tests.glob(f"{folder}/**/test_*"))]
