"""Values of tensor instructions, as the engine's loop asks for them: at once, or later."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from nmpsim.core.compiled.apart import UNCOMPILED
from nmpsim.core.compiled.memory import RAM, SCRATCHPAD, locate
from nmpsim.core.compiled.pending import ANY, finish_all, finish_core, put_off
from nmpsim.core.compiled.workplace import workplace_of
from nmpsim.kernels.calls import call
from nmpsim.kernels.jit import jit

_numba: Any = numba  # its types, where it ships any, do not know all that is used here


def _is_prepared_compiled(calls: Any, number: Any) -> Any:
    if calls.addresses[number] == 0:
        call(calls.prepare, (np.int64(number),))
    return calls.addresses[number] != 0


def _perform_compiled(m: Any, calls: Any, core: Any, number: Any, d: Any, layer: Any) -> None:
    if calls.places.shape[0] > 1:
        put_off(m, calls, np.int64(core), np.int64(number), d, np.int64(layer))
        return
    places, words = np.int64(calls.places.ctypes.data), np.int64(d.ctypes.data)
    call(calls.addresses[number], (places, np.int64(core), np.int64(layer), words))


def _settle_compiled(m: Any, calls: Any, core: Any, address: Any) -> None:
    if calls.state[ANY] == 0:
        return
    region, _ = locate(m, address, np.int64(1))
    if region == RAM:
        finish_all(calls)
    elif region == SCRATCHPAD:
        finish_core(calls, np.int64(core))


def _finish_compiled(calls: Any) -> None:
    finish_all(calls)


def _is_prepared_in_python(_: Any, __: Any) -> Any:
    return True


def _perform_in_python(m: Any, _: Any, core: Any, number: Any, d: Any, layer: Any) -> None:
    UNCOMPILED[int(number)](workplace_of(m, core), d, layer)


def _settle_in_python(_: Any, __: Any, ___: Any, ____: Any) -> None:
    """Nothing is ever pending."""


def _finish_in_python(_: Any) -> None:
    """Nothing is ever pending."""


IS_PLAIN = _numba.config.DISABLE_JIT
is_prepared: Any = _is_prepared_in_python if IS_PLAIN else jit(_is_prepared_compiled)
"""``is_prepared(calls, number)``: compiles what an instruction needs; False if that failed."""
perform: Any = _perform_in_python if IS_PLAIN else jit(_perform_compiled)
"""``perform(m, calls, core, number, d, layer)``: an instruction's values, now or later."""
settle: Any = _settle_in_python if IS_PLAIN else jit(_settle_compiled)
"""``settle(m, calls, core, address)``: what a core sees at an address is as it must be."""
finish: Any = _finish_in_python if IS_PLAIN else jit(_finish_compiled)
"""``finish(calls)``: so is everything."""
