"""How Sphinx builds the documentation: ``sphinx-build -W -b html docs build/html``."""

from __future__ import annotations

import inspect
import re
from importlib.metadata import version as installed
from pathlib import Path

from sphinx_gallery.scrapers import figure_rst

import cvxscreen

HERE = Path(__file__).parent

project = "cvxscreen"
author = "The cvxscreen developers"
release = version = installed("cvxscreen")

extensions = ["myst_parser", "numpydoc", "sphinx.ext.autodoc", "sphinx.ext.autosummary",
              "sphinx_gallery.gen_gallery"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["build"]
html_theme = "furo"
html_title = "cvxscreen"
myst_heading_anchors = 3
# Links to other files of the repository (tests, modules) work where the pages are read on a host
# of code; a function among the settings (the scraper below) cannot be cached.
suppress_warnings = ["myst.xref_missing", "config.cache"]
autosummary_generate = True
autodoc_typehints = "none"  # the docstrings give types and shapes
numpydoc_show_class_members = False
numpydoc_xref_param_type = False


def saved_picture(block: tuple, variables: dict, gallery_conf: dict) -> str:
    """The picture that a block of an example has written beside its script."""
    script = Path(variables["src_file"])
    shown = []
    for picture in script.parent.glob(f"{script.stem.removeprefix('plot_')}.png"):
        shown.append(next(variables["image_path_iterator"]))
        picture.replace(shown[-1])
    return figure_rst(shown, gallery_conf["src_dir"])


sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "generated/examples",
    "filename_pattern": "/plot_",
    "ignore_pattern": "make_|benchmarks",
    "image_scrapers": (saved_picture,),
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_signature": False,
}


def link_examples(app: object, page: str, source: list[str]) -> None:
    """Links to the scripts of examples lead to their pages here, to the scripts elsewhere."""
    source[0] = re.sub(r"\.\./examples/(plot_\w+)\.py\)", r"generated/examples/\1.rst)", source[0])


def setup(app: object) -> None:
    """Called by Sphinx."""
    app.connect("source-read", link_examples)


GROUPS = {
    "Solve, screen, certify": (
        "solve", "screen", "path", "compare_bounds", "certify", "reference_point", "bounds",
        "lambda_max", "c_interval", "eps_interval", "lam_interval",
    ),
    "CVXPY": ("explain", "reduce", "verify", "Screened"),
    "Models": (
        "svm", "regression", "cvar", "sparse_svm", "sparse_svr", "rtlm", "triplets", "pairs",
        "quadruplets", "raso", "Problem",
    ),
    "What if the data change": (
        "leave_one_out", "reweight", "remove", "add", "influence", "bootstrap", "weight_range",
    ),
}
"""Names that stand first in the reference, by what they are for; the others follow by name."""


def reference() -> str:
    """The page with every public name, in groups."""
    lines = ["# Reference", "", "Every public name; `import cvxscreen` has them all.", ""]
    left = [name for name in sorted(cvxscreen.__all__) if not name.startswith("_")]
    groups = {title: [n for n in names if n in left] for title, names in GROUPS.items()}
    known = {name for names in groups.values() for name in names}
    groups["Everything else"] = [name for name in left if name not in known]
    for title, names in groups.items():
        functions = [n for n in names if not inspect.ismodule(getattr(cvxscreen, n))]
        lines += [f"## {title}", "", "```{eval-rst}", ".. currentmodule:: cvxscreen", "",
                  ".. autosummary::", "   :toctree: .", ""]
        lines += [f"   {name}" for name in functions] + ["```", ""]
    return "\n".join(lines)


(HERE / "generated").mkdir(exist_ok=True)
(HERE / "generated" / "reference.md").write_text(reference(), "utf-8")
