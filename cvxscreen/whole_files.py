"""Files that are written whole or not at all, and what reading a broken one may raise."""

from __future__ import annotations

import csv
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO
from zipfile import BadZipFile

UNREADABLE = (
    OSError, ValueError, KeyError, IndexError, TypeError, AttributeError, EOFError, MemoryError,
    OverflowError, RecursionError, NotImplementedError, RuntimeError, SyntaxError,
    BadZipFile, csv.Error, struct.error, zlib.error,
)
"""What NumPy, zipfile, gzip and csv raise on files that are cut short, altered or foreign."""


def why_unreadable(error: BaseException) -> str:
    """What is wrong with a file, from what its reader raised."""
    text = " ".join(str(error).split())
    if "pickle" in text:  # NumPy's own advice is to trust the file; it is not ours
        return "it is no NumPy file, or holds pickled objects, which are never loaded"
    if "context manager" in text:
        return "it is one array (.npy), not an archive of arrays (.npz)"
    if isinstance(error, KeyError):
        return f"something is missing in it: {text}"
    return f"{type(error).__name__}: {text}"


def write_whole(place: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Let `write` fill a temporary file beside `place`, which then takes its name in one step.

    Whatever goes wrong, an interrupt included, leaves the file at `place` as it was.
    """
    temporary = place.with_name(f".{place.name}.{os.getpid()}.part")
    try:
        with temporary.open("wb") as stream:
            write(stream)
        temporary.replace(place)
    finally:
        temporary.unlink(missing_ok=True)
