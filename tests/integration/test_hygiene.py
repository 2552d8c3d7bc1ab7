"""The state of the tree: names, sizes, leftovers, imports, and a README that does what it says."""

from __future__ import annotations

import ast
import inspect
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

import cvxscreen

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "cvxscreen"
README = ROOT / "README.md"

TALKERS = {"cvxscreen/cli/commands.py", "cvxscreen/cvxpy_plugin/request.py"}
"""Files that may print; so may any file of a package ``cvxscreen/cli/``."""

LEFT_OVER = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X)\b")
MACHINE_PATH = re.compile(
    r"(?<![\w.:/$}])/(?:home|root|Users|tmp|var|opt|mnt|work)/|\b[A-Z]:\\+Users\b"
)
DISTRIBUTION = {"array_api_compat": "array-api-compat", "lazy_loader": "lazy-loader",
                "sklearn": "scikit-learn"}
"""Where the name to import differs from the name to install."""


def python_files(*folders: str) -> list[Path]:
    """Return the Python files under the given folders of the checkout."""
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


def texts() -> Iterator[tuple[str, str]]:
    """Yield (path in the checkout, text) for everything a reader reads."""
    files = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "pyproject.toml", ".ci/run")
    named = [*(ROOT / name for name in files), *sorted((ROOT / "docs").rglob("*.md"))]
    for path in [*python_files("cvxscreen", "tests"), *named]:
        if path.exists():
            yield path.relative_to(ROOT).as_posix(), path.read_text("utf-8")


@cache
def nodes(source: str) -> tuple[ast.AST, ...]:
    """Return all nodes of the syntax tree of `source`; five tests ask for those of the package."""
    return tuple(ast.walk(ast.parse(source)))


def prints(source: str) -> list[int]:
    """Return the lines that call print."""
    calls = [node for node in nodes(source) if isinstance(node, ast.Call)]
    return [call.lineno for call in calls if getattr(call.func, "id", "") == "print"]


def lines_matching(pattern: re.Pattern[str]) -> list[str]:
    """Return ``path:line`` for every line of the tree that matches."""
    return [
        f"{name}:{number}"
        for name, text in texts()
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


def libraries_of(source: str) -> set[str]:
    """Return the top-level names of everything imported absolutely."""
    found: set[str] = set()
    for node in nodes(source):
        if isinstance(node, ast.Import):
            found.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.split(".")[0])
    return found


class Block(NamedTuple):
    """A fenced block: language, first line (counted from 1) and text."""

    language: str
    line: int
    text: str


def fenced_blocks(markdown: str) -> list[Block]:
    """Return the fenced code blocks of a Markdown text."""
    blocks: list[Block] = []
    opened: tuple[str, int] | None = None
    body: list[str] = []
    for number, line in enumerate(markdown.splitlines(), 1):
        if opened is None and line.startswith("```"):
            opened, body = (line.removeprefix("```").strip(), number + 1), []
        elif opened is not None and line.rstrip() == "```":
            blocks.append(Block(*opened, "\n".join(body)))
            opened = None
        else:
            body.append(line)
    if opened is not None:
        raise ValueError(f"the block opened before line {opened[1]} is never closed")
    return blocks


README_BLOCKS = fenced_blocks(README.read_text("utf-8")) if README.exists() else []
PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = [
    (page, block)
    for page in PAGES
    for block in fenced_blocks(page.read_text("utf-8")) if block.language == "python"
]


def test_public_names_exist_sorted_and_documented() -> None:
    names = list(cvxscreen.__all__)
    assert names
    assert names == sorted(set(names))
    for name in names:
        value = getattr(cvxscreen, name)
        if inspect.ismodule(value) or inspect.isclass(value) or inspect.isroutine(value):
            text = value.__doc__ or ""
            made_by_dataclass = text.startswith(f"{name}(")
            assert text.strip(), f"{name} has no docstring"
            assert not made_by_dataclass, f"{name} has only the docstring dataclass() makes"


POSITIONAL = 9
"""Most positional parameters of a function; what needs more takes a record with names."""


def test_no_function_has_more_positional_parameters_than_can_be_read() -> None:
    many = [
        f"{path.name}:{node.lineno} {node.name}"
        for path in python_files("cvxscreen")
        for node in nodes(path.read_text("utf-8"))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and len(node.args.posonlyargs) + len(node.args.args) > POSITIONAL
    ]
    assert not many, "\n".join(many)


