"""Tables of the stored results: ``python examples/benchmarks/report.py`` rewrites docs/results.md.

Every ``results/*.json`` becomes a table. A benchmark stores its results by `store`, or passes them
through `with_origin`: the date, the machine and the versions are added. What lies there without
them is shown as of unknown origin.
"""

from __future__ import annotations

import datetime
import json
import math
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
PAGE = HERE.parents[1] / "docs" / "results.md"
LIBRARIES = ("cvxscreen", "cvxpy", "numpy", "scipy", "numba", "clarabel", "scikit-learn")
LONGEST = 60
"""Rows of a table that are shown; all of them are in the file."""

HEAD = """# Stored results

Made by `python examples/benchmarks/report.py` from `examples/benchmarks/results/*.json`; how each
is measured stands in its script. What was learned from them, and from runs that are not stored, is
in [benchmarks](benchmarks.md).
"""


def with_origin(held: Any) -> dict[str, Any]:
    """Rows, or a dictionary with rows, with the date, the machine and the versions before them."""
    held = held if isinstance(held, dict) else {"rows": held}
    versions = {}
    for library in LIBRARIES:
        try:
            versions[library] = version(library)
        except PackageNotFoundError:
            continue
    return {
        "date": datetime.date.today().isoformat(), "machine": machine(),
        "python": platform.python_version(), **held,
        "versions": {**versions, **held.get("versions", {})},
    }


def store(name: str, rows: Any, note: str = "") -> Path:
    """Write `rows` to ``results/NAME.json`` with where they come from."""
    held = with_origin({"note": note, "rows": rows})
    target = RESULTS / f"{name}.json"
    target.write_text(json.dumps(held, indent=1, default=float) + "\n", "utf-8")
    return target


def machine() -> str:
    """The processor, as the system names it."""
    place = Path("/proc/cpuinfo")
    lines = place.read_text("utf-8").splitlines() if place.is_file() else []
    named = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{named[0]}, {len(named)} cores" if named else platform.processor() or "unknown"


def rows_of(held: Any) -> tuple[str, list[dict[str, Any]]]:
    """A stored result as a note and rows of named numbers."""
    if isinstance(held, list):
        return "", [row for row in held if isinstance(row, dict)]
    note = str(held.get("note", ""))
    for key in ("rows", "records", "fits"):
        rows = held.get(key)
        if isinstance(rows, dict):
            rows = [{"of": name, **row} for name, row in rows.items() if isinstance(row, dict)]
        columns = held.get("columns")
        if isinstance(rows, list) and rows and isinstance(rows[0], list) and columns:
            rows = [dict(zip(columns, row, strict=False)) for row in rows]
        if isinstance(rows, list) and rows and isinstance(rows[0], dict):
            return note, rows
    return note, []


def origin(held: Any) -> str:
    """Date, machine and versions, where they were stored."""
    if not isinstance(held, dict) or not (held.get("machine") or held.get("date")):
        return "Date, machine and versions were not stored with this run."
    parts = [str(held[k]) for k in ("date", "machine") if held.get(k)]
    versions = held.get("versions") or {}
    if held.get("python"):
        parts.append(f"Python {held['python']}")
    parts += [f"{name} {number}" for name, number in versions.items()]
    return "; ".join(parts) + "."


def shown(value: Any) -> str:
    """One cell."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: ""}[value]
    if isinstance(value, float):
        return f"{value:.3g}" if math.isfinite(value) else "-"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list):
        return ", ".join(map(shown, value[:4]))
    return str(value).replace("|", "/").replace("\n", " ")[:60]


def section(file: Path) -> str:
    """The part of the page about one file."""
    held = json.loads(file.read_text("utf-8"))
    note, rows = rows_of(held)
    lines = [f"## {file.stem}", "", f"`examples/benchmarks/results/{file.name}`. {origin(held)}"]
    if note:
        lines += ["", note]
    names = list(dict.fromkeys(name for row in rows for name in row
                               if not isinstance(row[name], dict)))
    if names:
        lines += ["", "| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
        lines += [
            "| " + " | ".join(shown(row.get(name, "")) for name in names) + " |"
            for row in rows[:LONGEST]
        ]
    if len(rows) > LONGEST:
        lines += ["", f"{len(rows) - LONGEST:,} more rows are in the file."]
    return "\n".join(lines) + "\n"


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *map(section, sorted(RESULTS.glob("*.json")))])


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
    print(PAGE)
