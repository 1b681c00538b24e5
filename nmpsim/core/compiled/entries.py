"""Compiled functions that Python calls, and the kernels of tensor instructions.

The modules that define them are imported only when one has to be compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from nmpsim.core.compiled.contract_state import make_contract_state
from nmpsim.core.contract_events import EVENT_WORDS
from nmpsim.isa.table import INSTRUCTIONS, InstructionKind
from nmpsim.kernels.entries import AddressedKernel, CompiledEntry


def _import(module: str, name: str) -> Any:
    """Import a function of the compiled engine, ready to be compiled."""
    package = __name__.rpartition(".")[0]
    import_module(f"{package}.contract_entry").register_plain_functions()
    return getattr(import_module(f"{package}.{module}"), name)


def _import_kernel(number: int) -> Callable[..., Any]:
    kernel: Callable[..., Any] = _import("tensor_kernels", "make_addressed_kernel")(number)
    return kernel


run = CompiledEntry("event_loop.run", partial(_import, "event_loop", "run"))
"""See :func:`nmpsim.core.compiled.event_loop.run`."""
replay_epochs = CompiledEntry(
    "replay.replay_epochs", partial(_import, "replay_loop", "replay_epochs")
)
"""See :func:`nmpsim.core.compiled.replay_loop.replay_epochs`."""
execute_epochs = CompiledEntry(
    "replay.execute_epochs", partial(_import, "replay_loop", "execute_epochs")
)
"""See :func:`nmpsim.core.compiled.replay_loop.execute_epochs`."""
check_events = CompiledEntry(
    "contract.check_events", partial(_import, "contract_entry", "check_events")
)
"""See :func:`nmpsim.core.compiled.contract_entry.check_events`."""
PARTS = (replay_epochs, execute_epochs, check_events)
"""Entries of the engine besides ``run``."""
KERNELS = {
    number: AddressedKernel(
        f"kernel.{i.mnemonic.removeprefix('nmp.')}", partial(_import_kernel, number), 4
    )
    for number, i in enumerate(INSTRUCTIONS)
    if i.kind is InstructionKind.TENSOR
}
"""Instruction number -> kernel, a function of the addresses of a context and a descriptor; see
:mod:`~nmpsim.core.compiled.tensor_kernels`."""


def prepare_contract_check() -> None:
    """Prepare the contract check: compile it, or load it from the kernel cache."""
    nothing = np.zeros((0, EVENT_WORDS), np.int64)
    check_events.compile_for(make_contract_state(1, 0, 0, 0, 1), nothing, nothing, 0)
