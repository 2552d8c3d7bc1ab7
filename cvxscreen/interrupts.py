"""SIGTERM heard as Ctrl-C, so that a command that is told to end keeps what is finished."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def terminable() -> Iterator[list[int]]:
    """Raise KeyboardInterrupt on SIGTERM inside the block, and list the signals that came.

    The handler before is put back at the end. Only the main thread of a process hears signals; in
    any other the block is left as it is.
    """
    heard: list[int] = []

    def hear(number: int, frame: FrameType | None) -> None:
        heard.append(number)
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield heard
        return
    before = signal.signal(signal.SIGTERM, hear)
    try:
        yield heard
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)
