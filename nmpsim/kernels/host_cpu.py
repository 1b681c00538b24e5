"""The processor that Numba compiles for, found without importing Numba."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping

from llvmlite import binding

from nmpsim.kernels.numba_settings import is_enabled
from nmpsim.kernels.targets import TARGETS

_DOT = "+dotprod"
_PROBE = """target triple = "{triple}"
declare i32 @llvm.vector.reduce.add.v16i32(<16 x i32>)
define i32 @probe(<16 x i8> %a, <16 x i8> %b) {{
  %x = sext <16 x i8> %a to <16 x i32>
  %y = sext <16 x i8> %b to <16 x i32>
  %z = mul <16 x i32> %x, %y
  %sum = call i32 @llvm.vector.reduce.add.v16i32(<16 x i32> %z)
  ret i32 %sum
}}"""
"""A sum of products, which LLVM compiles to ``sdot`` for processors that have it."""


def add_implied_features(features: frozenset[str], triple: str, cpu: str) -> frozenset[str]:
    """Return the features, with ``+dotprod`` added if LLVM generates it for the Arm processor.

    On Arm, LLVM lists only some of a host's features, and none on macOS; the name of the processor
    implies the rest. LLVM's targets must be initialized.

    Parameters
    ----------
    features
        As LLVM names them: ``+neon``.
    triple
        LLVM's name of the platform. Only Arm's features are changed.
    cpu
        LLVM's name of the processor.
    """
    if triple.partition("-")[0] not in ("aarch64", "arm64") or _DOT in features:
        return features
    target = binding.Target.from_triple(triple)
    machine = target.create_target_machine(cpu=cpu, features=",".join(sorted(features - {""})))
    code = machine.emit_assembly(binding.parse_assembly(_PROBE.format(triple=triple)))
    return features | {_DOT} if "sdot" in code else features


_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18
"""Number of the system call on x86-64, and its arguments that request AMX tiles on Linux."""


def remove_forbidden_features(features: frozenset[str]) -> frozenset[str]:
    """Return the features without AMX, unless the system permits this process to use it.

    On Linux the permission is requested for all threads; AMX is not used elsewhere.
    """
    needed = TARGETS["amx"]
    if not features.issuperset(needed) or _request_amx():
        return features
    return features.difference(needed)


def _request_amx() -> bool:
    if sys.platform != "linux":
        return False
    request = (_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA)
    status: int = ctypes.CDLL(None).syscall(*map(ctypes.c_long, request))
    return status == 0


NAME, FEATURES, AVX = "NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "NUMBA_ENABLE_AVX"
SETTINGS = (NAME, FEATURES, AVX)
"""Settings of Numba that choose the processor."""


def initialize_llvm() -> None:
    """Initialize LLVM for compiling and loading code of the host."""
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()


def get_cpu_name(settings: Mapping[str, str]) -> str:
    """Return the LLVM name of the processor for which Numba compiles, by default the host's."""
    return settings[NAME] if NAME in settings else str(binding.get_host_cpu_name())


def get_cpu_features(settings: Mapping[str, str]) -> str:
    """Return the processor features that Numba uses, in LLVM's format such as ``+avx,-avx2``."""
    if FEATURES in settings:
        return settings[FEATURES]
    if settings.get(NAME, "").lower() == "generic":
        return ""
    try:
        features = binding.get_host_cpu_features()
    except RuntimeError:  # LLVM does not know this host
        return ""
    if not is_enabled(settings.get(AVX, "1")):
        features.update({name: False for name in features if name.startswith("avx")})
    return str(features.flatten())


def find_usable_features(settings: Mapping[str, str]) -> frozenset[str]:
    """Return the features that kernels may use, including features that LLVM does not list."""
    initialize_llvm()
    features = frozenset(get_cpu_features(settings).split(","))
    name = get_cpu_name(settings)
    return remove_forbidden_features(
        add_implied_features(features, binding.get_process_triple(), name)
    )
