"""nmpsim simulates the NeuroMorphic Processor: bit-exact, cycle-approximate.

    import nmpsim
    bundle = nmpsim.load("net.bin")
    device = nmpsim.Device()
    report = device.run(bundle, {"data": x})

Names are imported when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module

__version__ = "0.1.0"

_NAMES = {
    "nmpsim.analysis.data_flow": "layer_edges",
    "nmpsim.analysis.histograms": "histograms",
    "nmpsim.analysis.memory_map": "memory_map",
    "nmpsim.analysis.timeline": "TimelineRecorder",
    "nmpsim.bundle": "Bundle",
    "nmpsim.compiler.passes.rescale_bias": "RescaledBias rescale_bias",
    "nmpsim.config": "DeviceConfig default_device load_device",
    "nmpsim.debugger": "Debugger",
    "nmpsim.debugger.scratchpad_recorder": "ScratchpadRecorder",
    "nmpsim.diagnostics": "UserError",
    "nmpsim.experiments": "Evaluation SweepResult evaluate sweep",
    "nmpsim.frontends.imported_model": "ImportedModel",
    "nmpsim.lir.layers": "find_layer",
    "nmpsim.quantization": "CalibratedProgram QuantizedProgram",
    "nmpsim.report.data": "RunReport",
    "nmpsim.report.json": "write_report",
    "nmpsim.report.read": "read_report",
    "nmpsim.session": "Compiled Device Limits Progress Shadow calibrate compile from_torch"
    " get_device lint load quantize save",
}
"""Module -> public names that it defines."""
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = ["__version__", *sorted(_HOMES)]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'nmpsim' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
