"""Replacement of TFLite's variables by state tensors, which a program reads and then writes.

READ_VARIABLE becomes a read of the state tensor, or of the value assigned before it. Only the last
assigned value is stored, after all operators.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs
import numpy as np

from nmpsim.arrays import Array
from nmpsim.frontends.imported_model import UnsupportedError, require
from nmpsim.frontends.tflite.model_data import (
    VARIABLE_OPERATORS,
    TFLiteModel,
    TFLiteOperator,
    TFLiteState,
    TFLiteTensor,
    decode_text,
)

_HANDLE = ("Container", "SharedName")
"""Options of VAR_HANDLE that identify a variable."""


def replace_variables(
    model: TFLiteModel, initializers: Iterable[Sequence[TFLiteOperator]]
) -> TFLiteModel:
    """Return a model with state tensors in place of variables.

    Parameters
    ----------
    model : TFLiteModel
        The model as the file has it.
    initializers : iterable of sequence of TFLiteOperator
        Operators of each subgraph that CALL_ONCE calls.

    Raises
    ------
    UnsupportedError
        For a subgraph that does more than assign constants, for a variable that is read before it
        has a value, and for different types of one variable.
    """
    initial = _Variables({})
    for operators in initializers:
        initial.run_initializer(operators)
    variables = _Variables({key: one.values for key, one in initial.assigned.items()})
    operators = [left for one in model.operators if (left := variables.replace(one)) is not None]
    return variables.make_model(model, operators)


class _Variables:
    """Values of variables while the operators of a graph are walked through in order."""

    def __init__(self, initial: Mapping[str, Array | None]) -> None:
        self._initial = initial
        self._keys: dict[int, str] = {}
        """Index of a handle's tensor -> variable."""
        self._read: dict[str, TFLiteTensor] = {}
        """Variable -> state tensor, for variables that are read before they are assigned."""
        self._replaced: dict[int, TFLiteTensor] = {}
        """Index of a result of READ_VARIABLE -> the tensor that has its value."""
        self._assignments: dict[str, TFLiteOperator] = {}
        self.assigned: dict[str, TFLiteTensor] = {}
        """Variable -> tensor that was assigned last."""

    def run_initializer(self, operators: Sequence[TFLiteOperator]) -> None:
        """Assign the constants of a subgraph that CALL_ONCE calls."""
        self._keys = {}
        for one in operators:
            require(
                one.name in ("VAR_HANDLE", "ASSIGN_VARIABLE"),
                f"{one.name} in a subgraph of CALL_ONCE",
                "VAR_HANDLE and ASSIGN_VARIABLE only",
            )
            self.replace(one)
        for key, value in self.assigned.items():
            found = f"a computed initial value of variable {key}"
            require(value.values is not None, found, "a constant")

    def replace(self, operator: TFLiteOperator) -> TFLiteOperator | None:
        """Return an operator that reads state tensors; None for an operator on variables."""
        inputs = tuple(one and self._replaced.get(one.index, one) for one in operator.inputs)
        if operator.name == "VAR_HANDLE":
            names = (decode_text(operator.options.get(name)) for name in _HANDLE)
            self._keys[operator.outputs[0].index] = "/".join(filter(None, names)) or "variable"
        elif operator.name == "READ_VARIABLE":
            self._record_read(self._find_key(operator), operator.outputs[0])
        elif operator.name == "ASSIGN_VARIABLE":
            key, value = self._find_key(operator), inputs[1]
            if value is None:
                raise UnsupportedError(f"{operator.name} without a value", "a value")
            self.assigned[key], self._assignments[key] = value, operator
        if operator.name in VARIABLE_OPERATORS:
            return None
        return attrs.evolve(operator, inputs=inputs)

    def make_model(self, model: TFLiteModel, operators: Sequence[TFLiteOperator]) -> TFLiteModel:
        """Return the model with these operators and the state tensors."""
        states: list[TFLiteState] = []
        fixed: dict[int, TFLiteTensor] = {}
        for key, tensor in self._read.items():
            value, initial = self.assigned.get(key, tensor), self._initial[key]
            if value.index == tensor.index or initial is None:  # it is never changed
                fixed[tensor.index] = attrs.evolve(tensor, values=initial)
                continue
            _check_types(key, tensor, value)
            states.append(TFLiteState(key, tensor, value, initial, self._assignments[key]))
        return attrs.evolve(
            model,
            tensors=tuple(fixed.get(one.index, one) for one in model.tensors),
            operators=tuple(operators),
            outputs=tuple(self._replaced.get(one.index, one) for one in model.outputs),
            states=tuple(states),
            variable_operators=tuple(
                one for one in model.operators if one.name in VARIABLE_OPERATORS
            ),
        )

    def _find_key(self, operator: TFLiteOperator) -> str:
        handle = operator.inputs[0]
        key = None if handle is None else self._keys.get(handle.index)
        if key is None:
            raise UnsupportedError(f"{operator.name} without VAR_HANDLE", "a handle of VAR_HANDLE")
        return key

    def _record_read(self, key: str, result: TFLiteTensor) -> None:
        """Record that a tensor has the present value of a variable."""
        is_new = result.values is None and result.index not in self._replaced
        require(is_new, f"a second definition of {result.name}", "one definition")
        value = self.assigned.get(key, self._read.get(key))
        if value is None:
            initial = self._initial.get(key)
            found = f"variable {key}, which is read before it has a value"
            require(initial is not None, found, "an initial value by CALL_ONCE")
            assert initial is not None
            given = f"variable {key} with initial values of {initial.dtype} {list(initial.shape)}"
            is_equal = (str(initial.dtype), initial.shape) == (result.dtype, result.shape)
            require(is_equal, given, f"{result.dtype} {list(result.shape)}, as it is read")
            value = self._read[key] = result
        else:
            _check_types(key, result, value)
        self._replaced[result.index] = value


def _check_types(key: str, read: TFLiteTensor, assigned: TFLiteTensor) -> None:
    """Raise UnsupportedError unless a variable is read in the type in which it is assigned."""
    types = [
        f"{one.dtype} {list(one.shape)}, scales {one.scales.tolist()[:3]},"
        f" zero points {one.zero_points.tolist()[:3]}"
        for one in (read, assigned)
    ]
    is_equal = np.array_equal(read.scales, assigned.scales) and types[0] == types[1]
    require(is_equal, f"variable {key} of {types[1]}", f"{types[0]}, as it is read")
