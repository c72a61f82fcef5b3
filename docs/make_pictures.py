"""Makes the pictures of a report for the README: runs `podium demo` in an empty folder and photographs its pages.

    python docs/make_pictures.py

Writes docs/pictures/report.png and mistakes.png. It needs Chromium, and takes about two minutes on two CPU cores.
"""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

PICTURES = Path(__file__).parent / "pictures"
WIDTH = 1040  # pixels
PAGES = {  # picture: page, first and last row of pixels
    "report": ("report.html", 0, 760),
    "mistakes": ("demo-net/report.html", 1500, 2240),
}
COLOURS = 64  # keep a file below 100 kB


def main() -> None:
    with TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "podium", "--root", folder, "demo"], check=True)
        for name, (page, top, bottom) in PAGES.items():
            photograph(Path(folder) / "runs" / "sample" / page, PICTURES / f"{name}.png", top, bottom)


def photograph(page: Path, picture: Path, top: int, bottom: int) -> None:
    """Writes the part of a page between two rows of pixels."""
    with TemporaryDirectory() as folder:
        whole = Path(folder) / "page.png"
        flags = ["--headless", "--no-sandbox", "--hide-scrollbars", f"--window-size={WIDTH},{bottom}"]
        subprocess.run(
            ["chromium", *flags, f"--screenshot={whole}", page.resolve().as_uri()],
            check=True,
            timeout=120,
            stderr=subprocess.DEVNULL,
        )
        part = Image.open(whole).convert("RGB").crop((0, top, WIDTH, bottom))
    part.quantize(COLOURS).save(picture, optimize=True)
    print(f"{picture}: {picture.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
