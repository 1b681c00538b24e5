"""``NMPSIM_KERNELS``: which vector instructions kernels use, told to Numba in its own words.

Processes that this one starts have the same environment, and so the same kernels.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from nmpsim.kernels.flavours import SETTING, choose_flavour, features_for

_FEATURES, _NAME = "NUMBA_CPU_FEATURES", "NUMBA_CPU_NAME"


def set_kernels() -> None:
    """Do as the environment says; to be called before Numba is imported.

    Raises:
        UserError: ENV001 for kernels that are unknown, or that this host cannot run.
    """
    os.environ.update(numba_settings(os.environ))


def numba_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """What Numba must be told for the kernels that an environment asks for; UserError ENV001."""
    setting = environment.get(SETTING)
    if not setting:
        return {}
    features = _features(environment)
    flavour = choose_flavour(setting, features)
    if flavour == choose_flavour(None, features):
        return {}
    return {_FEATURES: ",".join(sorted(features_for(flavour, features)))}


def _features(environment: Mapping[str, str]) -> frozenset[str]:
    """Those that Numba compiles for without being told more: its own settings, or the host's."""
    from llvmlite import binding

    from nmpsim.kernels.amx_features import without_refused
    from nmpsim.kernels.arm_features import with_implied

    name = environment.get(_NAME, "").lower()
    if _FEATURES in environment:
        features = frozenset(environment[_FEATURES].split(","))
    elif name == "generic":
        features = frozenset()
    else:
        features = frozenset(binding.get_host_cpu_features().flatten().split(","))
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    triple = binding.get_process_triple()
    features = with_implied(features, triple, name or binding.get_host_cpu_name())
    return without_refused(features)
