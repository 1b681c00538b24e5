"""Record results of the runtimes for products of two quantized matrices.

Run by hand, beside this file, where onnx, onnxruntime 1.31.1, ai-edge-litert 2.3.0 and flatbuffers
are installed: ``python record_products.py``. In every second case the scales are chosen so that
many sums are halves of the result's step, or next to them. A case of uint8 is kept as the Int8 it
means.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import onnxruntime
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from onnx import helper, numpy_helper

RNG = np.random.default_rng(21)
F32 = np.float32
Case = dict[str, Any]
RESOLVERS = ("BUILTIN_REF", "BUILTIN_WITHOUT_DEFAULT_DELEGATES")


def matrices(dtype: Any, zero_points: bool, ties: bool) -> Case:
    """Return two matrices with scales and zero points so that the largest sum fills the result."""
    limits = np.iinfo(dtype)
    rows, inner, columns = (int(RNG.integers(1, most)) for most in (24, 160, 24))
    lhs, rhs = (
        RNG.integers(limits.min, limits.max, shape, dtype, endpoint=True)
        for shape in ((rows, inner), (inner, columns))
    )
    drawn = RNG.integers(limits.min, limits.max, 3, endpoint=True)
    zeros = [int(zero) if zero_points else 0 for zero in drawn]
    left, right = np.exp(RNG.uniform(-6, -2, 2)).astype(F32)
    sums = (lhs.astype(np.int64) - zeros[0]) @ (rhs.astype(np.int64) - zeros[1])
    out = max(np.abs(sums).max(), 1) / (limits.max - limits.min)
    if ties:
        out = 2.0 ** np.ceil(np.log2(out)) * (1 + RNG.integers(-1, 2) * 2.0**-23)
    names = ("l_zero", "r_zero", "y_zero")
    scales = {"l_scale": left, "r_scale": right, "y_scale": F32(F32(left * right) * F32(out))}
    return {"lhs": lhs, "rhs": rhs, **scales, **dict(zip(names, zeros, strict=True))}


def onnx_product(dtype: Any, constant: bool, ties: bool) -> Case:
    case = matrices(dtype, True, ties)
    typed = {n: case[n].astype(F32) for n in ("l_scale", "r_scale", "y_scale")}
    typed |= {n: np.asarray(case[n], dtype) for n in ("l_zero", "r_zero", "y_zero")}
    given = {"lhs": case["lhs"], **({} if constant else {"rhs": case["rhs"]})}
    typed |= {"rhs": case["rhs"]} if constant else {}
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    order = ["lhs", "l_scale", "l_zero", "rhs", "r_scale", "r_zero", "y_scale", "y_zero"]
    graph = helper.make_graph(
        [helper.make_node("QLinearMatMul", order, ["y"])],
        "g",
        [helper.make_tensor_value_info(n, kind, v.shape) for n, v in given.items()],
        [helper.make_tensor_value_info("y", kind, None)],
        [numpy_helper.from_array(value, name) for name, value in typed.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    case["y"] = session.run(None, given)[0]
    if dtype == np.uint8:
        for name in ("lhs", "rhs", "y"):
            case[name] = (case[name].astype(np.int64) - 128).astype(np.int8)
        case |= {name: case[name] - 128 for name in ("l_zero", "r_zero", "y_zero")}
    return {**case, "runtime": "ONNX Runtime", "constant": constant}


def tflite_model(case: Case, constant: bool) -> bytes:
    """Return a TFLite file with one BATCH_MATMUL."""
    model, graph, operator = schema.ModelT(), schema.SubGraphT(), schema.OperatorT()
    code = schema.OperatorCodeT()
    code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.BATCH_MATMUL
    wide = case["lhs"].dtype == np.int16
    code.version = 3 if wide else 2
    shape = (case["lhs"].shape[0], case["rhs"].shape[1])
    model.version, model.operatorCodes, model.buffers = 3, [code], [schema.BufferT()]
    graph.tensors, graph.outputs, graph.inputs = [], [2], [0] if constant else [0, 1]
    for name, side, of in (("l", "lhs", None), ("r", "rhs", None), ("y", "y", shape)):
        tensor, buffer, quant = schema.TensorT(), schema.BufferT(), schema.QuantizationParametersT()
        tensor.shape, tensor.name = list(of or case[side].shape), name.encode()
        tensor.type = schema.TensorType.INT16 if wide else schema.TensorType.INT8
        quant.scale, quant.zeroPoint = [float(case[f"{name}_scale"])], [case[f"{name}_zero"]]
        if name == "r" and constant:
            buffer.data = np.frombuffer(case["rhs"].tobytes(), np.uint8)
        tensor.quantization, tensor.buffer = quant, len(model.buffers)
        model.buffers.append(buffer)
        graph.tensors.append(tensor)
    operator.opcodeIndex, operator.inputs, operator.outputs = 0, [0, 1], [2]
    operator.builtinOptionsType = schema.BuiltinOptions.BatchMatMulOptions
    operator.builtinOptions = schema.BatchMatMulOptionsT()
    graph.operators, model.subgraphs = [operator], [graph]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def tflite_product(dtype: Any, constant: bool, ties: bool, resolver: str) -> Case:
    case = matrices(dtype, dtype == np.int8, ties)
    interpreter = Interpreter(
        model_content=tflite_model(case, constant),
        experimental_op_resolver_type=getattr(OpResolverType, resolver),
    )
    interpreter.allocate_tensors()
    interpreter.set_tensor(0, case["lhs"])
    if not constant:
        interpreter.set_tensor(1, case["rhs"])
    interpreter.invoke()
    return {**case, "y": interpreter.get_tensor(2), "runtime": "LiteRT", "constant": constant}


def cases() -> Iterator[Case]:
    for _ in range(3):
        for constant in (False, True):
            for ties in (False, True):
                for dtype in (np.int8, np.uint8):
                    yield onnx_product(dtype, constant, ties)
                for wide in (np.int8, np.int16):
                    for resolver in RESOLVERS:
                        yield tflite_product(wide, constant, ties, resolver)


def main() -> None:
    arrays = {}
    for number, case in enumerate(cases()):
        arrays |= {f"{number:03d}.{name}": np.asarray(value) for name, value in case.items()}
    np.savez_compressed(Path(__file__).with_name("products.npz"), **arrays)


if __name__ == "__main__":
    main()
