"""The timing model: cycles as pure functions of sizes and of the device's costs.

Both engines and the compiler call them. They use integers only, so that the compiled engine can
compile them. ``costs`` is any object with the attributes of :class:`Costs`.
"""

from nmpsim.timing.costs import Costs, get_costs

__all__ = ["Costs", "get_costs"]
