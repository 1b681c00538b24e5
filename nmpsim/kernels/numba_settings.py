"""What Numba is told (``NUMBA_...``): as Numba itself reads it, without importing the rest."""

from __future__ import annotations

import functools
import sys
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any


def told(*names: str) -> dict[str, str]:
    """Those of the settings that are made; names as in the environment."""
    config = sys.modules["numba"].config if "numba" in sys.modules else _config()
    made = {name: getattr(config, name.removeprefix("NUMBA_")) for name in names}
    return {name: str(value) for name, value in made.items() if value is not None}


@functools.cache
def _config() -> Any:
    """The module ``numba.config``, alone if it is where it is in all versions that were tested."""
    package = find_spec("numba")
    assert package is not None
    assert package.origin is not None
    alone = spec_from_file_location(
        "nmpsim_numba_config", Path(package.origin).parent / "core" / "config.py"
    )
    try:
        assert alone is not None
        assert alone.loader is not None
        config = module_from_spec(alone)
        alone.loader.exec_module(config)
    except (ImportError, OSError):
        import numba

        config = numba.config
    return config


def is_on(setting: str) -> bool:
    """True for a setting that is one or ``True``."""
    return setting not in ("", "0", "False")


IS_PLAIN = is_on(told("NUMBA_DISABLE_JIT").get("NUMBA_DISABLE_JIT", ""))
"""True if nothing is compiled: kernels are run as the Python functions that they are made of."""
