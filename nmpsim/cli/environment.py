"""Environment variables that choose how kernels are compiled."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from nmpsim.cli.guard import print_message
from nmpsim.kernels.targets import SETTING, choose_target, restrict_features

BACKGROUND_SETTING = "NMPSIM_COMPILE_AHEAD"
_DISABLING = ("CI", "PYTEST_VERSION", "NUMBA_DISABLE_JIT")
"""Variables of environments where background compilation is of no use, or would disturb."""
_FEATURES = "NUMBA_CPU_FEATURES"
_PROCESSOR = ("NUMBA_CPU_NAME", _FEATURES)
"""Variables that make Numba compile for another processor."""


def is_background_compile_enabled(environment: Mapping[str, str]) -> bool:
    """Return whether kernels may be compiled in the background.

    ``NMPSIM_COMPILE_AHEAD`` decides, 1 or 0; without it, true except on test machines.
    """
    setting = environment.get(BACKGROUND_SETTING)
    if setting:
        return setting != "0"
    return not any(environment.get(name) for name in _DISABLING)


def choose_engine(requested: str, *, runs_often: bool = False) -> str:
    """Choose an engine; if it stays ``auto``, compile kernels in the background if enabled.

    ``auto`` becomes ``compiled`` if the program runs often. Otherwise it stays ``auto``, and
    kernels for the next command are compiled in the background.
    """
    if requested == "auto" and runs_often:
        return "compiled"
    if requested == "auto" and is_background_compile_enabled(os.environ):
        from nmpsim.core.background_compile import start_background_compile

        settings = [f"{name}={os.environ.get(name, '')}" for name in _PROCESSOR]
        is_started = start_background_compile(
            os.environ.get("NUMBA_CACHE_DIR", ""), " ".join(settings)
        )
        if is_started and sys.stderr is not None and sys.stderr.isatty():
            print_message(
                "note: kernels are being compiled in the background, once;"
                f" set {BACKGROUND_SETTING}=0 to prevent this"
            )
    return requested


def set_kernel_target() -> None:
    """Set Numba's environment variables to the kernel target that ``NMPSIM_KERNELS`` names.

    Raises
    ------
    UserError
        ENV001 for kernels that are unknown, or that this host cannot run.
    """
    os.environ.update(get_numba_settings(os.environ))


def get_numba_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return Numba's environment variables for ``NMPSIM_KERNELS``, or {} if none are needed.

    Processes started by this one inherit them. Raises UserError (ENV001), see
    :func:`set_kernel_target`.
    """
    setting = environment.get(SETTING)
    if not setting:
        return {}
    from nmpsim.kernels.host_cpu import find_usable_features

    features = find_usable_features(environment)
    target = choose_target(setting, features)
    if target == choose_target(None, features):
        return {}
    return {_FEATURES: ",".join(sorted(restrict_features(target, features)))}
