"""Settings of Numba (``NUMBA_...``), read as Numba reads them but without importing it."""

from __future__ import annotations

import builtins
import functools
import sys
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from nmpsim.diagnostics import Place, fail
from nmpsim.extras import make_missing_package_error

_FILE = ".numba_config.yaml"
"""Settings that Numba reads from the current folder."""


def read_settings(*names: str) -> dict[str, str]:
    """Read the values that Numba uses for environment variables; omit variables without a value.

    Raises
    ------
    UserError
        PKG001 if Numba is not installed, ENV001 if it cannot read its settings.
    """
    numba = sys.modules.get("numba")
    config = _config() if numba is None else numba.config
    made = {name: getattr(config, name.removeprefix("NUMBA_")) for name in names}
    return {name: str(value) for name, value in made.items() if value is not None}


@functools.cache
def _config() -> Any:
    """Return the module ``numba.config``, imported alone if it is where it usually is."""
    try:
        package = find_spec("numba")
    except ValueError:  # its import is blocked
        package = None
    if package is None or package.origin is None:
        raise make_missing_package_error("numba")
    alone = spec_from_file_location(
        "nmpsim_numba_config", Path(package.origin).parent / "core" / "config.py"
    )
    try:
        assert alone is not None
        assert alone.loader is not None
        config = module_from_spec(alone)
        if not Path(_FILE).exists():
            vars(config)["__builtins__"] = vars(builtins) | {"__import__": _without_yaml}
        alone.loader.exec_module(config)
    except (ImportError, OSError):
        import numba

        config = numba.config
    except Exception as error:  # any error of the YAML package
        if not Path(_FILE).exists():
            raise
        raise fail(
            "ENV001",
            "Numba cannot read its settings",
            place=Place(file=_FILE),
            found=" ".join(str(error).split()),
            hint="Correct this file, remove it, or start nmpsim in another folder.",
        ) from error
    return config


def _without_yaml(name: str, *more: Any) -> Any:
    """Import a module, but not YAML, which takes longer than everything else and is not needed."""
    if name == "yaml":
        raise ImportError(name)
    return __import__(name, *more)


def is_enabled(setting: str) -> bool:
    """Return whether the text of a setting is not '', '0' or 'False'."""
    return setting not in ("", "0", "False")


IS_JIT_DISABLED = is_enabled(read_settings("NUMBA_DISABLE_JIT").get("NUMBA_DISABLE_JIT", ""))
"""True if nothing is compiled: kernels run as the Python functions that they are written as."""
