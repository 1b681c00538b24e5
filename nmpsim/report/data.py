"""The report of a run as frozen data, which also defines the JSON report.

The type of a field holds its description (:mod:`nmpsim.report.fields`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, overload

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.arrays import Array, Arrays
from nmpsim.energy.compute import compute_area
from nmpsim.energy.tables import Estimate, add_estimates
from nmpsim.records import frozen
from nmpsim.report import notebook
from nmpsim.report.analyses import (
    Histogram,
    MemoryBlock,
    ScratchpadBlock,
    SensitivityReport,
    ShadowLayer,
    ShadowReport,
    Timeline,
)
from nmpsim.report.device_use import (
    HOST_COSTS,
    PATH_CAUSES,
    DeviceUse,
    HostWork,
    Throughput,
    compute_device_use,
)
from nmpsim.report.energy import RunEnergy, compute_run_energy
from nmpsim.report.fields import (
    BY_NAME,
    NOT_IN_JSON,
    OMITTED_IF_EMPTY,
    OMITTED_IF_NONE,
    Count,
    JsonKey,
    JsonType,
    Real,
    Share,
    Source,
    Values,
    Whole,
    WrittenBefore,
)
from nmpsim.report.pointers import PointerReport
from nmpsim.report.savings import (
    Savings,
    describe_channels,
    describe_cores_with_work,
    describe_savings,
    sum_path_by_limiter,
)
from nmpsim.report.termination import NOT_CHECKED, ConsoleLine, ContractReport, TrapReport

SCHEMA: Final = "nmpsim-report-7"
"""Version of the JSON report."""


@frozen
class BytesMoved:
    """Bytes that a layer moved between DRAM and scratchpads."""

    read: Annotated[Count, "bytes that loads moved from DRAM, padding not counted"] = 0
    written: Annotated[Count, "bytes that stores moved into DRAM"] = 0


@frozen
class ChainReport:
    """Chain of layers that keep results in scratchpads."""

    first: Annotated[Count, "index of its first layer in `layers`"]
    last: Annotated[Count, "index of its last layer in `layers`"]
    cycles: Annotated[Count, "cycles of all its layers"]
    bytes_kept: Annotated[Count, "bytes of outputs that stay in scratchpads"]
    repeated_macs: Annotated[Count, "multiplications that several cores repeat"]


@frozen
class Bound:
    """Bound of a layer's cycles, with the cycles that each resource needs at least."""

    formula: Annotated[str, "formula of `cycles`, with numbers"] = ""
    mac: Annotated[Count, "cycles that the MAC arrays need at least"] = 0
    vector: Annotated[Count, "cycles that the vector units need at least"] = 0
    memory: Annotated[Count, "cycles that the DRAM needs at least"] = 0

    @property
    def kind(
        self,
    ) -> Annotated[
        Literal["compute", "memory", "none"],
        "resource of the largest bound: `compute`, `memory`, or `none` if the layer takes no time",
        WrittenBefore("formula"),
    ]:
        """Resource that determines the bound: ``compute``, ``memory``, or ``none`` if it is 0."""
        if self.cycles == 0:
            return "none"
        return "memory" if self.memory > max(self.mac, self.vector) else "compute"

    @property
    def cycles(
        self,
    ) -> Annotated[
        Count,
        "lower limit for any schedule of its instructions: the largest of `mac`, `vector` and"
        " `memory`",
        WrittenBefore("formula"),
    ]:
        """Lower bound of the cycles for any schedule of the layer's instructions."""
        return max(self.mac, self.vector, self.memory)


@frozen(eq=False)
class ChannelCounts(Sequence[tuple[int, int]]):
    """Counts of saturated values by channel, as a sequence of pairs (channel, count).

    Pairs are made on access, as a report of a large network has tens of thousands.
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


NOTABLE_SHARE: Final = 1e-3
"""Share of saturated results above which the scale of a layer is suspicious."""


def saturates_notably(saturated: int, elements: int) -> bool:
    """Return whether more than 0.1 % of a layer's results saturated."""
    return saturated > NOTABLE_SHARE * elements


