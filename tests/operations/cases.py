"""Random instructions of every operation that only the host does, with what they must give.

``ON_THE_DEVICE`` has some that the device does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import element_cases
import layer_cases
import moving_cases
import numpy as np
from operation_case import Case, Rng, case, kind, shape, values

from nmpsim.lir.opcodes import OPCODES

CASES = {**moving_cases.CASES, **layer_cases.CASES, **element_cases.CASES}


def on_one_grid(rng: Rng, opcode: str, function: Callable[..., int], **attributes: Any) -> Case:
    """Build a case whose oracle is a function of integers with offset 3 and scale 0.25."""
    of = shape(rng)
    roles = [role.name for role in OPCODES[opcode].operands[1:]]
    read = {name: values(rng, "i8", of) for name in roles}

    def oracle(v, shapes, **_):
        elements = zip(*(v[name].reshape(-1).tolist() for name in roles), strict=True)
        return [np.array([function(*each) for each in elements])]

    result = kind("i8", of, (0.25, 3))
    return case(oracle, opcode, read, [result], "i8", **attributes)


ON_THE_DEVICE: dict[str, Callable[[Rng], Case]] = {
    "relu": lambda rng: on_one_grid(rng, "relu", lambda q: max(q, 3)),
    "clip": lambda rng: on_one_grid(rng, "clip", lambda q: min(max(q, -5), 11), Min=-2.0, Max=2.0),
    "cpumaxsplat": lambda rng: on_one_grid(rng, "cpumaxsplat", lambda q: max(q, 7), SplatValue=1.0),
    "copy": lambda rng: on_one_grid(rng, "copy", lambda q: q),
    "elementadd": lambda rng: on_one_grid(
        rng, "elementadd", lambda q, r: min(max(q + r - 3, -128), 127)
    ),
    "elementmax": lambda rng: on_one_grid(rng, "elementmax", max),
    "elementmin": lambda rng: on_one_grid(rng, "elementmin", min),
}
"""Opcode -> a case, on one core."""
