"""What things cost in cycles: pure functions of geometry and of the device's numbers.

Both engines and the compiler call them. They use plain integers and no other package, so that
the compiled engine can compile them as they stand; ``costs`` is anything with the attributes of
:class:`Costs`.
"""

from nmpsim.timing.costs import Costs, costs_of

__all__ = ["Costs", "costs_of"]
