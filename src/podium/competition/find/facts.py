"""What is there before anything is guessed: a competition's card, its files, its images, the cells of its tables.

Nothing of it changes. Each table is parsed once, and each role's images have one index.
"""

from dataclasses import dataclass, field

import pandas as pd

from podium.basics.errors import MissingFiles
from podium.basics.terminal import first_few
from podium.competition.card import Card
from podium.competition.find.csv_files import read_head, read_table
from podium.competition.find.find_files import ROLES, Files, Role
from podium.competition.find.match_images import ImagePool


@dataclass(frozen=True, eq=False)
class Facts:
    card: Card
    files: Files
    _pools: dict[Role, ImagePool] = field(default_factory=dict, init=False)
    _rows: dict[str, pd.DataFrame] = field(default_factory=dict, init=False)

    def images(self, role: Role) -> ImagePool:
        """Returns the images of a role; raises if the card names a folder without images."""
        if role not in self._pools:
            pool = ImagePool(self.files, self.card, role, self.folder_of(role))
            if pool.folder and not pool.has_images():
                raise MissingFiles(
                    f'{self.card.path}: {role}_images = "{pool.folder}" holds no images below {self.files.folder};'
                    f" these folders do: {first_few(name or '.' for name in self.files.images_by_folder)};"
                    " correct that name"
                )
            self._pools[role] = pool
        return self._pools[role]

    def folder_of(self, role: Role) -> str:
        """The folder or container that the card names; a table that the card names may hold the images too."""
        folder = str(self.card.get(f"{role}_images", ""))
        table = str(self.card.get(f"{role}_table", "")).removeprefix("./")
        return folder.removeprefix("./").strip("/") or (table if table in self.files.containers else "")

    def names_an_image(self, cell: str) -> bool:
        return any(self.images(role).find_files([cell])[cell] for role in ROLES)

    def rows_of(self, name: str) -> pd.DataFrame:
        """Returns the rows of a table of text; the index holds the lines of the file."""
        if name not in self._rows:
            self._rows[name] = read_table(self.files.folder / name, may_guess=True)
        return self._rows[name]

    def head_of(self, name: str, count: int) -> pd.DataFrame | None:
        """Returns the first rows of a table; None if it is no plain CSV."""
        return read_head(self.files.folder / name, count)
