"""Fuzz target: bundles whose layers run in layer kernels and tile by tile."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import attrs

from nmpsim.bundle import parse_bundle
from nmpsim.bundle.elffile import ElfFile
from nmpsim.config import make_device_config
from nmpsim.diagnostics import UserError

from .. import programs
from ..engines import make_inputs, run_whole_and_tiled, warm
from ..mutate import mutate_json
from ..target import Target, allow_errors
from .bundle import CODES, change_section, replace_metadata, update_digest

SCRATCHPAD_BYTES = 4096
"""Scratchpad size with which most layers need several tiles."""
_STEPS = (1, 2, 3, 4, 8, 16, 32, 64, 128, 256, 1024)


def run(data: bytes) -> None:
    """Assert that a run with layer kernels equals the run with tiles."""
    with allow_errors("BUN"):
        compare(data)


def compare(data: bytes) -> bool:
    """Compare runs of a bundle with layer kernels and tiles; return whether any layer had one."""
    warm()
    bundle = parse_bundle(update_digest(data), "net.bin")
    with allow_errors(*CODES):
        inputs = make_inputs(bundle.metadata)
        config = make_device_config(bundle.metadata.device)
        return inputs is not None and run_whole_and_tiled(bundle, config, inputs)
    return False


def seeds() -> Iterator[bytes]:
    """Yield layers that have kernels, in one tile and in several tiles on two cores."""
    tiled = attrs.evolve(programs.small_device(), scratchpad_bytes=SCRATCHPAD_BYTES)
    for device in (programs.small_device(1), tiled):
        yield from filter(compare, programs.real_layers(device))


def mutate(data: bytes, random: Random) -> bytes:
    """Change words of descriptors slightly, rarely claims, constants or instructions."""
    try:
        file = ElfFile(memoryview(data), "")
    except UserError as error:
        raise ValueError("not a bundle") from error
    if random.randrange(8) == 0:
        return replace_metadata(data, file, lambda document: _change_claim(document, random))
    changed, section = bytearray(data), file.sections.get(".descriptors")
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        if section is None or section.nbytes < 4 or random.randrange(8) == 0:
            change_section(changed, file, random.choice((".text", ".constants")), random)
            continue
        at, other = (section.offset + 4 * random.randrange(section.nbytes // 4) for _ in range(2))
        old = int.from_bytes(changed[at : at + 4], "little")
        new = old + random.choice((-1, 1)) * random.choice(_STEPS)
        changed[at : at + 4] = random.choice(
            ((new & 0xFFFF_FFFF).to_bytes(4, "little"), changed[other : other + 4])
        )
    return bytes(changed)


def _change_claim(document: Any, random: Random) -> Any:
    """Change a claim in the metadata of a layer, or its output."""
    layer = random.choice(document["layers"])
    mutate_json(layer[random.choice(("claim", "output"))], random)
    return document


TARGET = Target(run, seeds, mutate, seconds=20, most_bytes=1 << 17)
