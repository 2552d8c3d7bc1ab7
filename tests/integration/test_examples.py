"""The examples: every one runs, draws its picture, is short, and the notebooks are up to date."""

from __future__ import annotations

import importlib.util
import json
import runpy
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from matplotlib.image import imread, imsave

FOLDER = Path(__file__).resolve().parents[2] / "examples"
SCRIPTS = sorted(FOLDER.glob("plot_*.py"))
LONG = {"plot_both_sides": pytest.mark.long}
"""As long as ten others together; tests/plots draws its picture from a table."""
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="the examples are not shipped here")


def module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@pytest.mark.table  # the documentation's workflow runs all of them
@pytest.mark.parametrize("script", [
    pytest.param(script, id=script.stem, marks=LONG.get(script.stem, ())) for script in SCRIPTS
])
def test_an_example_draws_its_picture(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(script))
    [picture] = tmp_path.iterdir()
    assert picture.name == f"{script.stem.removeprefix('plot_')}.png"
    assert imread(picture).std() > 0.05
    assert capsys.readouterr().out, "an example says what it found"


def test_there_are_examples_and_they_are_short() -> None:
    assert len(SCRIPTS) >= 10
    assert len(NOTEBOOKS) == 7
    for script in SCRIPTS:
        assert len(script.read_text("utf-8").splitlines()) < 100, script.name


def test_the_notebooks_are_those_of_their_scripts() -> None:
    maker = module(FOLDER / "make_notebooks.py")
    for name in maker.MADE:
        stored = FOLDER / f"{name.removeprefix('plot_')}.ipynb"
        assert stored in NOTEBOOKS
        made = json.loads(maker.notebook(FOLDER / f"{name}.py", run=False))
        held = json.loads(stored.read_text("utf-8"))
        sources = [[cell["source"] for cell in book["cells"]] for book in (held, made)]
        assert sources[0] == sources[1], "run examples/make_notebooks.py"
        assert held["metadata"] == made["metadata"]
        shown = [part for cell in held["cells"] for part in cell.get("outputs", [])]
        assert "stream" in {part["output_type"] for part in shown}, name
        assert "image/png" in shown[-1]["data"]
        assert stored.stat().st_size < 150_000


def test_outputs_are_those_of_the_cells(tmp_path: Path) -> None:
    maker = module(FOLDER / "make_notebooks.py")
    cells = ["from IPython.display import Image\nimport numpy as np\nx = 2", "print(x)",
             "from PIL import Image as I\nI.new('RGB', (20, 10)).save('a.png')\nImage('a.png')"]
    first, second, third = maker.outputs(cells)
    assert first == []
    assert second == [{"name": "stdout", "output_type": "stream", "text": "2\n"}]
    assert third[0]["data"]["image/png"].startswith("iVBOR")


@pytest.mark.parametrize(
    "book", [path for path in NOTEBOOKS if path.stem in ("safe_region", "own_bound")],
    ids=lambda path: path.stem,
)  # the others are their scripts, which are run above
def test_the_cells_of_a_notebook_run(book: Path, tmp_path: Path, monkeypatch) -> None:
    shown: list[Path] = []
    display = SimpleNamespace(Image=lambda filename: shown.append(filename))
    shell = SimpleNamespace(display=display, version_info=(9, 0), get_ipython=lambda: None)
    monkeypatch.setitem(sys.modules, "IPython", shell)  # matplotlib asks it too
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.chdir(tmp_path)
    cells = [c for c in json.loads(book.read_text("utf-8"))["cells"] if c["cell_type"] == "code"]
    assert len(cells) >= 3
    names: dict[str, object] = {"__name__": "__main__"}
    for cell in cells:
        exec(compile(cell["source"], book.name, "exec"), names)
    assert shown
    assert shown[0].is_file()


def test_all_pictures_by_one_command(tmp_path: Path, monkeypatch, capsys) -> None:
    maker = module(FOLDER / "make_pictures.py")
    for script in SCRIPTS[:2]:
        (tmp_path / script.name).write_text(
            "from pathlib import Path\n"
            f"Path('{script.stem.removeprefix('plot_')}.png').write_text('drawn')"
        )
    monkeypatch.setattr(maker, "HERE", tmp_path)
    drawn = maker.main(tmp_path / "pictures")
    names = [script.stem.removeprefix("plot_") for script in SCRIPTS[:2]]
    assert [path.stem for path in drawn] == names
    assert all(path.is_file() for path in drawn)
    assert "s CPU" in capsys.readouterr().out


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_the_gallery_shows_every_example_with_its_picture(script: Path) -> None:
    name = script.stem.removeprefix("plot_")
    text = (FOLDER / "README.md").read_text("utf-8")
    assert f"](pictures/{name}.png)]({script.name})" in text
    assert imread(FOLDER / "pictures" / f"{name}.png").std() > 0.05


def test_no_picture_is_left_of_an_example_that_is_gone() -> None:
    kept = {path.stem for path in (FOLDER / "pictures").glob("*.png")}
    assert kept == {script.stem.removeprefix("plot_") for script in SCRIPTS}


def test_small_copies_for_the_readme(tmp_path: Path) -> None:
    maker = module(FOLDER / "make_pictures.py")
    large = tmp_path / "large.png"
    imsave(large, np.linspace(0.0, 1.0, 2000 * 100 * 3).reshape(100, 2000, 3))
    maker.shrink([large], tmp_path / "small")
    assert imread(tmp_path / "small" / "large.png").shape[:2] == (64, 1280)


def test_stored_results_become_tables() -> None:
    maker = module(FOLDER / "benchmarks" / "report.py")
    text = maker.page()
    for file in maker.RESULTS.glob("*.json"):
        assert f"## {file.stem}\n" in text
        held = json.loads(file.read_text("utf-8"))
        assert maker.rows_of(held)[1], "rows with names"
        assert held["date"], "stored by `store`, or through `with_origin`"
    assert maker.PAGE.read_text("utf-8") == text, "run examples/benchmarks/report.py"


def test_results_are_stored_with_where_they_come_from(tmp_path: Path, monkeypatch) -> None:
    maker = module(FOLDER / "benchmarks" / "report.py")
    monkeypatch.setattr(maker, "RESULTS", tmp_path)
    file = maker.store("mine", [{"n": 1000, "seconds": 0.5, "gap": np.inf, "ok": True}], "loaded")
    shown = maker.section(file)
    assert "| 1,000 | 0.5 | - | yes |" in shown
    assert "numpy" in shown
    assert maker.machine() in shown
    assert "loaded" in shown


def test_the_page_of_the_papers_tables_shows_what_was_measured(monkeypatch) -> None:
    """Nobody edits a number: `examples/benchmarks/papers.py --page` writes the page."""
    monkeypatch.syspath_prepend(str(FOLDER / "benchmarks"))
    papers = module(FOLDER / "benchmarks" / "papers.py")
    stored = json.loads(papers.STORED.read_text("utf-8"))
    assert papers.PAGE.read_text("utf-8") == papers.page(stored), "run papers.py --page"
