"""Kernel targets: sets of vector instructions that kernels can be compiled for."""

from __future__ import annotations

from nmpsim.diagnostics import fail, list_alternatives

SETTING = "NMPSIM_KERNELS"
TARGETS = {
    "amx": ("+amx-tile", "+amx-int8"),
    "vnni": ("+avx512f", "+avx512bw", "+avx512vnni"),
    "avx2": ("+avx2",),
    "sdot": ("+dotprod",),
    "portable": (),
}
"""Name -> processor features that a target needs, as LLVM names them, the fastest target first."""


def choose_target(setting: str | None, features: frozenset[str]) -> str:
    """Choose the target named by ``setting``, by default the fastest that the features allow.

    Raises
    ------
    UserError
        ENV001 if no target has this name, or if the host cannot run it.
    """
    possible = [name for name, needed in TARGETS.items() if features.issuperset(needed)]
    if not setting:
        return possible[0]
    if setting in possible:
        return setting
    is_known = setting in TARGETS
    raise fail(
        "ENV001",
        f"{SETTING} selects instructions that this host does not have"
        if is_known
        else f"{SETTING} is not a kernel target",
        found=repr(setting),
        expected=list_alternatives(possible),
        hint=f"Unset {SETTING} to use the best kernels for this host.",
    )


def restrict_features(target: str, features: frozenset[str]) -> frozenset[str]:
    """Return the features; disable features that only targets faster than ``target`` need.

    Where a part of AVX-512 is disabled, all of it is, as on a host that has none.
    """
    names = list(TARGETS)
    faster = {needed for name in names[: names.index(target)] for needed in TARGETS[name]}
    enabled = {feature for feature in features if feature.startswith("+")}
    is_narrow = any("avx512" in feature for feature in faster)
    disabled = {one for one in enabled if one in faster or (is_narrow and "avx512" in one)}
    return features - disabled | {f"-{feature[1:]}" for feature in disabled}
