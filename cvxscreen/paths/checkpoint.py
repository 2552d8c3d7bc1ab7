"""Finished path points on disk: written atomically, read back only for the same problem."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.files import UNREADABLE, why_unreadable, written_whole
from cvxscreen._support.validation import file_path
from cvxscreen.core.penalty import L1
from cvxscreen.core.problem import Problem
from cvxscreen.errors import InvalidInput, NotSaved

Array = NDArray[np.float64]


def fingerprint(problem: Problem, grid: Array, tol: float, over: str) -> str:
    """A digest of data, losses, regulariser, parameter, grid and tolerance."""
    digest = hashlib.sha256()
    losses = problem.losses.scaled(1.0 / problem.C)
    probe = np.cos(np.arange(problem.d) + 1.0)
    parts = [
        losses.b, losses.e, losses.q, losses.lo, losses.hi, problem.linear,
        problem.quadratic.diagonal, problem.quadratic.apply(probe), problem.design.forward(probe),
        grid, np.array([tol, problem.constant]),
    ]
    if isinstance(problem.penalty, L1):
        parts.append(problem.penalty.kappa)
    if problem.side is not None:
        parts += [problem.side.offset, problem.side.matrix @ probe]
    for part in parts:
        digest.update(np.ascontiguousarray(part).tobytes())
    digest.update(f"{over} {problem.penalty and problem.penalty.name}".encode())
    return digest.hexdigest()


def read_points(place: FilePath, argument: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The header and the points of a file written by `Checkpoint.write`.

    Raises
    ------
    InvalidInput
        If it is no such file; the message names `argument`.
    """
    try:
        with place.open("rb") as stream, np.load(stream, allow_pickle=False) as data:
            head = json.loads(str(data["head"]))
            rows = [
                {**row, "x": data[f"x{i}"], "theta": data[f"theta{i}"]}
                for i, row in enumerate(head["rows"])
            ]
            if not isinstance(head["rows"], list):
                raise TypeError("its rows are no list")
            int(head["terms"])
    except UNREADABLE as error:
        raise InvalidInput(
            f"`{argument}`: {str(place)!r} is not a readable file of path points "
            f"({why_unreadable(error)}); name another file."
        ) from None
    return head, rows


@dataclass(frozen=True)
class Checkpoint:
    """A file of finished points (or none, when no file was asked for)."""

    file: FilePath | None
    digest: str
    rows: tuple[dict[str, Any], ...] = ()

    @classmethod
    def open(
        cls,
        file: str | FilePath | None,
        problem: Problem,
        grid: Array,
        tol: float,
        over: str = "C",
    ) -> Checkpoint:
        """Read what `file` holds, if it exists.

        Raises
        ------
        InvalidInput
            If the file is not such a checkpoint, or belongs to another problem or grid.
        """
        if file is None:
            return cls(None, "")
        place = file_path("checkpoint", file)
        digest = fingerprint(problem, grid, tol, over)
        if not place.parent.is_dir():
            raise InvalidInput(f"`checkpoint`: the folder {str(place.parent)!r} does not exist.")
        if not place.exists():
            return cls(place, digest)
        head, rows = read_points(place, "checkpoint")
        if head.get("digest") != digest:
            raise InvalidInput(
                f"`checkpoint`: {str(place)!r} belongs to other data, another grid or another "
                "tolerance; name another file."
            )
        return cls(place, digest, tuple(rows))

    def write(self, rows: list[dict[str, Any]], terms: int) -> None:
        """Replace the file by one with `rows`; the old one stays whole until the new one is.

        Raises
        ------
        NotSaved
            If it cannot be written (a full disk, say); the old one is then still there.
        """
        if self.file is None:
            return
        arrays: dict[str, Any] = {}
        plain = []
        for i, row in enumerate(rows):
            arrays[f"x{i}"], arrays[f"theta{i}"] = row["x"], row["theta"]
            plain.append({
                k: dict(v) if isinstance(v, Mapping) else v
                for k, v in row.items() if k not in ("x", "theta")
            })
        head = json.dumps({"digest": self.digest, "terms": terms, "rows": plain})
        try:
            with written_whole(self.file) as stream:
                np.savez(stream, head=np.array(head), **arrays)
        except OSError as error:
            held = f"what it held before is still in {str(self.file)!r}; " * self.file.exists()
            raise NotSaved(
                f"{len(rows)} points could not be written to {str(self.file)!r} ({error}); {held}"
                "make room, or name another file."
            ) from error