@frozen
class Saturation:
    """Saturation of a layer at one stage and limit: number and position of the values."""

    stage: Annotated[str, "stage at which it saturated, see below"]
    side: Annotated[Literal["low", "high"], "`low` or `high`"]
    count: Annotated[Count, "number of values"]
    elements: Annotated[Count, "number of range-checked results, as in the layer"]
    worst: Annotated[
        Count,
        "how far the worst one was beyond the limit, in units of the last place of the saturated"
        " value",
    ]
    first: Annotated[
        tuple[Count, ...],
        "coordinates of the first such value in the layer's output, row-major; empty if they are"
        " unknown",
    ]
    channels: Annotated[
        Sequence[tuple[Count, Count]],
        "pairs (channel, count) of every channel concerned; a channel is an index of the last"
        " dimension of the output",
    ]

    @property
    def is_requested(self) -> bool:
        """Whether the network requests this limit, so that the values count as clipped."""
        return self.stage == "activation"


@frozen(kw_only=True)
class LayerReport:
    """Report of one layer: placement, costs and saturation."""

    index: Annotated[Count, "position in the list, from 0"]
    name: Annotated[str, "full name: that of the LIR instruction"]
    display_name: Annotated[str, "short name among the layers, as [tables](layers.md) have it"]
    op: Annotated[str, "opcode of the instruction"]
    operation: Annotated[str, "common name of the operation, such as `conv1x1`"]
    placement: Annotated[Literal["device", "host"], "`device` or `host`"]
    reason: Annotated[str, "reason for the host; empty on the device"]
    numerics: Annotated[
        str, "numerics profile that it followed; empty where none applies (moves, float)"
    ]
    number: Annotated[Count, "number of the LIR instruction whose output it is"]
    line: Annotated[Count, "line of that instruction in the LIR text; 0 if unknown"]
    fused: Annotated[
        tuple[str, ...],
        "names of the LIR instructions that became this layer; empty if it was only one",
    ]
    shape: Annotated[tuple[Count, ...], "sizes of its output"]
    elem: Annotated[str, "element type of its output, as in an [output](#output)"]
    scale: Annotated[Real | None, "scale of its output; null if the type is not quantized"]
    offset: Annotated[Whole | None, "zero point of its output; null if the type is not quantized"]
    cycles: Annotated[
        Count,
        "from the end of the previous layer to the barrier that ends this one; on the host, what"
        " `[host]` of the device file makes of it",
    ]
    cores: Annotated[Count, "cores that executed a tensor instruction for the layer"] = 0
    macs: Annotated[Count, "multiplications of the layer, without those that tiling repeats"]
    repeated_macs: Annotated[
        Count,
        "multiplications that several cores of a chain repeat; missing if there are none",
        OMITTED_IF_EMPTY,
    ] = 0
    chain: Annotated[
        str,
        "full name of the first layer of its [chain](tiling.md#chains), whose cycles are divided"
        " among its layers in proportion to the larger of `bound.cycles` and the DRAM's cycles;"
        " missing outside of chains",
        OMITTED_IF_EMPTY,
    ] = ""
    utilization: Annotated[
        Share,
        "`macs` / (`cycles` x multiplications that all MAC arrays can do in a cycle; for Int16"
        " half of them)",
    ]
    bytes: Annotated[BytesMoved, "bytes moved: [bytes_moved](#bytes_moved)"]
    bursts: Annotated[Count, "number of DRAM bursts; a partly used burst counts as one"]
    bursts_shared: Annotated[
        Count, "bursts of loads that shared the bursts of another core's load (multicast)"
    ] = 0
    burst_efficiency: Annotated[
        Share,
        "bytes moved / bytes of the bursts; 0 without bursts, above 1 where bytes of a burst are"
        " moved more than once",
    ] = 0.0
    row_misses: Annotated[Count, "grants for which the DRAM had to open another row"]
    bound: Annotated[Bound, "lower limit of its cycles: a [bound](#bound)"] = Bound()
    use: Annotated[
        DeviceUse, "share of `cycles` in which each unit was busy: a [device_use](#device_use)"
    ] = attrs.field(factory=DeviceUse)
    critical_path: Annotated[
        Mapping[str, Count], "`cycles` by cause on the critical path, see below"
    ] = attrs.field(factory=dict)
    queueing: Annotated[
        Count,
        "cycles of `dram_service` and `row_miss` on the critical path in which the DRAM served"
        " other transfers first",
    ] = 0
    core_cycles: Annotated[Mapping[str, Count], "cycles of all cores by cause, see below"] = (
        attrs.field(factory=dict)
    )
    stalls: Annotated[
        Mapping[str, Count], "cycles of all cores by activity of the control core, see below"
    ]
    busy: Annotated[
        Mapping[str, Count],
        "cycles of all units of a kind: `load` and `store` (time of the DRAM), `mac`, `vector`",
    ]
    actions: Annotated[
        Mapping[str, Share], "number of each [action](energy.md#actions) that takes energy"
    ] = attrs.field(factory=dict)
    energy: Annotated[
        Mapping[str, Estimate],
        "energy in picojoules by component, an [estimate](#estimate) each; empty if unknown",
    ] = attrs.field(factory=dict)
    elements: Annotated[
        Count,
        "number of range-checked results; a [saturation](#saturation) has `count` of them",
    ]
    saturation: Annotated[
        tuple[Saturation, ...],
        "list of saturated values, a [saturation](#saturation) for each stage and side that has"
        " some",
    ]

    @property
    def distance(
        self,
    ) -> Annotated[
        Share | None,
        "`cycles` / `bound.cycles`; null without a bound",
        WrittenBefore("use"),
    ]:
        """Cycles divided by their lower bound, or None if the bound is 0."""
        return self.cycles / self.bound.cycles if self.bound.cycles else None

    @property
    def total_energy(self) -> Estimate | None:
        """Energy of the layer in picojoules, or None if it is unknown."""
        return add_estimates(self.energy.values()) if self.energy else None

    @property
    def burst_cycles(self) -> int:
        """Minimum DRAM cycles for the layer's bursts, without row activations."""
        return self.bound.memory

    @property
    def device_cycles(self) -> int:
        """Cycles of the layer on the device, or 0 if the host executes the layer."""
        return 0 if self.placement == "host" else self.cycles

    @property
    def bytes_read(self) -> int:
        """Bytes that the layer loaded from DRAM."""
        return self.bytes.read

    @property
    def bytes_written(self) -> int:
        """Bytes that the layer stored to DRAM."""
        return self.bytes.written

    @property
    def other_names(self) -> tuple[str, ...]:
        """Full names of the layer's fused instructions; users may select the layer by them."""
        return self.fused

    @property
    def saturated(self) -> int:
        """Number of saturated values; clipped values are not counted."""
        return sum(one.count for one in self.saturation if not one.is_requested)

    @property
    def saturated_share(self) -> float:
        """Saturated values divided by the number of the layer's results."""
        return self.saturated / max(self.elements, 1)

    @property
    def saturates_notably(self) -> bool:
        """Whether more than 0.1 % of the layer's results saturated."""
        return saturates_notably(self.saturated, self.elements)


