"""Types of the public names, which ``__init__.py`` imports when they are first used."""

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

__version__: str
