"""What every planner needs to know: device, addresses, place in the source."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy.typing as npt

from nmpsim.bundle.debug import PackedConstant
from nmpsim.bundle.elf import Later
from nmpsim.compiler.numerics import Profile
from nmpsim.compiler.work import View
from nmpsim.config import DeviceConfig
from nmpsim.diagnostics import Place
from nmpsim.timing import Costs, costs_of


@attrs.frozen(eq=False)
class Context:
    """Given to a planner for one layer."""

    config: DeviceConfig
    profile: Profile
    """Whose arithmetic the layer follows."""
    place: Place
    address_of: Callable[[View], int]
    """DRAM address of a view; a constant is laid down as it is when it is first asked for."""
    values_of: Callable[[View], npt.NDArray[Any]]
    """Values of a constant, in its logical shape."""
    lay: Callable[[str, npt.NDArray[Any] | Later], int]
    """Lay down an array; the name is the constant's it was made from and what it is."""
    packed: Callable[[View, PackedConstant], None]
    """Says where a constant's values lie that are laid down in packed form."""
    next_address: Callable[[], int]
    """Where the next array would be laid down."""

    @property
    def costs(self) -> Costs:
        """The device's costs."""
        return costs_of(self.config)