@frozen
class OutputReport:
    """Report of one output: element type, scale, offset and values."""

    name: Annotated[str, NOT_IN_JSON]
    elem: Annotated[str, "element type: `i8`, `i32`, `float` and so on, as in LIR; or `ui16`"]
    scale: Annotated[
        Real | None,
        "a value stands for `scale * (value - offset)`; null if the type is not quantized",
    ]
    offset: Annotated[Whole | None, "zero point; null if the type is not quantized"]
    values: Annotated[Values, "stored values, in lists nested by shape"] = attrs.field(
        eq=attrs.cmp_using(eq=lambda a, b: bool((a == b).all()))
    )

    @property
    def shape(self) -> Annotated[tuple[Count, ...], "list of sizes", WrittenBefore("scale")]:
        """Shape of the output in elements, such as (1, 1000)."""
        return self.values.shape

    def dequantize(self) -> Array:
        """Return ``scale * (values - offset)`` in float64, or ``values`` if unquantized."""
        if self.scale is None:
            return self.values
        return (self.values.astype("float64") - (self.offset or 0)) * self.scale


@frozen(eq=False, kw_only=True)
class RunReport:
    """Report of one run: outputs, cycles, and statistics of each layer."""

    program: Annotated[str, "name of the network"]
    numerics: Annotated[
        str,
        "requested numerics profile, such as `glow-int`; `assembly` for a program of `nmpsim asm`,"
        " `elf` for an ELF program",
    ]
    engine: Annotated[str, "`compiled` or `reference`"]
    cycles: Annotated[
        Count,
        "latency of the whole run, from rest until the last core is done, with cycles of `host`, if"
        " counted",
    ]
    seconds: Annotated[Share, "latency in seconds: `cycles` at `cores_clock_mhz`"]
    throughput: Annotated[
        Throughput | None,
        "null, or with `--repeat` or for a batch the inferences per time: a"
        " [throughput](#throughput)",
    ] = None
    host_seconds: Annotated[
        Share,
        "time of the simulation on the host, without compiling or loading kernels",
    ]
    trap: Annotated[TrapReport | None, "null, or why the run stopped early: a [trap](#trap)"] = None
    exit_status: Annotated[
        Whole | None,
        "exit status of a program that ends with one ([C programs](c.md)); otherwise missing",
        OMITTED_IF_NONE,
    ] = None
    console: Annotated[
        tuple[ConsoleLine, ...],
        "list of the lines that the cores printed, a [console_line](#console_line) each; missing"
        " if there are none",
        OMITTED_IF_EMPTY,
    ] = ()
    console_dropped: Annotated[
        Count,
        "number of printed characters beyond the first 32,768 of a core or 131,072 of all;"
        " missing if there are none",
        OMITTED_IF_EMPTY,
    ] = 0
    contract: Annotated[
        ContractReport,
        "whether the program obeyed the contract of the instruction set: a [contract](#contract)",
    ] = NOT_CHECKED
    pointers: Annotated[
        PointerReport | None,
        "with `--check-pointers`, wrong uses of pointers: a [pointer](#pointer); otherwise missing",
        OMITTED_IF_NONE,
    ] = None
    notes: Annotated[tuple[str, ...], "list of texts: remarks about the numbers"] = ()
    outputs: Annotated[Arrays, NOT_IN_JSON]
    """Name -> output in its logical shape."""
    output_reports: Annotated[
        tuple[OutputReport, ...], "[output](#output) by name", JsonKey("outputs"), BY_NAME
    ]
    layers: Annotated[
        Sequence[LayerReport], "list of [layers](#layer), in the order in which they ran"
    ]
    chains: Annotated[
        tuple[ChainReport, ...],
        "list of chains of layers, a [chain](#chain) each; missing if there are none",
        OMITTED_IF_EMPTY,
    ] = ()
    layer_outputs: Annotated[Arrays, NOT_IN_JSON] = attrs.field(factory=dict)
    """``NNNN:name`` -> output of a layer, if requested."""
    shadow: Annotated[
        ShadowReport | None,
        "null, or with `--shadow` the error of each layer by source: a [shadow](#shadow)",
    ] = None
    sensitivity: Annotated[
        SensitivityReport | None,
        "null, or with `--sensitivity` the effect of assumed settings on the cycles: a"
        " [sensitivity](#sensitivity)",
    ] = None
    savings: Annotated[
        Savings | None,
        "null, or with `--savings` the cycles that free resources would save: [savings](#savings)",
    ] = None
    savings_meter: Annotated[Callable[[], Savings | None] | None, NOT_IN_JSON] = None
    """Function that measures the savings if ``savings`` is None; it returns None if impossible."""
    histograms: Annotated[
        tuple[Histogram, ...], "list: a [histogram](#histogram) for each `--histogram`"
    ] = ()
    memory: Annotated[
        tuple[MemoryBlock, ...],
        "list: the contents of DRAM, a [memory_block](#memory_block) each; empty if the bundle"
        " does not have them",
    ] = ()
    edges: Annotated[
        tuple[tuple[Count, Count], ...],
        "list of pairs (from, to) of indices in `layers`: `to` reads what `from` computed; empty if"
        " the bundle does not have its LIR",
    ] = ()
    timeline: Annotated[
        Timeline | None,
        "null, or with `--timeline` when each unit worked: a [timeline](#timeline)",
    ] = None
    scratchpads: Annotated[
        tuple[ScratchpadBlock, ...],
        "list: with `--timeline` what each layer put into the cores' scratchpads, a"
        " [scratchpad_block](#scratchpad_block) each; otherwise empty",
    ] = ()
    device: Annotated[
        Mapping[str, Annotated[Any, JsonType(Whole | str)]],
        "the device's name and settings, as in the [device file](device-file.md): `cores_count` is"
        " `count` of `[cores]`",
    ]
    sources: Annotated[
        Mapping[str, str],
        "source of each setting: `published`, `measured`, `assumed`, `given`",
    ]
    estimates: Annotated[
        Mapping[str, Estimate],
        "[estimate](#estimate) of each action in picojoules and of each hardware block in square"
        " micrometres, as in the [device file](energy.md): `energy_mac_int8` is `mac_int8` of"
        " `[energy]`",
    ] = attrs.field(factory=dict)

    def get_display_name(self, name: str) -> str:
        """Return the display name of the layer ``name``, or ``name`` if there is no such layer."""
        return next((layer.display_name for layer in self.layers if layer.name == name), name)

    def __repr__(self) -> str:
        return notebook.summarize_run(self)

    def _repr_html_(self) -> str:
        return notebook.make_html_table(self)

    def to_pandas(self) -> Any:
        """Return the layers as a pandas DataFrame; raise UserError (PKG001) without pandas."""
        return notebook.make_data_frame("pandas", self.layers)

    def to_polars(self) -> Any:
        """Return the layers as a polars DataFrame; raise UserError (PKG001) without polars."""
        return notebook.make_data_frame("polars", self.layers)

    @property
    def use(
        self,
    ) -> Annotated[
        DeviceUse,
        "share of cycles in which each unit was busy: a [device_use](#device_use)",
        WrittenBefore("seconds"),
    ]:
        """Use of the device: activity of the DRAM and MAC arrays as shares of its cycles."""
        channels = int(self.device.get("dram_channels", 1))
        return compute_device_use(tuple(self.layers), self.device_cycles, channels)

    @property
    def critical_path(
        self,
    ) -> Annotated[
        Mapping[str, Count],
        "the device's cycles by cause on the critical path, as in the [layers](#layer)",
        WrittenBefore("seconds"),
    ]:
        """Cycles of the device by cause on the critical path, summed over the layers."""
        paths = [layer.critical_path for layer in self.layers]
        return {cause: sum(path.get(cause, 0) for path in paths) for cause in PATH_CAUSES}

    @property
    def queueing(
        self,
    ) -> Annotated[
        Count,
        "cycles on this path in which the DRAM served other transfers first",
        WrittenBefore("seconds"),
    ]:
        """Cycles on the critical path in which the DRAM served other transfers first."""
        return sum(layer.queueing for layer in self.layers)

    def measure_savings(self) -> Savings | None:
        """Measure the cycles that free resources would save; the first call simulates the run.

        Returns None if the run ended early, or if its cycles depend on data.
        """
        if self.savings is not None or self.savings_meter is None or self.trap is not None:
            return self.savings
        return self.savings_meter()

    @property
    def limited_by(
        self,
    ) -> Annotated[
        str,
        "limiters of the run as text, from `savings` or the critical path; empty if both are"
        " unknown",
        WrittenBefore("seconds"),
        Source(lambda report: report.describe_limits(report.savings)),
    ]:
        """Text that names what limits the speed of the run, or "" if it is unknown."""
        return self.describe_limits(self.measure_savings())

    def describe_limits(self, savings: Savings | None) -> str:
        """Describe what limits the run, by ``savings``, or by the critical path if None."""
        cycles = self.cycles
        if savings is None:
            path = sum_path_by_limiter(self.critical_path) | {"host": self.host.cycles or 0}
            return describe_savings(path, cycles, is_bound=True)
        cores = describe_cores_with_work(
            tuple(self.layers), savings.run, self.device.get("cores_count", 0)
        )
        channels = describe_channels(savings.run, cycles, self.device.get("dram_channels", 1))
        texts = describe_savings(savings.run, cycles), cores, channels
        return "; ".join(text for text in texts if text)

    @property
    def energy(
        self,
    ) -> Annotated[
        RunEnergy | None,
        "energy of the run, a [run_energy](#run_energy); null if it is unknown",
        WrittenBefore("seconds"),
    ]:
        """Energy of the run, or None if it is unknown or the run takes no time."""
        return compute_run_energy((layer.energy for layer in self.layers), self.seconds)

    @property
    def area(
        self,
    ) -> Annotated[
        Mapping[str, Estimate],
        "area of the device without its DRAM in square micrometres, by component: `mac`, `vector`,"
        " `scratchpad`, `control`, `dma`; empty if it is unknown",
        WrittenBefore("seconds"),
    ]:
        """Area of the device in square micrometres by component, or {} if it is unknown."""
        return compute_area(self.device, self.estimates) if self.estimates else {}

    @property
    def energy_pj(self) -> float | None:
        """Best known energy of the run in picojoules, or None if it is unknown."""
        energy = self.energy
        return None if energy is None else energy.total.value

    @property
    def energy_delay_js(self) -> float | None:
        """Energy-delay product of the run in joule seconds, or None if it is unknown."""
        energy = self.energy
        return None if energy is None else energy.delay_product.value

    @property
    def area_um2(self) -> float | None:
        """Best known area of the device in square micrometres, or None if it is unknown."""
        area = self.area
        return add_estimates(area.values()).value if area else None

    @property
    def saturated(self) -> int:
        """Number of saturated values in all layers; clipped values are not counted."""
        return sum(layer.saturated for layer in self.layers)

    @property
    def worst_sqnr(self) -> tuple[ShadowLayer, float] | None:
        """Layer with the lowest SQNR of its result and the SQNR in dB, or None if not measured."""
        return None if self.shadow is None else self.shadow.find_worst_layer()

    @property
    def device_cycles(self) -> int:
        """Cycles of the run without the cycles of host layers."""
        return self.cycles - (self.host.cycles or 0)

    @property
    def host(
        self,
    ) -> Annotated[
        HostWork, "layers on the host: a [host_work](#host_work)", WrittenBefore("seconds")
    ]:
        """Work of the host: its layers, the elements of their results, and their cycles."""
        layers = [layer for layer in self.layers if layer.placement == "host"]
        is_counted = any(self.device.get(name) for name in HOST_COSTS)
        return HostWork(
            len(layers),
            sum(math.prod(layer.shape) for layer in layers),
            sum(layer.cycles for layer in layers) if is_counted else None,
        )

    @property
    def schema(
        self,
    ) -> Annotated[Literal["nmpsim-report-7"], "`nmpsim-report-7`", WrittenBefore("program")]:
        """Name and version of the JSON report's schema."""
        return SCHEMA
