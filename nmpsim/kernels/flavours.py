"""Which vector instructions kernels can use: the best of a host, or what any host has."""

from __future__ import annotations

from nmpsim.diagnostics import fail

SETTING = "NMPSIM_KERNELS"
FLAVOURS = {
    "amx": ("+amx-tile", "+amx-int8"),
    "vnni": ("+avx512f", "+avx512bw", "+avx512vnni"),
    "avx2": ("+avx2",),
    "sdot": ("+dotprod",),
    "portable": (),
}
"""Name -> features that it needs, as LLVM names them, the best one first."""


def choose_flavour(setting: str | None, features: frozenset[str]) -> str:
    """The flavour that is set, or else the best that the features allow.

    Raises ``UserError`` (ENV001) if there is none of that name, or if the host cannot run it.
    """
    possible = [name for name, needed in FLAVOURS.items() if features.issuperset(needed)]
    if not setting:
        return possible[0]
    if setting in possible:
        return setting
    known = setting in FLAVOURS
    raise fail(
        "ENV001",
        f"{SETTING} asks for instructions that this host lacks"
        if known
        else f"{SETTING} is set to an unknown kind of kernels",
        found=repr(setting),
        expected=" or ".join(possible),
        hint="unset it to have the best kernels for this host",
    )


def features_for(flavour: str, features: frozenset[str]) -> frozenset[str]:
    """Of the features of a host those that leave no better flavour than this one.

    Where a part of AVX-512 is left out, so is all else of it, as on a host that has none.
    """
    names = list(FLAVOURS)
    better = {needed for name in names[: names.index(flavour)] for needed in FLAVOURS[name]}
    had = {feature for feature in features if feature.startswith("+")}
    is_narrow = any("avx512" in feature for feature in better)
    left_out = {one for one in had if one in better or (is_narrow and "avx512" in one)}
    return features - left_out | {f"-{feature[1:]}" for feature in left_out}
