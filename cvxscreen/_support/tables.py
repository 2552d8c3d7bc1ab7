"""Plain-text tables, and how every record shows itself: short, long, and in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from cvxscreen.errors import MissingDependency

_SHOWN = 4
"""Lines of a record's text that its one-line form takes."""


def number(value: object, digits: int = 4) -> str:
    """A short human form of `value`: integers with separators, floats with few digits."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.{digits}g}"
    return str(value)


def table(header: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> str:
    """Align `rows` under `header`; numbers to the right, text to the left."""
    body = [list(row) for row in rows]
    cells = [[number(cell) for cell in row] for row in body]
    widths = [
        max([len(name)] + [len(row[j]) for row in cells]) for j, name in enumerate(header)
    ]
    right = [
        all(isinstance(row[j], int | float | None) for row in body) for j in range(len(header))
    ]

    def line(texts: Sequence[str]) -> str:
        return "  ".join(
            text.rjust(width) if flush else text.ljust(width)
            for text, width, flush in zip(texts, widths, right, strict=True)
        ).rstrip()

    lines = [title] if title else []
    lines += [line(list(header)), line(["-" * width for width in widths])]
    lines += [line(row) for row in cells]
    return "\n".join(lines)


def fields(pairs: Iterable[tuple[str, object]], title: str = "") -> str:
    """A two-column listing ``name  value`` for records."""
    items = [(name, number(value)) for name, value in pairs]
    width = max((len(name) for name, _ in items), default=0)
    lines = [title] if title else []
    lines += [f"  {name.ljust(width)}  {value}" for name, value in items]
    return "\n".join(lines)


def data_frame(columns: Any) -> Any:
    """A pandas DataFrame of rows or columns.

    Raises
    ------
    MissingDependency
        If pandas is not installed.
    """
    try:
        import pandas
    except ImportError as error:
        raise MissingDependency(
            'Data frames need pandas: pip install "cvxscreen[frames]"'
        ) from error
    return pandas.DataFrame(columns)


class Echoed:
    """What is short where it is echoed, and readable where it is printed.

    A data class that inherits from it says ``repr=False``, or it gets the generated one, with
    every array spelled out.
    """

    def _brief(self) -> str:
        """What the one-line form says; must be cheap, since debuggers and notebooks ask for it."""
        title, *lines = str(self).splitlines()
        listed = [" ".join(line.split()) for line in lines if line.startswith("  ")]  # `fields`
        return ", ".join(listed[:_SHOWN]) or title

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._brief()}>"

    def _repr_html_(self) -> str:
        """What a notebook shows of the last line of a cell."""
        from html import escape  # a table of all of its entities, which only notebooks need

        return f"<pre>{escape(str(self))}</pre>"


class Record(Echoed):
    """A record, which may have more to say than `print` shows."""

    def table(self) -> str:
        """All there is to say, as readable text."""
        return str(self)
