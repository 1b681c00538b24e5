"""Classes with the interfaces of ONNX Runtime and LiteRT that run models on the simulated device.

A script needs one changed import::

    import nmpsim.runtime as onnxruntime
    from nmpsim.runtime import Interpreter

Every object has the report of its last run: cycles, stalls, saturation.
"""

from nmpsim.runtime.errors import RuntimeInputError
from nmpsim.runtime.onnx_session import (
    GraphOptimizationLevel,
    InferenceSession,
    NodeArg,
    SessionModelMetadata,
    SessionOptions,
    get_available_providers,
    get_device,
)
from nmpsim.runtime.tflite_interpreter import Interpreter

__all__ = [
    "GraphOptimizationLevel",
    "InferenceSession",
    "Interpreter",
    "SessionModelMetadata",
    "NodeArg",
    "RuntimeInputError",
    "SessionOptions",
    "get_available_providers",
    "get_device",
]
