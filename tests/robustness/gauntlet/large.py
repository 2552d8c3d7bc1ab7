"""Doors for data past memory."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

import dask.array as da
import numpy as np
from gauntlet import bad
from gauntlet.bad import Bad, Late, X, Y
from gauntlet.door import Door

import cvxscreen as cs


@cache
def shards() -> str:
    """A folder of one shard, which goes with this process."""
    folder = tempfile.TemporaryDirectory()
    np.savez(Path(folder.name) / "0.npz", X=X, y=Y)
    _KEPT.append(folder)
    return folder.name


_KEPT: list[object] = []
NO_ROWS = [
    Bad("nothing", None, ("NoneType|None", "needed")),
    Bad("words", "rows", ("str|'rows'", "needed")),
    Bad("a matrix", X, ("ndarray", "needed")),
]

LARGE = [
    Door("open_data", cs.open_data, lambda: {"path": shards()},
         {"path": [b for b in bad.FILE if b.name != "a folder"], "chunk_bytes": bad.WHOLE,
          "target": [Bad("of shards", "price", ("'price'", "place of their own"))],
          "cache": [Bad("a number", 3, ("3", "name of a f")),
                    Bad("a folder with files", Late(shards), ("empty|folder",))]},
         ("open_data",), says={"path": "path|DATA"}),
    Door("on_dask", cs.on_dask, lambda: {"X": da.from_array(X, chunks=(5, -1))},
         {"X": NO_ROWS, "workers": bad.WHOLE, "retries": bad.COUNT, "progress": bad.FLAG,
          "client": bad.OPTIONAL_THING}, ("on_dask",)),
    Door("on_device", cs.on_device, lambda: {"X": np.asarray(X)},
         {"X": NO_ROWS[:2], "chunk_bytes": bad.WHOLE, "workers": bad.WHOLE}, ("on_device",)),
]
