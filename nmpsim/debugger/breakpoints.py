"""Breakpoints and watchpoints: conditions as data, their forms as text, and hits."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.core.state import NEVER
from nmpsim.diagnostics import fail

Access = Literal["read", "write", "access"]


@attrs.frozen
class LayerCondition:
    """Condition to stop before a layer begins."""

    layer: int


@attrs.frozen
class AddressCondition:
    """Condition to stop before the instruction at an address is executed."""

    address: int
    core: int | None = None


@attrs.frozen
class SourceCondition:
    """Condition to stop before the first instruction of a function or source line."""

    source: tuple[int, ...]
    """Addresses of the instruction, one for each copy."""
    core: int | None = None


@attrs.frozen
class CycleCondition:
    """Condition to stop before the first event at a cycle or later."""

    cycle: int


@attrs.frozen
class TrapCondition:
    """Condition to stop at a trap, a deadlock or the cycle limit."""


@attrs.frozen
class HazardCondition:
    """Condition to stop after an access whose result depends on the timing of a transfer."""


@attrs.frozen
class SaturationCondition:
    """Condition to stop when a layer has more than ``limit`` saturated values."""

    limit: int = 0
    layer: int | None = None
    """Index of the layer; any layer if None."""


@attrs.frozen
class StallCondition:
    """Condition to stop after an instruction that waits for more than ``limit`` cycles."""

    limit: int
    core: int | None = None


@attrs.frozen
class DifferenceCondition:
    """Condition to stop after a layer that differs from the reference by over ``limit`` ulp."""

    limit: int = 0
    layer: int | None = None


@attrs.frozen
class AccessCondition:
    """Condition to stop after an instruction or host operation that accesses an address range."""

    start: int
    end: int
    """Address after the last byte."""
    access: Access = "write"
    core: int | None = None
    """Core whose scratchpad is meant; any core's if None."""


Condition = (
    LayerCondition
    | AddressCondition
    | SourceCondition
    | CycleCondition
    | TrapCondition
    | HazardCondition
    | SaturationCondition
    | StallCondition
    | DifferenceCondition
    | AccessCondition
)


@attrs.define
class Breakpoint:
    """Breakpoint or watchpoint with its number, condition and hit count."""

    number: int
    condition: Condition
    text: str
    is_enabled: bool = True
    hits: int = 0
    is_temporary: bool = False
    """Whether the breakpoint is deleted when the run stops at it."""
    predicate: Callable[[], bool] | None = None
    """Evaluated in the state in which the run would stop; it stops only if this is true."""

    @property
    def kind(self) -> str:
        """``watchpoint`` if the breakpoint watches memory, otherwise ``breakpoint``."""
        return "watchpoint" if isinstance(self.condition, AccessCondition) else "breakpoint"


@attrs.frozen
class BreakpointHit:
    """Hit of a breakpoint: its position and a description of the event."""

    position: int
    """Position at which the hit is visible, mostly just after the instruction."""
    breakpoint: int
    """Number of the breakpoint."""
    text: str
    """Description of what happened."""
    next: str = ""
    """Command that shows the place."""
    core: int | None = attrs.field(default=None, repr=False)
    """Core of the instruction; None for the host, or if no single core caused the hit."""


def list_stop_addresses(
    breakpoints: Sequence[Breakpoint], more: SourceCondition | None = None
) -> npt.NDArray[np.int64]:
    """Return core (-1 for all) and address of each address breakpoint, as int64 [n, 2]."""
    conditions = [one.condition for one in breakpoints if one.is_enabled]
    wanted = [c for c in conditions if isinstance(c, AddressCondition)]
    pairs = [(-1 if c.core is None else c.core, c.address) for c in wanted]
    for c in (*conditions, more):
        if isinstance(c, SourceCondition):
            pairs += [(-1 if c.core is None else c.core, address) for address in c.source]
    return np.array(pairs, np.int64).reshape(-1, 2)


def find_stop_cycle(breakpoints: Sequence[Breakpoint], since: int) -> int:
    """Return the cycle of the first cycle breakpoint after ``since``, or NEVER if there is none."""
    conditions = [one.condition for one in breakpoints if one.is_enabled]
    cycles = [c.cycle for c in conditions if isinstance(c, CycleCondition) and c.cycle > since]
    return min(cycles, default=NEVER)


# --- conditions as text -----------------------------------------------------------------------

_CONDITIONS: Mapping[str, Callable[..., Condition]] = {
    "layer LAYER": LayerCondition,
    "line LINE": LayerCondition,
    "address ADDRESS [core CORE]": AddressCondition,
    "cycle CYCLE": CycleCondition,
    "trap": TrapCondition,
    "hazard": HazardCondition,
    "saturation [in LAYER] [> LIMIT]": SaturationCondition,
    "stall [on core CORE] > LIMIT [cycles]": StallCondition,
    "result [in|of LAYER] differs [from [the] reference] [by more than LIMIT]": DifferenceCondition,
    "SOURCE [core CORE]": SourceCondition,
}
"""Form of a condition -> its class, whose fields are the words in capitals."""
FORMS = tuple(_CONDITIONS)
"""Forms of a condition, as the help shows them."""


def _compile_form(form: str) -> re.Pattern[str]:
    """Return the pattern of a form; parts in brackets are optional."""
    pattern = re.sub(r"\b[A-Z]+\b", lambda word: rf"(?P<{word[0].lower()}>\S+)", form)
    pattern = re.sub(r"\w+\|\w+", r"(?:\g<0>)", pattern)
    pattern = pattern.replace("> ", "(?P<sign>>=?) ")
    return re.compile(pattern.replace(" [", "(?: ").replace("]", ")?"))


_PATTERNS = {_compile_form(form): condition for form, condition in _CONDITIONS.items()}


def parse_condition(
    text: str,
    find_layer: Callable[[str], int],
    find_address: Callable[[str], int],
    find_source: Callable[[str], tuple[int, ...]] = lambda _: (),
) -> Condition:
    """Parse a breakpoint condition, such as a layer, an address or a cycle limit.

    Parameters
    ----------
    text : str
        One of FORMS; words in lower case, numbers also as ``0x...``.
    find_layer : callable
        Returns the index of the layer that a word names.
    find_address : callable
        Returns the address that a word names.
    find_source : callable, optional
        Returns the addresses of a function or source line; () if a word names none.

    Raises
    ------
    UserError
        DEBUG001 if the text is no condition; whatever the look-ups raise.
    """
    readers: Mapping[str, Callable[[str], Any]] = {
        "layer": find_layer,
        "line": lambda word: find_layer(f"line:{int(word, 0)}"),
        "address": find_address,
        "sign": lambda sign: int(sign == ">="),
        "source": find_source,
    }
    words = " ".join(re.findall(r">=|[>=]|[^\s>=]+", text))
    for pattern, condition in _PATTERNS.items():
        if (match := pattern.fullmatch(words)) is None:
            continue
        given = {name: word for name, word in match.groupdict().items() if word is not None}
        try:
            values = {name: readers.get(name, _read_integer)(word) for name, word in given.items()}
        except ValueError:
            break
        if values.get("source") == ():
            break
        if "sign" in values:
            values["limit"] -= values.pop("sign")
        if "line" in values:
            values["layer"] = values.pop("line")
        return condition(**values)
    raise fail(
        "DEBUG001",
        "the condition of the breakpoint is invalid",
        found=text[:200] or "nothing",
        expected="one of: " + "; ".join(FORMS),
        hint="See `help break` for the conditions.",
    )


def _read_integer(word: str) -> int:
    return int(word, 0)
