"""The interface between planners and the search: what a planner gets, and what it offers."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import attrs

from nmpsim.arrays import Array
from nmpsim.bundle.elf import LazyBytes
from nmpsim.compiler.numerics import ProfileEncoder
from nmpsim.compiler.program_memory import ProgramMemory
from nmpsim.compiler.tiling.cost_model import DramModel, RoughCost
from nmpsim.compiler.tiling.plan import LayerPlan
from nmpsim.config import DeviceConfig
from nmpsim.diagnostics import Place, UserError, fail
from nmpsim.timing import Costs, get_costs


@attrs.frozen(eq=False)
class PlanningContext:
    """Context for planning a layer: device, numerics profile, addresses and constants."""

    name: str
    """Name of the layer's instruction, for messages."""
    config: DeviceConfig
    profile: ProfileEncoder
    """Arithmetic of the layer."""
    place: Place
    memory: ProgramMemory
    weighted: dict[int, Any] = attrs.field(factory=dict)
    """Layers with weights that have been made, by the identity of their operation."""

    def add_constant(self, what: str, array: Array | LazyBytes) -> int:
        """Add an array named ``LAYER.what`` to the program's constants; return its address."""
        return self.memory.add_constant(f"{self.name}.{what}", array)

    @property
    def costs(self) -> Costs:
        """Costs of instructions and DRAM transfers on the device, in cycles."""
        return get_costs(self.config)

    def get_row_offsets(self, *addresses: int) -> tuple[int, ...]:
        """Return the offsets of addresses within their DRAM rows, in bytes."""
        return tuple(address % self.config.dram_row_bytes for address in addresses)

    def make_size_error(self, needs: int) -> UserError:
        """Return a UserError (COMP002) for a layer whose smallest tile exceeds the scratchpad."""
        return fail(
            "COMP002",
            f"the smallest tile of %{self.name} does not fit a scratchpad",
            place=self.place,
            found=f"{needs} bytes",
            expected=f"at most {self.config.scratchpad_bytes} bytes",
            hint="Increase bytes in [scratchpad] of the device file.",
        )


@attrs.frozen(eq=False)
class TilingOptions:
    """Options for the tiling of a layer: candidate tilings, their costs, and a plan builder.

    A tiling is a named tuple with a property ``label``. Many tilings are one named tuple whose
    fields are arrays.
    """

    key: Hashable
    """Layers with equal keys get equal tilings."""
    simple: Any
    """The tiling that is used without a search."""
    candidates: Callable[[DramModel], tuple[Any, RoughCost]]
    """Returns many tilings and their rough costs."""
    build: Callable[[Any, bool], LayerPlan]
    """Returns the plan of a tiling; True if it is final, so that constants are placed."""


def select_tilings(tilings: Any, which: Any) -> Any:
    """Select tilings by a mask or by indices; return the subset."""
    return type(tilings)(*(column[which] for column in tilings))


def list_tilings(tilings: Any) -> list[Any]:
    """Convert tilings stored as arrays to a list of single tilings."""
    return [type(tilings)(*row) for row in zip(*(c.tolist() for c in tilings), strict=True)]
