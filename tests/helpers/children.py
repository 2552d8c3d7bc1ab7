"""Fresh interpreters: they import the package that the tests import, wherever that is installed.

A program run in the checkout would find the checkout's package first, which need not be the one
under test, and whose loops would all be compiled once more.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import cvxscreen

ROOT = Path(__file__).resolve().parents[2]


def command(program: str, *arguments: str) -> list[str]:
    """What starts `program`; the current folder is not where it looks for modules first."""
    return [sys.executable, "-P", "-c", program, *arguments]


def environment(**more: str) -> dict[str, str]:
    """The variables of this process and `more`; the package under test is found last of all."""
    home = str(Path(cvxscreen.__file__).parents[1])
    places = [place for place in (os.environ.get("PYTHONPATH"), home) if place]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(places), **more}


def run(program: str, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """What comes of `program`, with `more` environment variables."""
    return subprocess.run(
        command(program, *arguments), capture_output=True, text=True, check=False,
        cwd=ROOT, env=environment(**more),
    )
