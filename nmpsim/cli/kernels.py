"""``NMPSIM_KERNELS``: which vector instructions kernels use, told to Numba in its own words.

Processes that this one starts have the same environment, and so the same kernels.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from nmpsim.kernels.flavours import SETTING, choose_flavour, features_for

_FEATURES = "NUMBA_CPU_FEATURES"


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
    from nmpsim.kernels.target import known_features

    features = known_features(environment)
    flavour = choose_flavour(setting, features)
    if flavour == choose_flavour(None, features):
        return {}
    return {_FEATURES: ",".join(sorted(features_for(flavour, features)))}
