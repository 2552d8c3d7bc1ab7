"""Zarr and Parquet: files that Dask reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cvxscreen.errors import InvalidInput, MissingDependency


@contextmanager
def _reading(place: Path, needs: str) -> Iterator[None]:
    """Errors of other libraries, as ours."""
    try:
        yield
    except InvalidInput:
        raise
    except ImportError as error:
        raise MissingDependency(
            f"`DATA`: {place.name} is read by Dask with {needs} ({error}); all of it comes with: "
            'pip install "cvxscreen[dask]"'
        ) from None
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise InvalidInput(f"`DATA`: {str(place)!r} could not be read: {error}") from None


def open_zarr(place: Path) -> tuple[Any, NDArray[Any]]:
    """The array ``X`` of a Zarr group as a Dask array, cut as it is stored, and its ``y``."""
    with _reading(place, "zarr"):
        from dask.array import from_zarr

        X, y = (from_zarr(str(place), component=name) for name in ("X", "y"))
        return X, np.asarray(y.compute())


def open_parquet(place: Path, target: str | int | None) -> tuple[Any, NDArray[Any]]:
    """Every column of a Parquet file or folder but `target` as a Dask array, and the target."""
    with _reading(place, "pandas and pyarrow"):
        from dask.dataframe import read_parquet

        frame = read_parquet(place)
        names = list(frame.columns)
        wanted = names[-1] if target is None else target
        if wanted not in names:
            shown = ", ".join(map(str, names[:12]))
            raise InvalidInput(f"`target` is {target!r}; {place.name} has the columns {shown}.")
        features = frame[[name for name in names if name != wanted]]
        X = features.to_dask_array(lengths=True)
        if X.dtype.kind not in "fiub":
            words = [n for n in features.columns if features[n].dtype.kind not in "fiub"]
            raise InvalidInput(
                f"`DATA`: the columns {words[:12]} of {place.name} are no numbers; encode them."
            )
        column = frame[wanted].compute()
        if column.isna().any():
            raise InvalidInput(
                f"`DATA`: the target {wanted!r} of {place.name} has gaps; drop those rows."
            )
        y = np.asarray(column)
        return X, y if y.dtype.kind in "fiub" else y.astype(str)
