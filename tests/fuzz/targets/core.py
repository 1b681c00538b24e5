"""Core files of the debugger."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from random import Random

import numpy as np

from nmpsim.array_files import ArrayFile
from nmpsim.debugger import Debugger
from nmpsim.debugger.core_dump import CoreDump, read_core_file, write_core_file
from nmpsim.debugger.edits import Edit

from .. import programs
from ..engines import limit_cycles, warm
from ..mutate import mutate_archive, mutate_json
from ..target import Target, allow_errors, get_folder, write_file
from . import bundle, npz

MAX_MEBIBYTES = 16


def run(data: bytes) -> None:
    """Open a core file and go to its position."""
    warm()
    path = write_file(data, "core.npz")
    with allow_errors("DEBUG", "INPUT", "FILE001", "BUN", "DEV", "ARG001"):
        core = read_core_file(path, ArrayFile(path))
        debugger = Debugger(
            core.load_bundle(str(path)), core.inputs, config=limit_cycles(core.config),
            engine=core.engine, budget_mib=MAX_MEBIBYTES,
        )  # fmt: skip
        debugger.apply_edits(core.edits)
        if core.position is None:
            debugger.run_to_end()
        else:
            debugger.go_to(core.position)


def seeds() -> Iterator[bytes]:
    """Yield a core file in the middle of a run and one at its end."""
    program, inputs = programs.one_conv()
    config = programs.small_device(program.metadata.device["cores_count"])
    for position, engine in ((5, "compiled"), (None, "reference")):
        path = get_folder() / "seed.npz"
        edits = (Edit(3, ((program.rw_base, b"\x05"),), "an element"),) if position else ()
        write_core_file(
            path, CoreDump(programs.assemble_example(), inputs, config, engine, position, edits)
        )
        yield path.read_bytes()


def mutate(data: bytes, random: Random) -> bytes:
    """Change arrays of the core file, some of them those of its bundle."""
    return mutate_archive(data, random, _mutate_member)


def _mutate_member(name: str, contents: bytes, random: Random) -> bytes:
    if random.random() < 0.3 or not name.startswith(("bundle", "about", "edits")):
        return npz.mutate_member(name, contents, random)
    held = np.load(io.BytesIO(contents)).tobytes()
    if name.startswith("bundle"):
        changed = bundle.update_digest(bundle.mutate(held, random))
    else:
        changed = json.dumps(mutate_json(json.loads(held), random)).encode()
    made = io.BytesIO()
    np.save(made, np.frombuffer(changed, np.uint8))
    return made.getvalue()


TARGET = Target(run, seeds, mutate, seconds=20)
