"""Draw every picture of the examples: ``python examples/make_pictures.py [FOLDER]``.

With ``--readme`` the small copies that the README shows (examples/pictures) are renewed as well.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import runpy
from pathlib import Path
from time import process_time

from PIL import Image

HERE = Path(__file__).resolve().parent
WIDTH = 1280


def main(folder: Path) -> list[Path]:
    """Run every ``plot_*.py``; what they print is left out."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = []
    for script in sorted(HERE.glob("plot_*.py")):
        began = process_time()
        with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()):
            runpy.run_path(str(script))
        drawn.append(folder / f"{script.stem.removeprefix('plot_')}.png")
        print(f"{process_time() - began:6.1f} s CPU  {drawn[-1]}")
    return drawn


def shrink(drawn: list[Path], folder: Path) -> None:
    """Copies at most 1,280 pixels wide, in the 256 colours that show them best."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in drawn:
        with Image.open(path) as picture:
            width = min(WIDTH, picture.width)
            size = width, round(picture.height * width / picture.width)
            small = picture.convert("RGB").resize(size, Image.Resampling.LANCZOS)
            small.quantize(256).save(folder / path.name, optimize=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", default=Path("pictures"))
    parser.add_argument("--readme", action="store_true", help="renew examples/pictures")
    asked = parser.parse_args()
    pictures = main(asked.folder)
    if asked.readme:
        shrink(pictures, HERE / "pictures")
