"""What README and documentation say beyond their Python blocks: commands, the table, links."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import cvxscreen
from cvxscreen.cli.commands import main

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "examples" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TEXT = "\n".join(page.read_text("utf-8") for page in PAGES)
BLOCKS = re.findall(r"```sh\n(.*?)```", TEXT, flags=re.DOTALL)
DATA = [line for b in BLOCKS for line in b.splitlines() if line.startswith("python -c ")]
COMMANDS = [line for b in BLOCKS for line in b.splitlines() if line.startswith("cvxscreen ")]
MODELS = (ROOT / "docs" / "models.md").read_text("utf-8")
ROWS = [line.split("|")[1:-1] for line in MODELS.splitlines() if line.startswith("| ")]


def test_the_shell_commands_run(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    [data] = DATA  # the line that writes loans.csv, the subject of all the others
    exec(shlex.split(data)[2])
    assert len(COMMANDS) >= 4
    for command in COMMANDS:
        assert main(shlex.split(command.removesuffix(" | head"))[1:]) == 0, command
        assert capsys.readouterr().out
    assert (tmp_path / "path.png").is_file()


def problems() -> dict[str, cvxscreen.Problem]:
    """One small problem for each row of the table that lists rules by name."""
    X, y = cvxscreen.datasets.two_gaussians(30, 2)
    T = cvxscreen.triplets(X, y, 2)
    return {
        "`svm`": cvxscreen.svm(X, y, intercept=True),
        "`sparse_svm`": cvxscreen.sparse_svm(X, y, 0.01),
        "an L1 norm alone": cvxscreen.sparse_svm(X, y, 0.01, loss="squared_hinge", l2=0),
        "`rtlm`": cvxscreen.rtlm(X, T, 100.0),
    }


@pytest.mark.parametrize("model", ["`svm`", "`sparse_svm`", "an L1 norm alone", "`rtlm`"])
def test_the_table_lists_the_rules_that_apply(model: str) -> None:
    [row] = [cells for cells in ROWS if cells[0].strip().startswith(model)]
    named = re.findall(r"`(\w+)`", row[1])
    assert sorted(named) == sorted(cvxscreen.bounds.available(problems()[model]))


def test_the_table_names_solvers_that_solve() -> None:
    X, y = cvxscreen.datasets.two_gaussians(60, 2)
    for solver in ("CLARABEL", "SCS", "OSQP", "HIGHS"):
        found = cvxscreen.solve(cvxscreen.svm(X, y), solver=solver)
        assert found.status == "optimal"
        assert found.solver == solver
    smooth = cvxscreen.svm(X, y, loss="squared_hinge")
    assert cvxscreen.solve(smooth, solver="apg").status == "optimal"


def test_links_lead_somewhere() -> None:
    links = [(p, x) for p in PAGES for x in re.findall(r"\]\(([^)]+)\)", p.read_text("utf-8"))]
    assert links
    for page, link in links:
        assert link.startswith("http") or (page.parent / link).exists(), (page.name, link)


def test_the_readme_is_read_in_one_go() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 200


def test_every_section_of_the_theory_is_named_by_the_code_that_it_names() -> None:
    theory = (ROOT / "docs" / "theory.md").read_text("utf-8")
    sections = re.split(r"^## (\d+)\. ", theory, flags=re.MULTILINE)[1:]
    texts = dict(zip(map(int, sections[::2]), sections[1::2], strict=True))
    assert set(texts) == set(range(1, 12))
    named: set[int] = set()
    for file in (ROOT / "cvxscreen").rglob("*.py"):
        source = file.read_text("utf-8")
        for found in re.findall(r"docs/theory\.md``, sections? ([\d and]+)", source):
            for number in map(int, found.split(" and ")):
                named.add(number)
                here = file.relative_to(ROOT).with_suffix("").as_posix()
                dotted, short = here.replace("/", "."), here.removeprefix("cvxscreen/")
                text = texts[number]
                assert dotted in text or short in text, (here, number)
    assert named == set(texts)
