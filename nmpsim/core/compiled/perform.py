"""Values of tensor instructions, as the engine's loop asks for them: at once, or not at all."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from nmpsim.core.compiled.apart import UNCOMPILED
from nmpsim.core.compiled.plan import is_planned, put_on_plan
from nmpsim.core.compiled.workplace import workplace_of
from nmpsim.kernels.calls import call
from nmpsim.kernels.jit import jit

_numba: Any = numba  # its types, where it ships any, do not know all that is used here


def _is_prepared_compiled(calls: Any, number: Any) -> Any:
    if calls.addresses[number] == 0:
        call(calls.prepare, (np.int64(number),))
    return calls.addresses[number] != 0


def _perform_compiled(m: Any, calls: Any, core: Any, number: Any, d: Any, layer: Any) -> None:
    if is_planned(calls):
        put_on_plan(m, calls, core, number, d, layer)
        return
    places, words = np.int64(calls.places.ctypes.data), np.int64(d.ctypes.data)
    call(calls.addresses[number], (places, np.int64(core), np.int64(layer), words))


def _is_prepared_in_python(_: Any, __: Any) -> Any:
    return True


def _perform_in_python(m: Any, _: Any, core: Any, number: Any, d: Any, layer: Any) -> None:
    UNCOMPILED[int(number)](workplace_of(m, core), d, layer)


IS_PLAIN = _numba.config.DISABLE_JIT
is_prepared: Any = _is_prepared_in_python if IS_PLAIN else jit(_is_prepared_compiled)
"""``is_prepared(calls, number)``: compiles what an instruction needs; False if that failed."""
perform: Any = _perform_in_python if IS_PLAIN else jit(_perform_compiled)
"""``perform(m, calls, core, number, d, layer)``: its values, or its place on a plan."""
