"""The layer debugger without a screen: for Python, scripts and views.

A run is a sequence of moves; their number is the *position*, and every position is one state,
reached forwards or backwards (:mod:`nmpsim.debugger.execution`). The parts:

- :class:`Debugger` moves: ``step("layer" | "tile" | "tensor" | "instruction", count, core=None,
  back=False)``, ``step_over``, ``run(back=False)``, ``run_until_cycle``, ``run_until_layer``,
  ``go_to(position)``, ``restart``. Each returns a :class:`StopResult`: a reason, the breakpoints
  that were hit, and a :class:`RunLocation`. ``progress`` is called after each layer;
  ``is_interrupted`` is polled about every ten milliseconds. All calls come from one thread at a
  time: a screen makes them in a worker thread and only reads between them.
- ``debugger.add_breakpoint(condition, text)``, ``delete_breakpoint(number)``; the conditions are
  records of :mod:`nmpsim.debugger.breakpoints`.
- :mod:`nmpsim.debugger.inspect` reads: ``list_layer_states``, ``find_tensor``, ``read_values``,
  ``count_saturation``, ``list_core_states``, ``read_registers``, ``read_memory``,
  ``disassemble``.
- ``debugger.report()`` is the report of the run so far, as of :meth:`nmpsim.Device.run`.
"""

from nmpsim.debugger.breakpoints import Breakpoint, BreakpointHit
from nmpsim.debugger.debugger import Debugger
from nmpsim.debugger.inspect import CoreState, LayerState
from nmpsim.debugger.position import RunLocation, StopResult

__all__ = [
    "Breakpoint",
    "CoreState",
    "Debugger",
    "BreakpointHit",
    "LayerState",
    "RunLocation",
    "StopResult",
]
