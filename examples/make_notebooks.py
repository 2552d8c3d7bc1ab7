"""Make notebooks of two examples: ``python examples/make_notebooks.py``.

The script's docstring becomes text, its imports and every paragraph of its `main` a cell. Outputs
are not stored.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from textwrap import dedent

HERE = Path(__file__).resolve().parent
MADE = ("plot_safe_region", "plot_cvxpy_svm")
STANDARD = ("__future__", "pathlib", "sys")


def paragraphs(source: str) -> tuple[str, list[str]]:
    """The docstring and the code cells of a script with a function `main`."""
    tree = ast.parse(source)
    lines = source.splitlines()
    main = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "main")
    imports = [ast.get_source_segment(source, n) for n in tree.body
               if isinstance(n, ast.Import | ast.ImportFrom)]
    own = [line for line in imports if "cvxscreen" in line]
    others = [line for line in imports if line not in own and line.split()[1] not in STANDARD]
    cells = ["\n".join([
        "from pathlib import Path", "", *others, "from IPython.display import Image", "", *own, "",
        "folder = Path()",
    ])]
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
    return ast.get_docstring(tree), cells


def notebook(source: str) -> str:
    """The notebook (format 4.5) of a script."""
    text, cells = paragraphs(source)
    made = [{"cell_type": "markdown", "id": "text", "metadata": {}, "source": text}]
    made += [
        {"cell_type": "code", "execution_count": None, "id": f"cell-{k}", "metadata": {},
         "outputs": [], "source": cell.strip("\n")}
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
