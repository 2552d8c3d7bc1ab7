"""The pieces of a loss, by increasing argument."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.int8]
"""A `Piece` a term, shape (n,)."""


class Piece(IntEnum):
    """The five possible pieces of a loss by increasing argument, and "not proven"."""

    UNDECIDED = -1
    LOW = 0  # linear, slope lo
    LEFT = 1  # quadratic left of the zero piece (or the whole bowl when there is no zero piece)
    ZERO = 2
    RIGHT = 3  # quadratic right of the zero piece
    HIGH = 4  # linear, slope hi
