"""Recorder of live PyTorch models, which are run once on an example.

This is the only module that imports PyTorch. Control flow is recorded as the example takes it.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import attrs
import numpy as np
import torch
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.utils._python_dispatch import TorchDispatchMode

from nmpsim.diagnostics import Place, UserError, fail, list_alternatives
from nmpsim.frontends.torch.quantized_operators import OPERATIONS
from nmpsim.frontends.torch.recording import (
    CHANNEL_BLOCK,
    TABLE,
    ModelRecording,
    QuantizedWeights,
    RecordedCall,
    RecordedTensor,
)

_ENGINES = ("fbgemm", "qnnpack", "onednn", "x86")
_QUANTIZE = "quantized_decomposed.quantize_per_tensor"
_DEQUANTIZE = "quantized_decomposed.dequantize_per_tensor"
_UNTAGGED = ("aten.hardswish",)
"""Elementwise operations that PyTorch does not tag as such."""
_OBSERVED = ".activation_post_process"
"""Suffix of a module's observer, which does nothing in a converted model."""
_NORMALIZATIONS = ("quantized.batch_norm2d", "quantized.batch_norm2d_relu")
_NUDGES = (0, 1, -1, 2, -2, 3, -3)
"""Steps from a float32 number, by which factors of a normalization are changed."""
_MAX_GROUPS = 100
"""Limit for convolutions that x86 computes by onednn; source: ``should_use_onednn_quant``."""


def record_model(
    model: Any, example: Any, engine: str | None, *, keeps_values: bool = False
) -> ModelRecording:
    """Run a PyTorch model on an example; return a recording of its operations.

    Parameters
    ----------
    model : torch.nn.Module or torch.export.ExportedProgram
        The model, in evaluation mode.
    example : torch.Tensor or sequence of them
        Arguments of ``forward``.
    engine : str, optional
        Engine that the model was converted for; by default
        ``torch.backends.quantized.engine``.
    keeps_values : bool
        Whether all recorded tensors have values, instead of constants only.

    Raises
    ------
    UserError
        MODEL002 if the model is not supported, ARG001 for an unknown engine.
    """
    chosen = torch.backends.quantized.engine if engine is None else engine
    if chosen not in _ENGINES:
        message = "unknown quantization engine"
        found, expected = f"engine={chosen!r}", list_alternatives(_ENGINES)
        raise fail("ARG001", message, found=found, expected=expected)
    if isinstance(model, torch.export.ExportedProgram):
        model = model.module()
    if not isinstance(model, torch.nn.Module):
        raise _unsupported(model, f"a {type(model).__name__}", "a torch.nn.Module")
    if model.training and not isinstance(model, torch.fx.GraphModule):  # PT2E's has no modes
        raise _unsupported(model, "training mode", "evaluation mode", "Call model.eval() first.")
    examples = (example,) if isinstance(example, torch.Tensor) else tuple(example)
    for index, one in enumerate(examples):
        if not isinstance(one, torch.Tensor):
            found = f"example input {index} of type {type(one).__name__}"
            raise _unsupported(model, found, "a tensor for each input")
    recorder = _Recorder(model, chosen, keeps_values)
    inputs = tuple(
        (name, recorder.begin(one))
        for name, one in zip(_names(model, len(examples)), examples, strict=True)
    )
    mode = _DispatchMode(recorder.run_operation)
    with torch.no_grad(), _engine(chosen), recorder.naming(), mode:
        answer = model(*examples)
    outputs = []
    for name, value in _outputs(model, answer):
        if not recorder.is_made(value):
            found = f"output {name}, which no operation computes"
            raise _unsupported(model, found, "the result of an operation")
        outputs.append((name, recorder.tensor(value)))
    calls = _needed(recorder.calls, [tensor for _, tensor in outputs])
    return ModelRecording(type(model).__name__, chosen, inputs, tuple(outputs), calls)


@contextmanager
def _engine(name: str) -> Iterator[None]:
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = name
    try:
        yield
    finally:
        torch.backends.quantized.engine = before


def _unsupported(model: Any, found: str, expected: str, hint: str | None = None) -> UserError:
    place = Place(type(model).__name__)
    message = "the model cannot be compiled"
    return fail("MODEL002", message, place=place, found=found, expected=expected, hint=hint)


