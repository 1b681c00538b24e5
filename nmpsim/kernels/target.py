"""The processor that Numba compiles for, known without importing it."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping

from llvmlite import binding

from nmpsim.kernels.flavours import FLAVOURS
from nmpsim.kernels.numba_settings import is_on

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
"""A sum of products that LLVM compiles to ``sdot`` where the processor has it."""


def with_implied(features: frozenset[str], triple: str, name: str) -> frozenset[str]:
    """The features, and ``+dotprod`` where the processor's name implies it.

    On Arm LLVM lists some of a host's features only, and none on macOS; the rest follows from the
    name. Other architectures are left as they are. Their targets have to be initialized.

    Args:
        features: as LLVM names them: ``+neon``.
        triple: that of the target.
        name: that of the processor, as LLVM has it.
    """
    if triple.partition("-")[0] not in ("aarch64", "arm64") or _DOT in features:
        return features
    target = binding.Target.from_triple(triple)
    machine = target.create_target_machine(cpu=name, features=",".join(sorted(features - {""})))
    code = machine.emit_assembly(binding.parse_assembly(_PROBE.format(triple=triple)))
    return features | {_DOT} if "sdot" in code else features


_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18
"""Number of the call on x86-64, and what Linux wants of a process before it uses tiles."""


def without_refused(features: frozenset[str]) -> frozenset[str]:
    """The features of a processor, without AMX unless the system lets this process use it.

    Only Linux is asked, which then lets all threads; elsewhere AMX is not used.
    """
    needed = FLAVOURS["amx"]
    if not features.issuperset(needed) or _is_permitted():
        return features
    return features.difference(needed)


def _is_permitted() -> bool:
    if sys.platform != "linux":
        return False
    request = (_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA)
    answer: int = ctypes.CDLL(None).syscall(*map(ctypes.c_long, request))
    return answer == 0


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
