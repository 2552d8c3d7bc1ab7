"""A picture on disk: written whole or not at all."""

from __future__ import annotations

import os
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from cvxscreen.errors import InvalidInput

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
    target = Path(path)
    known = figure.canvas.get_supported_filetypes()
    form = target.suffix.removeprefix(".").lower()
    if form not in known:
        raise InvalidInput(
            f"`path` ends in {target.suffix!r}; choose one of: "
            f"{', '.join(f'.{name}' for name in sorted(known))}."
        )
    if not target.parent.is_dir():
        raise InvalidInput(f"`path` lies in {target.parent}, which is not a folder.")
    drawn = BytesIO()
    figure.savefig(drawn, format=form, dpi=150)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        temporary.write_bytes(drawn.getvalue())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    return target
