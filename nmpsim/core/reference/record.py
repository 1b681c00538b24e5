"""Notes of what units did; :mod:`nmpsim.core.work` says who reads them."""

from __future__ import annotations

from typing import Any

from nmpsim.core.reference.cores import Core
from nmpsim.core.state import Job, WaitTarget
from nmpsim.isa.table import Unit
from nmpsim.memory.dram import COUNT_X, COUNT_Y, RUN


def note(core: Core, unit: Unit, **facts: Any) -> None:
    """The next entry, if anybody wants one; ``facts`` are further fields of WORK."""
    machine = core.machine
    if machine.work.size == 0:
        return
    entry = machine.work[int(machine.shared[0]["noted"])]
    machine.shared[0]["noted"] += 1
    entry["core"], entry["unit"] = core.number, unit
    for name, value in facts.items():
        entry[name] = value


def note_wait(core: Core, what: WaitTarget, happened: int, end: int, awaited: int) -> None:
    """The core waits from now to ``end``."""
    machine, begin = core.machine, core.clock
    if machine.waits.size == 0 or end <= begin:
        return
    entry = (core.number, what, begin, happened, end, awaited)
    machine.waits[int(machine.shared[0]["waited"])] = entry
    machine.shared[0]["waited"] += 1


def note_compute(core: Core, unit: Unit, layer: int, begin: int, end: int) -> None:
    """An instruction of the MAC array or the vector unit."""
    note(
        core,
        unit,
        is_grant=0,
        pc=core.pc,
        descriptor=core.descriptor,
        layer=layer,
        begin=begin,
        end=end,
        done=end,
        bytes=0,
    )


def note_transfer(core: Core, unit: Unit, transfer: Any, free: int, finished: int) -> None:
    """A transfer that is served."""
    note(
        core,
        unit,
        is_grant=0,
        **_origin(transfer),
        begin=transfer[Job.BEGIN],
        end=free,
        done=finished,
        bytes=transfer[RUN] * transfer[COUNT_X] * transfer[COUNT_Y],
    )


def note_grant(
    core: Core, unit: Unit, transfer: Any, cursor: Any, begin: int, end: int, nbytes: int
) -> None:
    """A grant of the DRAM; ``cursor`` is the transfer's before it."""
    _note_grant(core, unit, _origin(transfer), cursor, begin, end, nbytes)


def note_fetch(core: Core, layer: int, cursor: Any, begin: int, end: int, nbytes: int) -> None:
    """A grant of the DRAM that reads a descriptor, or a part of it; ``cursor`` is before it."""
    origin = {"pc": core.pc, "descriptor": core.descriptor, "layer": layer}
    _note_grant(core, Unit.LOAD, origin, cursor, begin, end, nbytes)


def _note_grant(
    core: Core, unit: Unit, origin: dict[str, Any], cursor: Any, begin: int, end: int, nbytes: int
) -> None:
    moved = {"begin": begin, "end": end, "done": end, "bytes": nbytes, "cursor": cursor}
    note(core, unit, is_grant=1, **origin, **moved)


def _origin(transfer: Any) -> dict[str, Any]:
    return {
        "pc": transfer[Job.PC],
        "descriptor": transfer[Job.DESCRIPTOR],
        "layer": transfer[Job.LAYER],
    }
