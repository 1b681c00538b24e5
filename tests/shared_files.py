"""Where the reference files are, for tests that need to know before they run."""

import os
from pathlib import Path

_REPOSITORY = Path(__file__).resolve().parents[1]


def shared_folder() -> Path:
    """The folder ``shared`` beside the repository, or ``NMPSIM_SHARED``; it may not exist."""
    return Path(os.environ.get("NMPSIM_SHARED", _REPOSITORY.parent / "shared"))


def shared_names(pattern: str) -> list[str]:
    """Names, relative to the folder, of the files that match; none if there is no folder."""
    folder = shared_folder()
    return sorted(str(path.relative_to(folder)) for path in folder.rglob(pattern))
