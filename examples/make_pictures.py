"""Draw every picture of the examples: ``python examples/make_pictures.py [FOLDER]``."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import sys
from pathlib import Path
from time import process_time

HERE = Path(__file__).resolve().parent


def main(folder: Path) -> list[Path]:
    """Run every ``plot_*.py``; what they print is left out."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = []
    for script in sorted(HERE.glob("plot_*.py")):
        spec = importlib.util.spec_from_file_location(script.stem, script)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        began = process_time()
        with contextlib.redirect_stdout(io.StringIO()):
            drawn.append(module.main(folder))
        print(f"{process_time() - began:6.1f} s CPU  {drawn[-1]}")
    return drawn


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "pictures"))
