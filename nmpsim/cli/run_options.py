"""Options of ``nmpsim run``, which runs of one and of several inputs share."""

from __future__ import annotations

from pathlib import Path

from nmpsim.atomic import STDOUT
from nmpsim.cli.options import (
    ENGINE_OPTION,
    EXECUTION,
    FORMAT_OPTION,
    PATCH_OPTION,
    STRICT_OPTION,
    Engine,
    Format,
    InputOptions,
    LimitOptions,
    make_device_option,
    make_output_option,
)
from nmpsim.cli.parameters import (
    InputFile,
    OutputFile,
    Positive,
    define_argument,
    define_option,
)
from nmpsim.cli.run_files import ProfileOptions, TraceOptions
from nmpsim.records import frozen

_ANALYSES = "Analyses"


@frozen(kw_only=True)
class RunCommandOptions:
    """Options of ``nmpsim run``."""

    bundle: InputFile = define_argument("NET.bin|MODEL")
    inputs: InputOptions
    device: InputFile | None = make_device_option("the bundle's")
    save_outputs: OutputFile | None = define_option("Save the outputs.", "O.npz")
    save_layers: OutputFile | None = define_option("Save every layer's output.", "L.npz")
    shadow: bool = define_option("Compare with float; split errors by cause.")
    repeat: Positive = define_option("Run N times and report the throughput.", "N", default=1)
    reset_state: bool = define_option("Begin each run with the initial state.")
    patch: InputFile | None = PATCH_OPTION
    format: Format = FORMAT_OPTION
    output: OutputFile | None = make_output_option(
        "REPORT", "Write to this file.  [default: stdout]"
    )
    float_weights: InputFile | None = define_option(
        "Weights before quantization, for --shadow.", "F.npz|F.onnx", group=_ANALYSES
    )
    sensitivity: bool = define_option(
        "Measure how cycles depend on assumed settings.", group=_ANALYSES
    )
    histogram: tuple[str, ...] = define_option(
        "Add histograms of a layer (or all) to the JSON.",
        "LAYER",
        group=_ANALYSES,
    )
    savings: bool = define_option("Add cycles that free resources would save.", group=_ANALYSES)
    timeline: bool = define_option("Add unit and scratchpad activity to the JSON.", group=_ANALYSES)
    node_data: OutputFile | None = define_option(
        "Write node data for Model Explorer.", "FILE.json", group=_ANALYSES
    )
    check_pointers: bool = define_option(
        "Report wrong pointers and undefined values.", group=_ANALYSES
    )
    allocators: tuple[str, ...] = define_option(
        "Own allocator, for --check-pointers.",
        "MALLOC[,FREE]",
        names="--allocator",
        group=_ANALYSES,
    )
    core_on_trap: OutputFile | None = define_option(
        "Write a core file if the run traps.", "FILE", group=_ANALYSES
    )
    traces: TraceOptions
    profiles: ProfileOptions
    engine: Engine = ENGINE_OPTION
    threads: Positive | None = define_option(
        "Host threads.  [default: all processors]", "N", group=EXECUTION
    )
    strict: bool = STRICT_OPTION
    limits: LimitOptions

    @property
    def outputs(self) -> tuple[Path | None, ...]:
        """Paths of the output files, with None for each kind of file that is not requested."""
        files = (
            *(self.output or STDOUT, self.save_outputs, self.save_layers),
            *(*self.traces.outputs, *self.profiles.outputs),
        )
        if self.node_data is None:
            return files
        from nmpsim.views.graph.node_data import list_node_data_paths

        return (*files, *list_node_data_paths(self.node_data))
