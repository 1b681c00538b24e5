"""The layer debugger without a screen: for Python, scripts and views.

A run is a sequence of moves; their number is the *position*, and every position is one state,
reached forwards or backwards (:mod:`nmpsim.debugger.execution`). The parts:

- :class:`Debugger` moves: ``step("layer" | "tile" | "tensor" | "instruction", count, core=None,
  back=False)``, ``step_over``, ``run(back=False)``, ``run_until_cycle``, ``run_until_layer``,
  ``go_to(position)``, ``restart``. Each gives a :class:`StopResult`: a reason, the breakpoints that
  were met, and a :class:`Location`. ``progress`` is called after each layer; ``interrupted`` is
  asked about every ten milliseconds. All calls are for one thread at a time: a screen makes them
  in a worker thread and only reads between them.
- ``debugger.add_breakpoint(condition, text)``, ``delete_breakpoint(number)``; the conditions are
  records of :mod:`nmpsim.debugger.breakpoints`.
- :mod:`nmpsim.debugger.inspect` looks: ``list_layer_states``, ``find_layer``, ``find_tensor``,
  ``read_values``, ``saturation``, ``list_core_states``, ``registers``, ``memory``, ``code``.
- ``debugger.report()`` is the report of the run so far, as of :meth:`nmpsim.Device.run`.
"""

from nmpsim.debugger.breakpoints import Breakpoint, BreakpointHit
from nmpsim.debugger.debugger import Debugger
from nmpsim.debugger.inspect import CoreState, LayerState
from nmpsim.debugger.position import Location, StopResult

__all__ = [
    "Breakpoint",
    "CoreState",
    "Debugger",
    "BreakpointHit",
    "LayerState",
    "Location",
    "StopResult",
]
