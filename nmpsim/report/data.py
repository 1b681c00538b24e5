"""What a run tells: plain frozen data that every view reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, overload

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.report.details import Histogram, MemoryBlock, ScratchpadBlock, Timeline
from nmpsim.report.sensitivity import SensitivityReport
from nmpsim.report.shadow import ShadowReport

SCHEMA = "nmpsim-report-3"
"""Version of the JSON report."""

ACTIVITIES = (
    "control",
    "wait_load",
    "wait_store",
    "wait_mac",
    "wait_vector",
    "barrier",
    "semaphore",
    "idle",
)
"""What control cores did; together they are cores times cycles."""

CAUSES = (
    "mac",
    "vector",
    "load",
    "store",
    "contention",
    "imbalance",
    "barrier",
    "semaphore",
    "idle",
    "control",
)
"""Where the cycles of cores went: each has one cause, together they are cores times cycles."""


@attrs.frozen
class Bound:
    """Cycles that a layer takes at least, by what it needs; 0 where it needs nothing of it."""

    mac: int = 0
    vector: int = 0
    memory: int = 0
    formula: str = ""
    """Of the largest, with its numbers."""

    @property
    def cycles(self) -> int:
        """The largest: no schedule of the layer's instructions can beat it."""
        return max(self.mac, self.vector, self.memory)

    @property
    def kind(self) -> Literal["compute", "memory", "none"]:
        """What bounds the layer."""
        if self.cycles == 0:
            return "none"
        return "memory" if self.memory > max(self.mac, self.vector) else "compute"


@attrs.frozen(eq=False)
class ChannelCounts(Sequence[tuple[int, int]]):
    """(channel, count) of every channel whose count is not 0.

    The pairs are made when somebody reads them: a report of a large network has tens of thousands.
    """

    _counts: npt.NDArray[np.int64]
    """int64 [channels]"""

    def __iter__(self) -> Iterator[tuple[int, int]]:
        channels = np.flatnonzero(self._counts)
        return zip(channels.tolist(), self._counts[channels].tolist(), strict=True)

    def __len__(self) -> int:
        return int(np.count_nonzero(self._counts))

    @overload
    def __getitem__(self, index: int) -> tuple[int, int]: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[tuple[int, int], ...]: ...
    def __getitem__(self, index: int | slice) -> Any:
        return tuple(self)[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))


@attrs.frozen
class Saturation:
    """Values of one layer that saturated or were clipped at one stage on one side."""

    stage: str
    """input (quantization), bias, accumulator, rescale, result; or activation: clipping that the
    network asks for, which is not saturation."""
    side: Literal["low", "high"]
    count: int
    worst: int
    """Largest overshoot, in units of the last place of the saturated value."""
    first: tuple[int, ...]
    """Coordinates of the first such value in the layer's output, row-major order."""
    channels: Sequence[tuple[int, int]]
    """(channel, count) of every channel concerned."""

    @property
    def wanted(self) -> bool:
        """True for clipping that the network asks for."""
        return self.stage == "activation"


@attrs.frozen
class LayerReport:
    """One layer: what it was, where it ran, what it cost, what saturated."""

    index: int
    name: str
    op: str
    number: int
    """Number of the LIR instruction whose output it is."""
    line: int
    """Line of that instruction in the LIR text, 0 if unknown."""
    placement: Literal["device", "host"]
    reason: str
    """Why the host did it; empty on the device."""
    numerics: str
    """Arithmetic profile that it followed; empty where none applies."""
    fused: tuple[str, ...]
    shape: tuple[int, ...]
    elem: str
    scale: float | None
    offset: int | None
    cycles: int
    """From the end of the layer before to this one's end, at the barrier that closes it."""
    macs: int
    """Multiplications that the device did for the layer."""
    utilization: float
    """macs / (cycles x multiplications a cycle of the whole device)"""
    bytes_read: int
    bytes_written: int
    bursts: int
    row_misses: int
    stalls: Mapping[str, int]
    """Core cycles by what the control core did (``ACTIVITIES``)."""
    busy: Mapping[str, int]
    """Unit cycles by unit: load and store (DRAM service), mac, vector."""
    elements: int
    """Results that passed a clip."""
    saturation: tuple[Saturation, ...]
    core_cycles: Mapping[str, int] = attrs.field(factory=dict)
    """Core cycles by cause (``CAUSES``)."""
    bound: Bound = Bound()
    burst_efficiency: float = 0.0
    """Bytes moved / bytes of the bursts."""

    @property
    def other_names(self) -> tuple[str, ...]:
        """Names that a user may give it besides its own."""
        return self.fused

    @property
    def distance(self) -> float | None:
        """Cycles as a multiple of the bound; None if nothing bounds the layer."""
        return self.cycles / self.bound.cycles if self.bound.cycles else None

    @property
    def saturated(self) -> int:
        """Values that saturated; clips that the network asks for do not count."""
        return sum(s.count for s in self.saturation if not s.wanted)


