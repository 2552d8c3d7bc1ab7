"""The examples: every one runs, draws its picture, is short, and the notebooks are up to date."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from matplotlib.image import imread, imsave

FOLDER = Path(__file__).resolve().parents[2] / "examples"
SCRIPTS = sorted(FOLDER.glob("plot_*.py"))
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="the examples are not shipped here")


def module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_an_example_draws_its_picture(script: Path, tmp_path: Path, capsys) -> None:
    picture = module(script).main(tmp_path)
    assert [picture] == list(tmp_path.iterdir())
    assert picture.stem == script.stem.removeprefix("plot_")
    assert imread(picture).std() > 0.05
    assert capsys.readouterr().out, "an example says what it found"


def test_there_are_examples_and_they_are_short() -> None:
    assert len(SCRIPTS) >= 10
    assert len(NOTEBOOKS) == 2
    for script in FOLDER.glob("*.py"):
        assert len(script.read_text("utf-8").splitlines()) < 100, script.name


def test_the_notebooks_are_those_of_their_scripts() -> None:
    maker = module(FOLDER / "make_notebooks.py")
    for name in maker.MADE:
        stored = FOLDER / f"{name.removeprefix('plot_')}.ipynb"
        assert stored in NOTEBOOKS
        source = (FOLDER / f"{name}.py").read_text("utf-8")
        assert stored.read_text("utf-8") == maker.notebook(source), "run examples/make_notebooks.py"


@pytest.mark.parametrize("book", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_cells_of_a_notebook_run(book: Path, tmp_path: Path, monkeypatch) -> None:
    shown: list[Path] = []
    display = SimpleNamespace(Image=lambda filename: shown.append(filename))
    shell = SimpleNamespace(display=display, version_info=(9, 0), get_ipython=lambda: None)
    monkeypatch.setitem(sys.modules, "IPython", shell)  # matplotlib asks it too
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.chdir(tmp_path)
    cells = [c for c in json.loads(book.read_text("utf-8"))["cells"] if c["cell_type"] == "code"]
    assert len(cells) >= 4
    names: dict[str, object] = {"__name__": "__main__"}
    for cell in cells:
        assert cell["outputs"] == []
        exec(compile(cell["source"], book.name, "exec"), names)
    assert shown
    assert shown[0].is_file()


def test_all_pictures_by_one_command(tmp_path: Path, monkeypatch, capsys) -> None:
    maker = module(FOLDER / "make_pictures.py")
    for script in SCRIPTS[:2]:
        (tmp_path / script.name).write_text(
            "def main(folder):\n    target = folder / (__name__ + '.png')\n"
            "    target.write_text('drawn')\n    return target\n"
        )
    monkeypatch.setattr(maker, "HERE", tmp_path)
    drawn = maker.main(tmp_path / "pictures")
    assert [path.stem for path in drawn] == [script.stem for script in SCRIPTS[:2]]
    assert all(path.is_file() for path in drawn)
    assert "s CPU" in capsys.readouterr().out


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_the_gallery_shows_every_example_with_its_picture(script: Path) -> None:
    name = script.stem.removeprefix("plot_")
    text = (FOLDER.parent / "docs" / "gallery.md").read_text("utf-8")
    assert f"](../examples/pictures/{name}.png)](../examples/{script.name})" in text
    assert imread(FOLDER / "pictures" / f"{name}.png").std() > 0.05


def test_no_picture_is_left_of_an_example_that_is_gone() -> None:
    kept = {path.stem for path in (FOLDER / "pictures").glob("*.png")}
    assert kept == {script.stem.removeprefix("plot_") for script in SCRIPTS}


def test_small_copies_for_the_readme(tmp_path: Path) -> None:
    maker = module(FOLDER / "make_pictures.py")
    large = tmp_path / "large.png"
    imsave(large, np.linspace(0.0, 1.0, 1000 * 500 * 3).reshape(500, 1000, 3))
    maker.shrink([large], tmp_path / "small")
    assert imread(tmp_path / "small" / "large.png").shape[:2] == (320, 640)
