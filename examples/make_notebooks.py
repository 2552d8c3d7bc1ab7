"""Make notebooks of some examples, with their outputs: ``python examples/make_notebooks.py``.

The cells are those that sphinx-gallery sees (``# %%``); they are run here, and pictures are stored
small.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

from sphinx_gallery.py_source_parser import split_code_and_text_blocks

HERE = Path(__file__).resolve().parent
MADE = ("plot_safe_region", "plot_cvxpy_svm", "plot_quantile_path", "plot_cvar",
        "plot_metric_learning", "plot_own_bound", "plot_leave_one_out")
WIDTH, COLOURS = 720, 32


def cells_of(script: Path) -> list[tuple[str, str]]:
    """The cells of a script, each "text" or "code"; the last one shows the picture."""
    _, blocks = split_code_and_text_blocks(str(script))
    cells = [(kind, text.strip("\n")) for kind, text, _ in blocks if text.strip()]
    kind, last = cells.pop()
    before, call = last.rsplit("plots.save(", 1)
    last = f"{before}picture = plots.save({call}\nImage(filename=picture)"
    return [*cells, (kind, f"from IPython.display import Image\n\n{last}")]


def outputs(cells: list[str]) -> list[list[dict]]:
    """What every cell prints and shows when they are run in order."""
    shown: list[Path] = []
    display = SimpleNamespace(Image=lambda filename: shown.append(Path(filename)))
    shell = SimpleNamespace(display=display, version_info=(9, 0), get_ipython=lambda: None)
    before = {name: sys.modules.get(name) for name in ("IPython", "IPython.display")}
    sys.modules |= {"IPython": shell, "IPython.display": display}
    names, found = {"__name__": "__main__"}, []
    try:
        with tempfile.TemporaryDirectory() as place, contextlib.chdir(place):
            for cell in cells:
                said = io.StringIO()
                with contextlib.redirect_stdout(said):
                    exec(compile(cell, "cell", "exec"), names)
                made = [{"name": "stdout", "output_type": "stream", "text": said.getvalue()}]
                found.append(made if said.getvalue() else [])
                if shown:
                    data = {"image/png": small(shown.pop())}
                    found[-1].append({"data": data, "metadata": {}, "output_type": "display_data"})
    finally:
        sys.modules |= {name: module for name, module in before.items() if module is not None}
        for name in [name for name, module in before.items() if module is None]:
            del sys.modules[name]
    return found


def small(picture: Path) -> str:
    """A picture at a width of `WIDTH` in `COLOURS` colours, as text."""
    from PIL import Image

    with Image.open(picture) as large:
        height = round(large.height * WIDTH / large.width)
        copy = large.convert("RGB").resize((WIDTH, height), Image.Resampling.LANCZOS)
    held = io.BytesIO()
    copy.quantize(COLOURS).save(held, format="png", optimize=True)
    return base64.b64encode(held.getvalue()).decode()


def notebook(script: Path, *, run: bool = True) -> str:
    """The notebook (format 4.5) of a script, with outputs or without."""
    cells = cells_of(script)
    shown = iter(outputs([text for kind, text in cells if kind == "code"]) if run else [])
    made, count = [], 0
    for k, (kind, text) in enumerate(cells):
        cell = {"cell_type": "markdown", "id": f"cell-{k}", "metadata": {}, "source": text}
        if kind == "code":
            count += 1
            cell |= {"cell_type": "code", "execution_count": count if run else None,
                     "outputs": next(shown) if run else []}
        made.append(cell)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    book = {"cells": made, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(book, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for name in MADE:
        target = HERE / f"{name.removeprefix('plot_')}.ipynb"
        target.write_text(notebook(HERE / f"{name}.py"), "utf-8")
        print(target)