def _names(model: Any, count: int) -> list[str]:
    """Return the names of the first parameters of ``forward``; a scripted model has none."""
    try:
        parameters = inspect.signature(model.forward).parameters.values()
    except (TypeError, ValueError):
        names = []
    else:
        plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        names = [one.name for one in parameters if one.kind in plain]
    return names[:count] if len(names) >= count else [f"input_{place}" for place in range(count)]


def _outputs(model: Any, answer: Any) -> list[tuple[str, torch.Tensor]]:
    if isinstance(answer, torch.Tensor):
        named = [("output", answer)]
    elif isinstance(answer, Mapping):
        named = [(str(name), value) for name, value in answer.items()]
    elif isinstance(answer, Sequence):
        named = [(f"output_{place}", value) for place, value in enumerate(answer)]
    else:
        named = []
    if not named or not all(isinstance(value, torch.Tensor) for _, value in named):
        found = f"a result of type {type(answer).__name__}"
        raise _unsupported(model, found, "a tensor, or a tuple or dictionary of them")
    return named


def _needed(
    calls: Sequence[RecordedCall], outputs: Sequence[RecordedTensor]
) -> tuple[RecordedCall, ...]:
    """Return the calls on which outputs depend, and those without results: control flow."""
    wanted = {tensor.number for tensor in outputs}
    kept: list[RecordedCall] = []
    for call in reversed(calls):
        if call.results and not any(result.number in wanted for result in call.results):
            continue
        kept.append(call)
        wanted |= {tensor.number for tensor in _tensors(call.arguments)}
    return tuple(reversed(kept))


def _tensors(value: Any) -> Iterator[RecordedTensor]:
    if isinstance(value, RecordedTensor):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _tensors(one)
    elif isinstance(value, tuple):
        for one in value:
            yield from _tensors(one)


class _DispatchMode(TorchDispatchMode):  # type: ignore[misc]
    """Dispatch mode that passes every operation, also those of a scripted model, to a function."""

    def __init__(self, run: Callable[..., Any]) -> None:
        super().__init__()
        self._run = run

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._run(func, args, kwargs or {})


@attrs.frozen
class _ScalarFunction:
    """Function of each integer of a quantized tensor, between PT2E's conversions."""

    source: RecordedTensor
    compute: Callable[[torch.Tensor], torch.Tensor]
    operations: tuple[str, ...] = ()
    """Names of the elementwise operations."""

    def tabulate(self) -> Any:
        """Return the results for all 256 integers of the source, the lowest first."""
        limits = torch.iinfo(getattr(torch, self.source.dtype))
        every = torch.arange(limits.min, limits.max + 1, dtype=torch.int16)
        return self.compute(every.to(getattr(torch, self.source.dtype))).numpy().copy()


