"""Patches that the debugger exports."""

from __future__ import annotations

import json
from collections.abc import Iterator

from nmpsim.bundle import parse_bundle
from nmpsim.bundle.patch import apply_patch, load_patch
from nmpsim.config import make_device_config

from .. import programs
from ..engines import limit_cycles, run_on_both, warm
from ..mutate import mutate_json_bytes
from ..target import Target, allow_errors, write_file


def run(data: bytes) -> None:
    """Read a patch, apply it and read the patched bundle."""
    warm()
    with allow_errors("PATCH", "FILE001", "BUN"):
        changes = load_patch(write_file(data, "patch.json"))
        bundle = parse_bundle(apply_patch(programs.assemble_example(), changes, "one_conv.bin"))
        config = limit_cycles(make_device_config(bundle.metadata.device))
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


TARGET = Target(run, seeds, mutate_json_bytes, seconds=20)
