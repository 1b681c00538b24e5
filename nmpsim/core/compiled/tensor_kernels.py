"""The function of each tensor instruction from which its kernel is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nmpsim.core.compiled import mac, transfers, vector
from nmpsim.core.compiled.kernel_context import get_descriptor_words, get_kernel_context
from nmpsim.isa.exhaustive import make_exhaustive_table
from nmpsim.isa.table import INSTRUCTIONS, InstructionKind, list_mnemonics
from nmpsim.kernels.array_types import Int

KERNEL_OF = make_exhaustive_table(
    f"{__name__}.KERNEL_OF",
    {**transfers.KERNELS, **mac.KERNELS, **vector.KERNELS},
    list_mnemonics(InstructionKind.TENSOR),
)
PYTHON_KERNELS: dict[int, Callable[..., Any]] = {
    number: KERNEL_OF[i.mnemonic]
    for number, i in enumerate(INSTRUCTIONS)
    if i.kind is InstructionKind.TENSOR
}
"""Instruction number -> function of a kernel context, a descriptor and a layer."""


def make_addressed_kernel(number: int) -> Callable[..., Any]:
    """Return an instruction's kernel as a function of the addresses of context and descriptor."""
    kernel = PYTHON_KERNELS[number]

    def on_addresses(context: Int, core: Int, layer: Int, words: Int) -> Any:
        kernel(get_kernel_context(context, core), get_descriptor_words(words), layer)
        return 0

    # Profilers show this name.
    on_addresses.__qualname__ = INSTRUCTIONS[number].mnemonic.removeprefix("nmp.")
    return on_addresses
