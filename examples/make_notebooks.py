"""Make notebooks of some examples, with their outputs: ``python examples/make_notebooks.py``.

The script's docstring becomes text; its imports, its other functions and every paragraph of its
`main` become cells, which are run here. Pictures are stored small.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import sys
import tempfile
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace

HERE = Path(__file__).resolve().parent
MADE = ("plot_safe_region", "plot_cvxpy_svm", "plot_quantile_path", "plot_cvar",
        "plot_metric_learning", "plot_own_bound", "plot_leave_one_out")
STANDARD = ("__future__", "pathlib", "sys")
WIDTH, COLOURS = 720, 32


def _order(line: str) -> tuple[bool, str]:
    """The order of imports that linters ask for."""
    return line.startswith("from"), line.split()[1].lower()


def paragraphs(source: str) -> tuple[str, list[str]]:
    """The docstring and the code cells of a script with a function `main`."""
    tree = ast.parse(source)
    lines = source.splitlines()
    main = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "main")
    imports = [ast.get_source_segment(source, n) for n in tree.body
               if isinstance(n, ast.Import | ast.ImportFrom)]
    own = [line for line in imports if "cvxscreen" in line]
    others = [line for line in imports if line not in own and line.split()[1] not in STANDARD]
    libraries = sorted([*others, "from IPython.display import Image"], key=_order)
    cells = ["\n".join(
        ["from pathlib import Path", "", *libraries, "", *own, "", "folder = Path()"]
    )]
    cells += [ast.get_source_segment(source, n) for n in tree.body
              if isinstance(n, ast.FunctionDef) and n is not main]
    start = main.lineno
    # A blank line between two statements of `main` ends a cell.
    for first, second in zip(main.body, main.body[1:], strict=False):
        between = range(first.end_lineno, second.lineno - 1)
        blank = next((k for k in between if not lines[k].strip()), None)
        if blank is not None:
            cells.append(dedent("\n".join(lines[start:blank])))
            start = blank + 1
    cells.append(dedent("\n".join(lines[start : main.end_lineno])))
    cells[-1] = cells[-1].replace("return plots.save", "picture = plots.save")
    cells[-1] += "\nImage(filename=picture)"
    return ast.get_docstring(tree), [cell.strip("\n") for cell in cells]


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


def notebook(source: str, *, run: bool = True) -> str:
    """The notebook (format 4.5) of a script, with outputs or without."""
    text, cells = paragraphs(source)
    made = [{"cell_type": "markdown", "id": "text", "metadata": {}, "source": text}]
    shown = outputs(cells) if run else [[] for _ in cells]
    made += [
        {"cell_type": "code", "execution_count": k + 1 if run else None, "id": f"cell-{k}",
         "metadata": {}, "outputs": shown[k], "source": cell}
        for k, cell in enumerate(cells)
    ]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    book = {"cells": made, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(book, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for name in MADE:
        target = HERE / f"{name.removeprefix('plot_')}.ipynb"
        target.write_text(notebook((HERE / f"{name}.py").read_text("utf-8")), "utf-8")
        print(target)
