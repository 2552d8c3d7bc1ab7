"""The campaign's table from its lines.

    python tests/safety/laboratory/report.py OUT.jsonl [--full]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

COLUMNS = ("asked", "checked", "wrong", "open")
KEYS = ("model", "loss", "rule", "design", "dtype")


def read(path: Path) -> list[dict]:
    """The finished cells; a line that was cut off is left out."""
    lines = []
    for text in path.read_text().splitlines() if path.exists() else []:
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:
            continue
    return lines


def total(line: dict, column: str) -> int:
    return sum(row[len(KEYS) + COLUMNS.index(column)] for row in line["rows"])


def grouped(lines: list[dict], keys: tuple[str, ...]) -> dict[tuple[str, ...], Counter[str]]:
    """Counts by some of `KEYS`."""
    places = [KEYS.index(key) for key in keys]
    found: dict[tuple[str, ...], Counter[str]] = {}
    for line in lines:
        for row in line["rows"]:
            counts = found.setdefault(tuple(row[place] for place in places), Counter())
            counts.update(dict(zip(COLUMNS, row[len(KEYS):], strict=True)))
    return found


def rows(lines: list[dict], keys: tuple[str, ...]) -> list[str]:
    """A table with one row a group: decisions checked, wrong, open, and how much was decided."""
    found = grouped(lines, keys)
    cells = [[*keys, "checked", "wrong", "open", "decided"]]
    for group, counts in sorted(found.items()):
        said = counts["checked"] + counts["open"]
        cells.append([
            *group, f"{counts['checked']:,}", f"{counts['wrong']:,}", f"{counts['open']:,}",
            f"{100.0 * said / max(counts['asked'], 1):.1f} %",
        ])
    widths = [max(len(row[k]) for row in cells) for k in range(len(cells[0]))]
    return [
        "  ".join(text.ljust(w) if k < len(keys) else text.rjust(w)
                  for k, (text, w) in enumerate(zip(row, widths, strict=True)))
        for row in cells
    ]


def table(lines: list[dict], *, full: bool = False) -> str:
    """Everything worth knowing about a campaign."""
    views = [KEYS] if full else [
        ("model", "design", "dtype"), ("model", "rule"), ("loss",),
    ]
    parts = ["\n".join(rows(lines, view)) for view in views]
    sums = Counter[str]()
    for line in lines:
        sums.update({column: total(line, column) for column in COLUMNS})
    trouble = [text for line in lines for text in line["findings"]]
    trouble += [f"{line['cell']} failed:\n{line['error']}" for line in lines if line["error"]]
    said = Counter(text for line in lines for text in line["warnings"])
    parts += ["\n".join(trouble)] * bool(trouble)
    parts += ["\n".join(f"warning in {n} cells: {text}" for text, n in said.items())] * bool(said)
    parts.append(
        f"{len(lines):,} cells, {sums['checked']:,} decisions checked, {sums['wrong']:,} wrong, "
        f"{sums['open']:,} beyond the references; "
        f"{sum(line['seconds'] for line in lines):,.0f} s CPU"
    )
    return "\n\n".join(parts)


def status(lines: list[dict]) -> int:
    """0 if nothing was wrong and nothing failed."""
    return int(any(line["findings"] or line["error"] for line in lines))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--full", action="store_true", help="every row of the table")
    given = parser.parse_args(arguments)
    lines = read(given.out)
    print(table(lines, full=given.full))
    return status(lines)


if __name__ == "__main__":
    sys.exit(main())
