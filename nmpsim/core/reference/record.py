"""Recording of unit work and core waits; see :mod:`nmpsim.core.work`."""

from __future__ import annotations

from typing import Any

from nmpsim.core.reference.cores import Core
from nmpsim.core.state import GrantKind, JobColumn, WaitTarget
from nmpsim.isa.table import Unit


def record_work(
    core: Core,
    unit: Unit,
    layer: int,
    begin: int,
    end: int,
    done: int,
    nbytes: int = 0,
    transfer: Any = None,
    cursor: Any = None,
    kind: GrantKind = GrantKind.OWN,
) -> None:
    """Record a job or a DRAM grant of a unit in the work log, if the machine has a log.

    ``transfer`` is the DMA job of the work, whose address and descriptor the entry has; else they
    are those of the core's instruction. ``cursor`` is the state of a transfer before a DRAM grant,
    whose ``kind`` the entry has.
    """
    machine = core.machine
    if machine.work.size == 0:
        return
    entry = machine.work[int(machine.shared[0]["noted"])]
    machine.shared[0]["noted"] += 1
    pc, descriptor = core.pc, core.descriptor
    if transfer is not None:
        pc, descriptor = transfer[JobColumn.PC], transfer[JobColumn.DESCRIPTOR]
    entry["core"], entry["unit"], entry["layer"] = core.number, unit, layer
    entry["pc"], entry["descriptor"] = pc, descriptor
    entry["begin"], entry["end"], entry["done"], entry["bytes"] = begin, end, done, nbytes
    entry["is_grant"] = GrantKind.NONE if cursor is None else kind
    if cursor is not None:
        entry["cursor"] = cursor


def record_wait(core: Core, what: WaitTarget, happened: int, end: int, awaited: int) -> None:
    """Record a core's wait from its clock to ``end`` in the wait log, if there is a log."""
    machine, begin = core.machine, core.clock
    if machine.waits.size == 0 or end <= begin:
        return
    entry = (core.number, what, begin, happened, end, awaited)
    machine.waits[int(machine.shared[0]["waited"])] = entry
    machine.shared[0]["waited"] += 1
