"""Find the reference files for tests that need them at collection time."""

import os
from pathlib import Path

_REPOSITORY = Path(__file__).resolve().parents[1]


def shared_folder() -> Path:
    """Return ``NMPSIM_SHARED`` or the folder ``shared`` beside the repository, if missing too."""
    return Path(os.environ.get("NMPSIM_SHARED", _REPOSITORY.parent / "shared"))


def shared_names(pattern: str) -> list[str]:
    """Return the sorted relative paths of matching shared files; empty if there is no folder."""
    folder = shared_folder()
    return sorted(str(path.relative_to(folder)) for path in folder.rglob(pattern))
