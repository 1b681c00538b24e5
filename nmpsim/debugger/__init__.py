"""The layer debugger without a screen: for Python, scripts and views.

A run is a sequence of moves; their number is the *position*, and every position is one state,
reached forwards or backwards (:mod:`nmpsim.debugger.execution`). The parts:

- :class:`Debugger` moves: ``step("layer" | "tile" | "tensor" | "instruction", count, core=None,
  back=False)``, ``step_over``, ``run(back=False)``, ``until_cycle``, ``until_layer``,
  ``go_to(position)``, ``restart``. Each gives a :class:`Stopped`: a reason, the breakpoints that
  were met, and a :class:`Location`. ``progress`` is called after each layer; ``interrupted`` is
  asked about every ten milliseconds. All calls are for one thread at a time: a screen makes them
  in a worker thread and only reads between them.
- ``debugger.add_breakpoint(condition, text)``, ``delete_breakpoint(number)``; the conditions are
  records of :mod:`nmpsim.debugger.breakpoints`.
- :mod:`nmpsim.debugger.inspect` looks: ``layer_states``, ``find_layer``, ``find_tensor``,
  ``values_of``, ``saturation``, ``core_states``, ``registers``, ``memory``, ``code``.
- ``debugger.report()`` is the report of the run so far, as of :meth:`nmpsim.Device.run`.
"""

from nmpsim.debugger.breakpoints import Breakpoint, Hit
from nmpsim.debugger.debugger import Debugger
from nmpsim.debugger.inspect import CoreState, LayerState
from nmpsim.debugger.position import Location, Stopped

__all__ = ["Breakpoint", "CoreState", "Debugger", "Hit", "LayerState", "Location", "Stopped"]
