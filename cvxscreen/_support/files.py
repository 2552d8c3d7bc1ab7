"""Files that are written whole or not at all, and what reading a broken one may raise."""

from __future__ import annotations

import csv
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from uuid import uuid4
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


@contextmanager
def written_whole(place: Path) -> Iterator[IO[bytes]]:
    """A stream whose bytes replace the file `place` when the block ends without an exception.

    They go to a hidden file beside it, to the disk, and then to its name in one step. After an
    exception (a full disk, Ctrl-C) that file is removed; only a killed process leaves it behind.
    """
    part = place.with_name(f".{place.name}.{uuid4().hex}.part")
    try:
        with part.open("xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(place)
    finally:
        part.unlink(missing_ok=True)
