"""A picture on disk: written whole or not at all."""

from __future__ import annotations

import os
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from cvxscreen.errors import InvalidInput
from cvxscreen.inputs import file_path
from cvxscreen.plots.style import empty_figure
from cvxscreen.whole_files import written_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def save(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """Write `figure` to `path`, whole or not at all.

    The picture is drawn in memory, written to a temporary file beside its destination and then
    moved there in one step: a failure leaves the destination as it was.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        The picture.
    path : path
        Destination; its suffix (``.png``, ``.pdf``, ``.svg`` ...) chooses the format.

    Returns
    -------
    Path
        The destination.

    Raises
    ------
    InvalidInput
        If the suffix names no known format, or the folder does not exist.
    """
    target = writable(path)
    form = target.suffix.removeprefix(".").lower()
    drawn = BytesIO()
    figure.savefig(drawn, format=form, dpi=150)
    with written_whole(target) as stream:
        stream.write(drawn.getvalue())
    return target


def writable(path: str | os.PathLike[str], name: str = "path") -> Path:
    """`path` if a picture can be written there, asked before the work that leads to the picture.

    Messages call it `name`.

    Raises
    ------
    InvalidInput
        If the suffix names no known format, or the folder does not exist.
    MissingDependency
        If matplotlib is not installed.
    """
    target = file_path(name, path)
    known = empty_figure(1.0).canvas.get_supported_filetypes()
    if target.suffix.removeprefix(".").lower() not in known:
        raise InvalidInput(
            f"`{name}` ends in {target.suffix!r}; choose one of: "
            f"{', '.join(f'.{name}' for name in sorted(known))}."
        )
    if not target.parent.is_dir():
        raise InvalidInput(f"`{name}` lies in {target.parent}, which is not a folder.")
    return target
