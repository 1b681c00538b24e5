"""What Numba is told (``NUMBA_...``), known without importing it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_SETTINGS_FILE = Path(".numba_config.yaml")


def told(*names: str) -> dict[str, str]:
    """Those of the settings that are made; names as in the environment.

    Who has imported Numba may have changed them, and its file of settings is its own to read.
    """
    if "numba" not in sys.modules and not _SETTINGS_FILE.exists():
        return {name: os.environ[name] for name in names if name in os.environ}
    import numba

    made = {name: getattr(numba.config, name.removeprefix("NUMBA_")) for name in names}
    return {name: str(value) for name, value in made.items() if value is not None}


def is_on(setting: str) -> bool:
    """True for a setting that is one or ``True``."""
    return setting not in ("", "0", "False")


IS_PLAIN = is_on(told("NUMBA_DISABLE_JIT").get("NUMBA_DISABLE_JIT", ""))
"""True if nothing is compiled: kernels are run as the Python functions that they are made of."""
