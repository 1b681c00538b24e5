"""What Python calls of the compiled engine, and which kernels it has.

The modules that these functions are made of are imported where one has to be compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from nmpsim.core.compiled.contract_state import make_contract
from nmpsim.core.contract_events import EVENT_WORDS
from nmpsim.isa.table import INSTRUCTIONS, Kind
from nmpsim.kernels.entries import Entry, Kernel


def _run() -> Callable[..., Any]:
    _register()
    from nmpsim.core.compiled.event_loop import run

    return run


def _replay_epochs() -> Callable[..., Any]:
    _register()
    from nmpsim.core.compiled.replay_loop import replay_epochs

    return replay_epochs


def _work_loop() -> Callable[..., Any]:
    _register()
    from nmpsim.core.compiled.replay_loop import work_loop

    return work_loop


def _check_events() -> Callable[..., Any]:
    _register()
    from nmpsim.core.compiled.contract_entry import check_events

    return check_events


def _kernel(number: int) -> Callable[..., Any]:
    _register()
    from nmpsim.core.compiled.tensor_kernels import on_addresses

    return on_addresses(number)


def _register() -> None:
    from nmpsim.core.compiled.contract_entry import register_plain_functions

    register_plain_functions()


run = Entry("event_loop.run", _run)
"""See :func:`nmpsim.core.compiled.event_loop.run`."""
replay_epochs = Entry("replay.replay_epochs", _replay_epochs)
"""See :func:`nmpsim.core.compiled.replay_loop.replay_epochs`."""
work_loop = Entry("replay.work_loop", _work_loop)
"""See :func:`nmpsim.core.compiled.replay_loop.work_loop`."""
check_events = Entry("contract.check_events", _check_events)
"""See :func:`nmpsim.core.compiled.contract.check`."""
PARTS = (replay_epochs, work_loop, check_events)
"""What the engine consists of besides ``run``."""
KERNELS = {
    number: Kernel(f"kernel.{i.mnemonic.removeprefix('nmp.')}", partial(_kernel, number), 4)
    for number, i in enumerate(INSTRUCTIONS)
    if i.kind is Kind.TENSOR
}
"""Instruction number -> function of the addresses of a context and a descriptor, see
:mod:`~nmpsim.core.compiled.tensor_kernels`."""


def prepare_check() -> None:
    """Compile the check of the contract, or load it."""
    nothing = np.zeros((0, EVENT_WORDS), np.int64)
    check_events.prepare(make_contract(1, 0, 0, 0, 1), nothing, nothing, 0)
