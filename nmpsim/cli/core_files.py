"""``--core-on-trap``: a core file of a run that stopped, which the debugger opens where it did."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmpsim.cli.guard import say

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from nmpsim.bundle import Bundle
    from nmpsim.config import DeviceConfig
    from nmpsim.report.data import RunReport
    from nmpsim.report.ended import TrapReport

    Arrays = Mapping[str, npt.NDArray[Any]]


def save_core_file(
    path: Path,
    bundle: Bundle,
    arrays: Arrays,
    report: RunReport,
    config: DeviceConfig,
    max_memory: int | None,
) -> None:
    """Write a core file that reproduces the trap, or warn that a timeout leaves none.

    Raises:
        UserError: FILE002 if the file cannot be written, MEM001 if the search for a violation needs
            more than ``max_memory`` bytes.
    """
    trap = report.trap
    assert trap is not None
    if trap.kind == "timeout":
        say(f"warning: time was up, which is no trap; {path} is not written")
        return
    from nmpsim.core.inputs import prepare_inputs
    from nmpsim.debugger.corefile import Core, save_core

    inputs = prepare_inputs(bundle.metadata, arrays)
    position = _violation_position(bundle, arrays, config, trap, max_memory)
    save_core(path, Core(bytes(bundle.file), inputs, config, report.engine, position))
    say(f"wrote {path}; `nmpsim debug {path}` opens it where the run stopped")


def _violation_position(
    bundle: Bundle,
    arrays: Arrays,
    config: DeviceConfig,
    trap: TrapReport,
    max_memory: int | None,
) -> int | None:
    """Where the debugger stands at a violation of the contract; None: as far as the run comes.

    The debugger does not stop at violations by itself, so its own check looks for the first one.
    """
    if trap.kind != "contract":
        return None
    from nmpsim.checking.hazards import find_hazards

    found = find_hazards(bundle, arrays, config, max_memory=max_memory, max_found=1)
    return found[0].position if found else None
