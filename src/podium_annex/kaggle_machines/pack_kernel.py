"""Packs what Kaggle's machines need of this checkout: Podium's code, the card, corrections, extensions and folds."""

import base64
import io
import lzma
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path

import podium
from podium.basics.extras import COPY, declared_lines
from podium.competition.build.corrections import find_project_files
from podium_annex.kaggle_machines.inside_kernel import PROJECT

PARTS = (  # of the code, that it runs there
    "podium",
    *(f"podium_annex/{name}" for name in ("__init__.py", "zoo", "readers.py", "formats", "trackers.py")),
    *(f"podium_annex/kaggle_machines/{name}.py" for name in ("__init__", "inside_kernel")),
)


def build_kernel_script(slug: str, root: Path, call: str, files: Mapping[str, Path]) -> str:
    """Returns the one file of a kernel. It holds the code, the project's files and further `files` by their place in
    PROJECT, unpacks them and evaluates `call`, a call of a function in inside_kernel.py. For trials elsewhere,
    PODIUM_KAGGLE_CODE names the folder to unpack to."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as file:  # packed as one: the files are small, and alike
        for path, name in [*find_code_files(), *name_project_files(slug, root)]:
            file.write(path, name)
        file.writestr(COPY.name, "\n".join(declared_lines()))
        for path in sorted((root / "data" / "prepared" / slug).glob("folds.*")):
            file.write(path, f"{PROJECT}/{path.relative_to(root)}")
        for place, path in files.items():
            file.write(path, f"{PROJECT}/{place}")
    lines = "\n".join(re.findall(".{1,120}", base64.b64encode(lzma.compress(archive.getvalue(), preset=9)).decode()))
    return f'''"""Made by podium kaggle-train; https://www.kaggle.com/competitions/{slug}"""
import base64, io, lzma, os, sys, zipfile

PACKED = """
{lines}
"""
folder = os.environ.get("PODIUM_KAGGLE_CODE", "/tmp/podium")
zipfile.ZipFile(io.BytesIO(lzma.decompress(base64.b64decode(PACKED)))).extractall(folder)
sys.path.insert(0, folder + "/src")
import podium_annex.kaggle_machines.inside_kernel

sys.exit(podium_annex.kaggle_machines.inside_kernel.{call})
'''


def find_code_files() -> list[tuple[Path, str]]:
    """Returns the files of this program, and their names in the kernel's archive or the bundle."""
    source = Path(podium.__file__).parents[1]
    parts = [source / name for name in PARTS if (source / name).exists()]
    files = sorted(path for part in parts for path in (part.rglob("*") if part.is_dir() else [part]))
    return [(path, f"src/{path.relative_to(source)}") for path in files if path.suffix in (".py", ".c", ".toml")]


def name_project_files(slug: str, root: Path) -> list[tuple[Path, str]]:
    """Returns the project's small files, and their names in the kernel's archive or bundle."""
    return [(path, f"{PROJECT}/{path.relative_to(root)}") for path in find_project_files(slug, root)]
