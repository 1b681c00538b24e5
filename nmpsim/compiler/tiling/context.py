"""The interface between planners and the search: what a planner gets, and what it offers."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import attrs
import numpy.typing as npt

from nmpsim.bundle.debug import PackedConstant
from nmpsim.bundle.elf import LazyBytes
from nmpsim.compiler.numerics import Profile
from nmpsim.compiler.operations import View
from nmpsim.compiler.tiling.cost_model import Memory, RoughCost
from nmpsim.compiler.tiling.plan import LayerPlan
from nmpsim.config import DeviceConfig
from nmpsim.diagnostics import Place, UserError, fail
from nmpsim.timing import Costs, get_costs


@attrs.frozen(eq=False)
class Context:
    """The layer's environment for a planner: device, profile, addresses and constants."""

    name: str
    """Name of the layer's instruction, for messages."""
    config: DeviceConfig
    profile: Profile
    """Arithmetic of the layer."""
    place: Place
    address_of: Callable[[View], int]
    """Returns the DRAM address of a view; places a constant when it is first asked for."""
    values_of: Callable[[View], npt.NDArray[Any]]
    """Returns the values of a constant, in its logical shape."""
    add_constant: Callable[[str, npt.NDArray[Any] | LazyBytes], int]
    """Places an array derived from a constant; takes what it is, and returns its address."""
    record_packed: Callable[[View, PackedConstant], None]
    """Records where the values of a packed constant are."""
    next_address: Callable[[], int]
    """Returns the address that the next array would get."""

    @property
    def costs(self) -> Costs:
        """Costs of the device."""
        return get_costs(self.config)

    def row_offsets(self, *addresses: int) -> tuple[int, ...]:
        """Return the offsets of addresses in their DRAM rows."""
        return tuple(address % self.config.dram_row_bytes for address in addresses)

    def tile_too_large(self, needs: int) -> UserError:
        """Return the error (COMP002) that not even the smallest tile fits the scratchpad."""
        return fail(
            "COMP002",
            f"the smallest tile of %{self.name} does not fit a scratchpad",
            place=self.place,
            found=f"{needs} bytes",
            expected=f"at most {self.config.scratchpad_bytes} bytes",
            hint="increase bytes in [scratchpad] of the device file",
        )


@attrs.frozen(eq=False)
class TilingOptions:
    """The tilings of a layer that a planner offers.

    A tiling is a named tuple with a property ``label``. Many tilings are one named tuple whose
    fields are arrays.
    """

    key: Hashable
    """Layers with equal keys get equal tilings."""
    simple: Any
    """The tiling that is used without a search."""
    candidates: Callable[[Memory], tuple[Any, RoughCost]]
    """Returns many tilings and their rough costs."""
    build: Callable[[Any, bool], LayerPlan]
    """Returns the plan of a tiling; True if it is final, so that constants are placed."""


def select(tilings: Any, which: Any) -> Any:
    """Return some of many tilings, chosen by a mask or by their indices."""
    return type(tilings)(*(column[which] for column in tilings))


def to_list(tilings: Any) -> list[Any]:
    """Return many tilings one by one."""
    return [type(tilings)(*row) for row in zip(*(c.tolist() for c in tilings), strict=True)]
