"""The small files that decide how a competition is read and trained: whatever runs elsewhere needs them."""

from pathlib import Path

from podium.competition.build.corrections import corrections_path
from podium.competition.card import card_path, read_card
from podium.options.extensions.extension_files import PROJECT_FILE, loaded_extensions


def find_project_files(slug: str, root: Path) -> list[Path]:
    """Returns the card, the corrections, podium.toml and the extensions, as far as they exist."""
    read_card(slug, root)  # loads the extensions
    paths = [card_path(slug, root), corrections_path(slug, root), root / PROJECT_FILE]
    paths += [root / extension.name for extension in loaded_extensions()]
    return [path for path in paths if path.is_file()]
