"""The processor that Numba compiles for, known without importing it."""

from __future__ import annotations

from collections.abc import Mapping

from llvmlite import binding

from nmpsim.kernels.amx_features import without_refused
from nmpsim.kernels.arm_features import with_implied
from nmpsim.kernels.numba_settings import is_on

NAME, FEATURES, AVX = "NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "NUMBA_ENABLE_AVX"
SETTINGS = (NAME, FEATURES, AVX)
"""Of Numba, that choose the processor."""


def initialize() -> None:
    """Make LLVM ready to compile for the host, and to load what was compiled."""
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()


def cpu_name(settings: Mapping[str, str]) -> str:
    """The processor that Numba compiles for, as LLVM names it: the host, unless it is told more."""
    return settings[NAME] if NAME in settings else str(binding.get_host_cpu_name())


def cpu_features(settings: Mapping[str, str]) -> str:
    """Its features, as LLVM lists them: ``+avx,-avx2``."""
    if FEATURES in settings:
        return settings[FEATURES]
    if settings.get(NAME, "").lower() == "generic":
        return ""
    try:
        features = binding.get_host_cpu_features()
    except RuntimeError:  # LLVM knows none of this host
        return ""
    if not is_on(settings.get(AVX, "1")):
        features.update({name: False for name in features if name.startswith("avx")})
    return str(features.flatten())


def known_features(settings: Mapping[str, str]) -> frozenset[str]:
    """Its features, with those that follow from its name only, without what the system refuses."""
    initialize()
    features = frozenset(cpu_features(settings).split(","))
    implied = with_implied(features, binding.get_process_triple(), cpu_name(settings))
    return without_refused(implied)