def test_no_crumbs() -> None:
    """A small module that one sibling alone imports is part of that sibling's idea."""
    sources = {
        path.relative_to(PACKAGE).as_posix(): path.read_text("utf-8")
        for path in python_files("cvxscreen")
    }
    users: dict[str, set[str]] = {name: set() for name in sources}
    for name, source in sources.items():
        for node in nodes(source):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cvxscreen"):
                place = (node.module or "").removeprefix("cvxscreen").lstrip(".").replace(".", "/")
                for alias in node.names:
                    for found in (f"{place}.py", f"{place}/{alias.name}.py".lstrip("/")):
                        if found in users:
                            users[found].add(name)
    small = {
        name for name, source in sources.items()
        if source.count("\n") < 90 and not name.endswith("__init__.py") and len(users[name]) == 1
        and Path(next(iter(users[name]))).parent == Path(name).parent
    }
    assert not small, f"under 90 lines, and one sibling alone imports them: {sorted(small)}"


def test_only_the_shell_command_and_the_verbose_solve_print() -> None:
    loud = {
        path.relative_to(ROOT).as_posix(): found
        for path in python_files("cvxscreen")
        if (found := prints(path.read_text("utf-8")))
    }
    silent = {name for name in loud if not name.startswith("cvxscreen/cli/")} - TALKERS
    assert not silent, {name: loud[name] for name in silent}


def test_nothing_is_left_undone() -> None:
    assert lines_matching(LEFT_OVER) == []


def test_no_path_of_one_machine() -> None:
    assert lines_matching(MACHINE_PATH) == []


@pytest.mark.parametrize(
    ("pattern", "line", "hit"),
    [
        (LEFT_OVER, "x = 1  # TO" "DO: rest", True),
        (LEFT_OVER, "todos = []", False),
        (MACHINE_PATH, "open('/ho" "me/me/data.csv')", True),
        (MACHINE_PATH, "https://example.org/home/page", False),
        (MACHINE_PATH, "path = here/home/x", False),
    ],
)
def test_the_patterns_hit_what_they_should(pattern: re.Pattern[str], line: str, hit: bool) -> None:
    assert bool(pattern.search(line)) is hit


def test_print_is_found_in_code_and_not_in_words() -> None:
    assert prints("x = 1\nif x:\n    print(x)") == [3]
    assert prints("'''print(x)'''\nblueprint(x)") == []


def test_every_library_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"]]
    for extra in ("plot", "dask", "frames", "gpu"):
        wanted += extras[extra]
    declared = {re.split(r"[^\w-]", requirement)[0] for requirement in wanted}
    used = set().union(*(libraries_of(p.read_text("utf-8")) for p in python_files("cvxscreen")))
    outside = used - set(sys.stdlib_module_names) - {"cvxscreen"}
    assert {DISTRIBUTION.get(name, name) for name in outside} <= declared


def test_types_are_shipped() -> None:
    assert (Path(cvxscreen.__file__).parent / "py.typed").exists()


def test_readme_is_there_with_examples() -> None:
    assert README.exists()
    assert EXAMPLES


@pytest.mark.parametrize(
    ("page", "block"), EXAMPLES, ids=[f"{page.name}:{block.line}" for page, block in EXAMPLES]
)
def test_an_example_of_the_documentation_runs(
    page: Path, block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = "\n" * (block.line - 1) + block.text  # a traceback names the page's lines
    exec(compile(source, str(page), "exec"), {"__name__": "__main__"})


def test_readme_and_ci_run_the_same_checks() -> None:
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    assignments = re.findall(r"^check=(.+)$", script, flags=re.MULTILINE)
    assert len(assignments) == 1
    [command] = shlex.split(assignments[0])
    assert "pytest" in command
    # Its first step, and then all the others.
    assert '\ninstall="${check%% && *}" checks="${check#* && }"\neval "$install"\n' in script
    assert '\neval "$checks"\n' in script
    shown = [line for b in README_BLOCKS if b.language != "python" for line in b.text.splitlines()]
    assert command in shown, f"README.md lacks this line in a fenced block: {command}"


def test_the_oldest_cvxpy_that_is_admitted_is_tested() -> None:
    """By the checks (which read it from pyproject.toml), and alone, as pip resolves it."""
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    [oldest] = re.findall(r'^  "cvxpy>=([0-9.]+)",$', project, flags=re.MULTILINE)
    assert '"cvxpy==$oldest"' in (ROOT / ".ci" / "run").read_text("utf-8")
    workflow = (ROOT / ".github" / "workflows" / "tests.yml").read_text("utf-8")
    [matrix] = re.findall(r"^ +cvxpy: \[(.*)\]$", workflow, flags=re.MULTILINE)
    versions = [entry.strip().strip('"') for entry in matrix.split(",")]
    assert versions[0] == f"=={oldest}"
    assert versions[-1] == ""  # the newest


def test_fenced_blocks_are_found() -> None:
    text = "a\n```python\nx = 1\n\ny = 2\n```\nb\n```bash\nls\n```\n"
    assert fenced_blocks(text) == [Block("python", 3, "x = 1\n\ny = 2"), Block("bash", 9, "ls")]
    with pytest.raises(ValueError, match="never closed"):
        fenced_blocks("```python\nx = 1\n")