class _Recorder:
    """Recorder of the operations of a model."""

    def __init__(self, model: Any, engine: str, keeps_values: bool) -> None:
        self.calls: list[RecordedCall] = []
        self._engine, self._keeps_values = engine, keeps_values
        self._tensors: dict[int, RecordedTensor] = {}
        """Identity of a tensor -> its current record."""
        self._alive: list[torch.Tensor] = []
        """Keeps tensors alive, so that no identity is reused."""
        self._made: set[int] = set()
        """Numbers of tensors that depend on the inputs."""
        self._storages: dict[int, set[int]] = {}
        """Address of a storage -> identities of the tensors that share it."""
        self._functions: dict[int, _ScalarFunction] = {}
        """Number of a float tensor -> how it is computed from one quantized tensor of PT2E."""
        self._count = 0
        self._packed: dict[int, QuantizedWeights] = {}
        self._paths = {id(module): path for path, module in model.named_modules()}
        self._parameters = {
            id(value): path
            for values in (model.named_parameters(), model.named_buffers())
            for path, value in values
        }
        self._stack: list[tuple[str, bool]] = [("", True)]
        """Path of each running module, and whether it is the user's."""

    def begin(self, value: torch.Tensor) -> RecordedTensor:
        """Record an input."""
        tensor = self._set(value)
        self._made.add(tensor.number)
        return tensor

    def is_made(self, value: torch.Tensor) -> bool:
        """Return whether an operation of the run has computed a tensor."""
        held = self._tensors.get(id(value))
        return held is not None and any(held in call.results for call in self.calls)

    def tensor(self, value: torch.Tensor) -> RecordedTensor:
        """Return the record of a tensor; one that no operation has computed is a constant."""
        known = self._tensors.get(id(value))
        return known or self._set(value, self._parameters.get(id(value), ""), is_constant=True)

    @contextmanager
    def naming(self) -> Iterator[None]:
        """Context manager that follows which module is running."""

        def enter(module: Any, arguments: Any) -> None:
            path = self._paths.get(id(module), self._stack[-1][0])
            is_users = not path or not type(module).__module__.startswith("torch.")
            self._stack.append((path, is_users))

        def leave(module: Any, arguments: Any, result: Any) -> None:
            path, _ = self._stack.pop()
            if path.endswith(_OBSERVED) and self.calls and isinstance(result, torch.Tensor):
                last = self.calls[-1]
                if self._tensors.get(id(result)) in last.results:
                    self.calls[-1] = attrs.evolve(last, name=path.removesuffix(_OBSERVED))

        with ExitStack() as hooks:
            for hook in (
                register_module_forward_pre_hook(enter),
                register_module_forward_hook(leave),
            ):
                hooks.callback(hook.remove)
            yield

    def run_operation(self, func: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
        """Run an operation, record it and return its result."""
        given = dict(zip((one.name for one in func._schema.arguments), args, strict=False))
        given |= kwargs
        bound = {one.name: given.get(one.name, one.default_value) for one in func._schema.arguments}
        arguments = {name: self._record(value) for name, value in bound.items()}
        operation = str(func._schema.name).replace("::", ".").removesuffix("_")
        before = _stored(next(iter(bound.values()), None))  # it may be changed in place
        result = func(*args, **kwargs)
        results = result if isinstance(result, (tuple, list)) else (result,)
        answers = [one for one in results if isinstance(one, torch.Tensor)]
        if func._schema.is_mutable or bound.get("inplace") is True:
            self._forget_aliases(answers)
        is_made = any(tensor.number in self._made for tensor in _tensors(arguments))
        if not is_made and not operation.startswith("quantized_decomposed."):
            for one in answers:
                self._set(one, is_constant=True)
            return result
        tables: tuple[Any, ...] = ()
        is_function = operation in OPERATIONS and OPERATIONS[operation].is_function
        if is_function and before is not None:
            tables = _table(func, bound, before, answers[0])
        elif operation in ("aten.cat", "quantized.cat", "quantized.cat_relu"):
            tables = _concatenation_tables(func, bound)
        elif operation in _NORMALIZATIONS:
            arguments["packed_weight"] = _make_normalization(func, bound)
        held = tuple(map(self._set, answers))
        self._made |= {tensor.number for tensor in held}
        function = self._find_function(func, operation, bound, arguments)
        if function is not None and operation == _QUANTIZE:
            operation, tables = TABLE, (function.tabulate(),)
            arguments = {**arguments, "input": function.source}
        elif function is not None:
            self._functions[held[0].number] = function
        name = self._name(operation)
        self.calls.append(RecordedCall(len(self.calls), operation, name, arguments, held, tables))
        return result

    def _find_function(
        self, func: Any, operation: str, bound: Mapping[str, Any], arguments: Mapping[str, Any]
    ) -> _ScalarFunction | None:
        """Return how the result of an operation is computed from one tensor of 8-bit integers.

        None if it is not, or if a quantization follows operations that need no table.
        """
        if operation == _DEQUANTIZE:
            source = arguments["input"]
            if source.dtype not in ("int8", "uint8"):
                return None
            return _ScalarFunction(source, lambda every: func(**{**bound, "input": every}))
        tensors = {name: one for name, one in arguments.items() if isinstance(one, RecordedTensor)}
        made = {name: one for name, one in tensors.items() if one.number in self._made}
        parts = {name: self._functions.get(one.number) for name, one in made.items()}
        functions = [one for one in parts.values() if one is not None]
        if not functions or len(functions) < len(parts):
            return None
        is_elementwise = torch.Tag.pointwise in func.tags or operation in _UNTAGGED
        is_elementwise &= torch.Tag.nondeterministic_seeded not in func.tags
        others = [one for name, one in tensors.items() if name not in made]
        are_numbers = all(math.prod(one.shape) == 1 for one in others)
        is_single = all(one.source is functions[0].source for one in functions)
        if not (is_single and are_numbers and (is_elementwise or operation == _QUANTIZE)):
            return None
        before = tuple(name for one in functions for name in one.operations)
        if operation == _QUANTIZE and set(before) <= {"aten.relu"}:
            return None
        return _ScalarFunction(
            functions[0].source,
            lambda every: func(**{**bound, **{n: f.compute(every) for n, f in parts.items() if f}}),
            (*before, operation),
        )

    def _name(self, operation: str) -> str:
        path, is_users = self._stack[-1]
        own = operation.rpartition(".")[2].strip("_")
        return ".".join(filter(None, (path, own))) if is_users else path

    def _set(
        self, value: torch.Tensor, name: str = "", is_constant: bool = False
    ) -> RecordedTensor:
        self._alive.append(value)
        self._count += 1
        is_plain = value.is_quantized and value.qscheme() == torch.per_tensor_affine
        values = None
        if is_constant or self._keeps_values:
            plain = value.int_repr() if value.is_quantized else value
            values = plain.detach().cpu().numpy().copy()
        tensor = RecordedTensor(
            self._count,
            str(value.dtype).removeprefix("torch."),
            tuple(value.shape),
            value.q_scale() if is_plain else None,
            value.q_zero_point() if is_plain else 0,
            value.ndim == 4 and value.is_contiguous(memory_format=torch.channels_last),
            values,
            name,
            value.is_contiguous(),
        )
        self._tensors[id(value)] = tensor
        self._storages.setdefault(value.untyped_storage().data_ptr(), set()).add(id(value))
        return tensor

    def _forget_aliases(self, changed: Sequence[torch.Tensor]) -> None:
        """Give new numbers to tensors that share memory with one changed in place."""
        for value in changed:
            for other in self._storages.get(value.untyped_storage().data_ptr(), set()):
                if other != id(value) and other in self._tensors:
                    stale = self._tensors[other]
                    self._count += 1
                    self._tensors[other] = attrs.evolve(stale, number=self._count, values=None)
                    self._made.add(self._count)

    def _record(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self.tensor(value)
        if isinstance(value, torch.ScriptObject):
            return self._weights(value)
        if isinstance(value, (tuple, list)):
            return tuple(map(self._record, value))
        if isinstance(value, (torch.dtype, torch.layout, torch.device, torch.memory_format)):
            return str(value).removeprefix("torch.")
        return value

    def _weights(self, packed: Any) -> QuantizedWeights | None:
        if id(packed) not in self._packed:
            kind = str(packed._type()).rpartition(".")[2]
            if kind not in ("Conv2dPackedParamsBase", "LinearPackedParamsBase"):
                return None
            self._packed[id(packed)] = _unpacked(packed, kind, self._engine)
            self._alive.append(packed)
        return self._packed[id(packed)]


def _stored(value: Any) -> Any:
    is_narrow = isinstance(value, torch.Tensor) and value.dtype == torch.quint8
    return value.int_repr().numpy().copy() if is_narrow else None


def _table(func: Any, bound: Mapping[str, Any], before: Any, answer: torch.Tensor) -> Any:
    """Return PyTorch's results for all 256 values, computed at once or one by one as in the run.

    Both differ in ties, and a run may contain both. The tuple is empty if the results of the run
    are others: then PyTorch does not compute a function of each value.
    """
    name, given = next(iter(bound.items()))

    def results(values: torch.Tensor) -> Any:
        return _stored(func(**{**bound, name: _like(given, values)}))

    every = torch.arange(256, dtype=torch.uint8)
    at_once = results(every)
    found = _stored(answer).astype(np.int16)
    if np.array_equal(at_once[before], found):
        return (at_once,)
    one_by_one = np.concatenate([results(every[i : i + 1]) for i in range(256)])
    steps, table = min(
        ((abs(table[before] - found), table) for table in (at_once, one_by_one)),
        key=lambda pair: np.count_nonzero(pair[0]),
    )
    return (table,) if steps.max() <= 1 else ()


def _concatenation_tables(func: Any, bound: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return tables for each input of a concatenation: of single channels and of whole blocks."""
    name, parts = next(iter(bound.items()))
    every, found = torch.arange(256, dtype=torch.uint8), []
    for part in parts:
        if part.dtype != torch.quint8:
            return ()
        for shape, dimension in (((256,), 0), ((1, CHANNEL_BLOCK, 256 // CHANNEL_BLOCK, 1), 1)):
            given = [_like(one, every.reshape(shape)) for one in (parts[0], part)]
            if len(shape) == 4:
                given = [one.contiguous(memory_format=torch.channels_last) for one in given]
            answer = func(**{**bound, name: given, "dim": dimension})  # on the scale of the first
            found.append(_stored(answer.chunk(2, dimension)[1]).reshape(-1))
    return tuple(found)


def _make_normalization(func: Any, bound: Mapping[str, Any]) -> QuantizedWeights:
    """Return a convolution of each channel that equals a batch normalization for all 256 values.

    PyTorch multiplies and adds in one rounding, and fbgemm's convolution in two: the factors are
    changed in their last bits until no result differs.
    """
    image, zero = bound["qx"], bound["output_zero_point"]
    own, scale = np.float32(image.q_scale()), np.float32(bound["output_scale"])
    every = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 16, 16)
    values = _like(image, every.repeat(1, image.shape[1], 1, 1))
    results = _stored(func(**{**bound, "qx": values})).reshape(-1, 256)
    weight, bias, mean, variance = (
        bound[name].double().numpy() for name in ("weight", "bias", "mean", "var")
    )
    gain = weight / np.sqrt(variance + bound["eps"])
    signs, scales = np.sign(gain), np.where(gain == 0, 1, abs(gain)).astype(np.float32)
    shifts = (bias - mean * gain).astype(np.float32)
    sums = (signs[:, None] * (np.arange(256) - image.q_zero_point())).astype(np.float32)
    chosen = np.full((2, len(scales)), np.nan, np.float32)
    for steps in itertools.product(_NUDGES, _NUDGES):
        factors, biases = (
            (one.view(np.int32) + step).view(np.float32)
            for one, step in zip((scales, shifts), steps, strict=True)
        )
        product = own * factors
        rounded = np.rint((sums.T + biases / product) * (product / scale)).T + zero
        low = zero if "relu" in func._schema.name else 0
        is_equal = (np.clip(rounded, low, 255) == results).all(axis=1) & np.isnan(chosen[0])
        chosen[:, is_equal] = factors[is_equal], biases[is_equal]
    if np.isnan(chosen).any():
        channel = int(np.isnan(chosen[0]).argmax())
        message = "a batch normalization cannot be compiled"
        found = f"a factor of {gain[channel]:g} in channel {channel}"
        raise fail("MODEL002", message, found=found, expected="factors of a convolution")
    return QuantizedWeights(
        signs.astype(np.int8)[:, None, None, None],
        chosen[0],
        np.zeros(len(scales), np.int64),
        True,
        chosen[1],
        "fbgemm",
        groups=len(scales),
    )


def _like(tensor: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    return torch._make_per_tensor_quantized_tensor(values, tensor.q_scale(), tensor.q_zero_point())


def _unpacked(packed: Any, kind: str, engine: str) -> QuantizedWeights:
    ops = torch.ops.quantized
    if kind == "LinearPackedParamsBase":
        weights, bias = ops.linear_unpack(packed)
        sizes: dict[str, Any] = {}
    else:
        weights, bias = ops.conv2d_unpack(packed)
        sizes = {
            name: tuple(getattr(ops, f"conv2d_{name}")(packed))
            for name in ("stride", "padding", "dilation")
        }
        sizes["groups"] = int(ops.conv2d_groups(packed))
    is_per_channel = weights.qscheme() != torch.per_tensor_affine
    scales = weights.q_per_channel_scales() if is_per_channel else torch.tensor([weights.q_scale()])
    zeros = (
        weights.q_per_channel_zero_points()
        if is_per_channel
        else torch.tensor([weights.q_zero_point()])
    )
    if engine == "x86":
        is_symmetric = not bool(zeros.any())
        fits = bool(sizes) and sizes["groups"] <= _MAX_GROUPS and is_symmetric
        engine = "onednn" if fits else "fbgemm"
    return QuantizedWeights(
        weights.int_repr().numpy().copy(),
        scales.numpy().astype(np.float32),
        zeros.numpy().astype(np.int64),
        is_per_channel,
        None if bias is None else bias.detach().numpy().astype(np.float32),
        engine,
        **sizes,
    )
