"""Problems over data in chunks: the same models, with a column a row in place of vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cvxscreen.certificates.certificate import register_certificate
from cvxscreen.certificates.streamed import certify_chunks
from cvxscreen.core.streamed import ChunkTerms, Unit, surveyed
from cvxscreen.designs.chunks import ABSENT, Chunks
from cvxscreen.errors import InvalidInput
from cvxscreen.models.samples import CLASSIFICATION, Shape, checked_weights, named_loss
from cvxscreen.out_of_core import dask_engine, device  # noqa: F401  (`opened` knows their X by them)
from cvxscreen.out_of_core.streams import Column, Opened

Array = NDArray[np.float64]

_AT_ONCE = 2**20
"""Rows that are checked at a time."""

register_certificate(Chunks, certify_chunks)


def chunked_terms(
    opened: Opened,
    y: Any,
    loss: str,
    shape: Shape,
    among: tuple[str, ...],
    factor: float,
    sample_weight: Any = None,
    intercept: bool = False,
) -> tuple[Chunks, ChunkTerms]:
    """The design and the loss terms of a model: one pass over the data, which checks them.

    Parameters
    ----------
    opened : (Source, Engine)
    y : array_like, shape (n,)
        Labels -1/+1 (kept as single bytes) or targets (held by reference where they are floats).
    loss, shape, among
        As in `named_loss`; labels where `among` are the losses of classification.
    factor : float
        What every weight is multiplied by.
    sample_weight : array_like, shape (n,), optional
    intercept : bool

    Raises
    ------
    InvalidInput
        On NaN, wrong shapes, one class, labels other than -1/+1, weights that are none.
    """
    source, engine = opened
    y, sample_weight = device.on_host(y, sample_weight)
    n = source.shape[0]
    one = np.ones(1)
    row = named_loss(loss, one, one, shape, among)
    unit = Unit(1.0, *(float(getattr(row, name)[0]) for name in ("e", "q", "lo", "hi")))
    weight: Column = ABSENT
    if sample_weight is not None:
        weight = checked_weights(_numbers("sample_weight", sample_weight, n))
    scale: Column = ABSENT
    target: Column = ABSENT
    if among == CLASSIFICATION:
        scale = _labels(y, n)
    else:
        target = _numbers("y", y, n)
    for column in (scale, target, weight):
        engine.keep(column)
    design = surveyed(source, engine, scale, intercept)
    return design, ChunkTerms(n, unit, target, weight, factor)


def _numbers(name: str, values: Any, n: int) -> NDArray[Any]:
    """A finite vector of length `n`; float32 and float64 are held by reference."""
    try:
        v = np.asarray(values)
        if v.dtype not in (np.float32, np.float64):
            v = v.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"`{name}` is not a vector of numbers: {error}") from None
    if v.ndim == 2 and 1 in v.shape:
        v = v.ravel()
    if v.shape != (n,):
        raise InvalidInput(f"`{name}` has shape {v.shape} but `X` has {n} rows.")
    for start in range(0, n, _AT_ONCE):
        bad = ~np.isfinite(v[start : start + _AT_ONCE])
        if bad.any():
            row = start + int(np.flatnonzero(bad)[0])
            raise InvalidInput(
                f"`{name}` holds NaN or infinity (first in row {row}); drop or impute those rows."
            )
    return v


def _labels(values: Any, n: int) -> NDArray[np.int8]:
    """Labels -1/+1 with both classes present, one byte each."""
    v = np.asarray(values)
    if v.ndim == 2 and 1 in v.shape:
        v = v.ravel()
    if v.dtype.kind not in "fiub" or v.shape != (n,):
        v = _numbers("y", values, n)
    sign = np.empty(n, dtype=np.int8)
    for start in range(0, n, _AT_ONCE):
        rows = slice(start, start + _AT_ONCE)
        part = v[rows]
        wrong = (part != 1) & (part != -1)
        if wrong.any():
            raise InvalidInput(
                f"`y` holds the label {part[wrong][0]:g} (row {start + int(wrong.argmax())}); -1 "
                "and +1 are needed, for example np.where(y == positive_class, 1, -1)."
            )
        sign[rows] = part
    if sign.min() == sign.max():
        raise InvalidInput(
            f"`y` has only one class ({sign[0]:+d}) in {n} rows; a classifier needs both."
        )
    return sign
