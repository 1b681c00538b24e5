"""Patches that the debugger exports."""

from __future__ import annotations

import json
from collections.abc import Iterator

from nmpsim.bundle import parse_bundle
from nmpsim.bundle.patch import apply_patch, load_patch
from nmpsim.config import make_device_config

from .. import programs
from ..engines import limited, run_on_both, warm
from ..mutate import json_bytes_changed
from ..target import Target, as_file, refusals


def run(data: bytes) -> None:
    """Read a patch, apply it and read the patched bundle."""
    warm()
    with refusals("PATCH", "FILE001", "BUN"):
        changes = load_patch(as_file(data, "patch.json"))
        bundle = parse_bundle(apply_patch(programs.assembled(), changes, "one_conv.bin"))
        config = limited(make_device_config(bundle.metadata.device))
        run_on_both(bundle, config, programs.one_conv()[1])


def seeds() -> Iterator[bytes]:
    """Yield patches of code, descriptors and constants."""
    bundle, _ = programs.one_conv()
    for name in (".text", ".descriptors", ".constants"):
        begin, end = bundle.sections[name]
        changes = []
        for address in range(begin, min(end, begin + 64), 16):
            at = address - bundle.image_base
            was = bundle.image[at : at + 4].tobytes()
            now = bytes([was[0] ^ 1]) + was[1:]
            what = f"{name} at {address:#x}"
            changes.append(
                {"address": address, "old": was.hex(), "new": now.hex(), "description": what}
            )
        yield json.dumps({"schema": "nmpsim-patch-2", "changes": changes}).encode()


TARGET = Target(run, seeds, json_bytes_changed, seconds=20)