@attrs.frozen
class TrapReport:
    """Why a run did not reach its end."""

    kind: Literal["trap", "deadlock", "cycle_limit", "timeout", "contract"]
    message: str
    core: int | None
    pc: int | None
    cause: int | None
    value: int | None
    """``mtval``: the address or word at fault."""
    instruction: str | None
    """Disassembled, if it can be read."""
    layer: str | None
    line: int | None
    """Line of the layer in the LIR text."""


@attrs.frozen
class ViolationReport:
    """How a program has broken the contract of the instruction set, and where."""

    code: str
    """Of the diagnostic: CONTRACT001 to CONTRACT005."""
    category: str
    case: str
    """Which of the cases of docs/isa.md it is."""
    message: str
    hint: str
    core: int | None
    """None if it was the host."""
    pc: int | None
    instruction: str | None
    layer: str | None
    line: int | None
    """Line of the layer in the LIR text."""
    operand: str
    first: int
    """Address of the first byte concerned ..."""
    last: int
    """... and of the last one; there may be others between them."""
    tensor: str | None
    """What lies there in DRAM."""
    other_core: int | None = None
    """Of the earlier instruction, where there are two."""
    other_pc: int | None = None
    other_instruction: str | None = None
    other_layer: str | None = None


@attrs.frozen
class ContractReport:
    """Did the run keep to the contract of the instruction set?"""

    status: Literal["proved", "checked", "violated", "not_checked"]
    """proved: it holds for every input; checked: for this run."""
    message: str = ""
    """Why it was not checked, or what could not be."""
    violation: ViolationReport | None = None


@attrs.frozen
class OutputReport:
    """An output of the program, as the device left it and as real numbers."""

    name: str
    elem: str
    scale: float | None
    offset: int | None
    values: npt.NDArray[Any] = attrs.field(eq=attrs.cmp_using(eq=lambda a, b: bool((a == b).all())))

    def real(self) -> npt.NDArray[Any]:
        """The values as real numbers: ``scale * (q - offset)``, or as they are."""
        if self.scale is None:
            return self.values
        return (self.values.astype("float64") - (self.offset or 0)) * self.scale


@attrs.frozen(eq=False)
class RunReport:
    """The outcome of one run."""

    program: str
    device: Mapping[str, Any]
    """The device's settings."""
    sources: Mapping[str, str]
    """Setting -> published, measured, assumed or given."""
    engine: str
    numerics: str
    outputs: Mapping[str, npt.NDArray[Any]]
    """Every output in its logical shape."""
    output_reports: tuple[OutputReport, ...]
    cycles: int
    seconds: float
    """Cycles at the device's clock."""
    host_seconds: float
    """Wall time of the simulation itself."""
    layers: Sequence[LayerReport]
    trap: TrapReport | None = None
    contract: ContractReport = ContractReport("not_checked")
    layer_outputs: Mapping[str, npt.NDArray[Any]] = attrs.field(factory=dict)
    """``NNNN:name`` -> output of a layer, where it was asked for."""
    notes: tuple[str, ...] = ()
    """What a reader should know about the numbers."""
    shadow: ShadowReport | None = None
    """Where each layer's error comes from, where it was asked for."""
    sensitivity: SensitivityReport | None = None
    """How cycles change with the device's assumed numbers, where it was asked for."""
    histograms: tuple[Histogram, ...] = ()
    """Of the outputs of the layers for which they were asked."""
    memory: tuple[MemoryBlock, ...] = ()
    """What lies where in DRAM and for how long; empty if that is unknown."""
    timeline: Timeline | None = None
    """When each unit of each core worked, where it was asked for."""
    scratchpads: tuple[ScratchpadBlock, ...] = ()
    """What each layer put into the scratchpads, likewise; by layer and address."""
