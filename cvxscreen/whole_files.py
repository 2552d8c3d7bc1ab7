"""Files that are written whole or not at all, whatever interrupts the writing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from uuid import uuid4


@contextmanager
def whole(place: Path) -> Iterator[IO[bytes]]:
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
