"""nmpsim simulates the NeuroMorphic Processor: bit-exact, cycle-approximate.

    import nmpsim
    bundle = nmpsim.load("net.bin")
    device = nmpsim.Device()
    report = device.run(bundle, {"data": x})

Names are imported when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False
"""As in ``typing``, which takes longer to import than all before a command catches a Ctrl-C."""

if TYPE_CHECKING:
    from typing import Any

    from nmpsim.analysis.data_flow import layer_edges as layer_edges
    from nmpsim.analysis.histograms import histograms as histograms
    from nmpsim.analysis.memory_map import memory_map as memory_map
    from nmpsim.analysis.timeline import TimelineRecorder as TimelineRecorder
    from nmpsim.bundle import Bundle as Bundle
    from nmpsim.compiler.passes.rescale_bias import RescaledBias as RescaledBias
    from nmpsim.compiler.passes.rescale_bias import rescale_bias as rescale_bias
    from nmpsim.config import DeviceConfig as DeviceConfig
    from nmpsim.config import default_device as default_device
    from nmpsim.config import load_device as load_device
    from nmpsim.debugger import Debugger as Debugger
    from nmpsim.debugger.scratchpad_recorder import ScratchpadRecorder as ScratchpadRecorder
    from nmpsim.diagnostics import UserError as UserError
    from nmpsim.experiments import Evaluation as Evaluation
    from nmpsim.experiments import SweepResult as SweepResult
    from nmpsim.experiments import evaluate as evaluate
    from nmpsim.experiments import sweep as sweep
    from nmpsim.frontends.imported_model import ImportedModel as ImportedModel
    from nmpsim.lir.layers import find_layer as find_layer
    from nmpsim.quantization import CalibratedProgram as CalibratedProgram
    from nmpsim.quantization import QuantizedProgram as QuantizedProgram
    from nmpsim.report.data import RunReport as RunReport
    from nmpsim.report.json import write_report as write_report
    from nmpsim.report.read import read_report as read_report
    from nmpsim.session import Compiled as Compiled
    from nmpsim.session import Device as Device
    from nmpsim.session import Limits as Limits
    from nmpsim.session import Progress as Progress
    from nmpsim.session import Shadow as Shadow
    from nmpsim.session import calibrate as calibrate
    from nmpsim.session import compile as compile
    from nmpsim.session import from_torch as from_torch
    from nmpsim.session import get_device as get_device
    from nmpsim.session import lint as lint
    from nmpsim.session import load as load
    from nmpsim.session import quantize as quantize
    from nmpsim.session import save as save

__version__ = "0.1.0"

_HOMES = {
    "Bundle": "nmpsim.bundle",
    "CalibratedProgram": "nmpsim.quantization",
    "Compiled": "nmpsim.session",
    "Debugger": "nmpsim.debugger",
    "Device": "nmpsim.session",
    "DeviceConfig": "nmpsim.config",
    "Evaluation": "nmpsim.experiments",
    "ImportedModel": "nmpsim.frontends.imported_model",
    "Limits": "nmpsim.session",
    "Progress": "nmpsim.session",
    "QuantizedProgram": "nmpsim.quantization",
    "RescaledBias": "nmpsim.compiler.passes.rescale_bias",
    "RunReport": "nmpsim.report.data",
    "ScratchpadRecorder": "nmpsim.debugger.scratchpad_recorder",
    "Shadow": "nmpsim.session",
    "SweepResult": "nmpsim.experiments",
    "TimelineRecorder": "nmpsim.analysis.timeline",
    "UserError": "nmpsim.diagnostics",
    "calibrate": "nmpsim.session",
    "compile": "nmpsim.session",
    "default_device": "nmpsim.config",
    "get_device": "nmpsim.session",
    "evaluate": "nmpsim.experiments",
    "find_layer": "nmpsim.lir.layers",
    "from_torch": "nmpsim.session",
    "histograms": "nmpsim.analysis.histograms",
    "lint": "nmpsim.session",
    "load": "nmpsim.session",
    "load_device": "nmpsim.config",
    "layer_edges": "nmpsim.analysis.data_flow",
    "memory_map": "nmpsim.analysis.memory_map",
    "quantize": "nmpsim.session",
    "read_report": "nmpsim.report.read",
    "rescale_bias": "nmpsim.compiler.passes.rescale_bias",
    "save": "nmpsim.session",
    "sweep": "nmpsim.experiments",
    "write_report": "nmpsim.report.json",
}

__all__ = ["__version__", *sorted(_HOMES)]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'nmpsim' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
