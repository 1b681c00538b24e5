"""Recorded tensors whose names are not the program's, matched with the program's tensors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice

import attrs
import numpy as np

from nmpsim.analysis.identify.dumps import CONSTANT_PREFIX, EXPECTED_PREFIX, Dumps, list_name_forms
from nmpsim.analysis.identify.layer_reading import (
    estimate_results,
    list_operations,
    list_result_names,
)
from nmpsim.analysis.matching import (
    KnownValues,
    StoredTensor,
    list_saved_tensors,
    match_tensors,
)
from nmpsim.analysis.matching.match import BY_ORDER, BY_VALUES
from nmpsim.analysis.matching.tensors import parse_saved_key
from nmpsim.analysis.program import Program
from nmpsim.array_files import RawFile, StoredArray
from nmpsim.arrays import Array, Arrays
from nmpsim.compiler.operations import BufferView
from nmpsim.compiler.resolve import find_inputs_and_outputs
from nmpsim.diagnostics import UserError

MAX_ARRAYS = 10_000
"""Most arrays of a file that are matched without exact names."""


def match_unnamed_dumps(
    program: Program, dumps: Dumps, names: Mapping[str, str], layout: str
) -> None:
    """Match the arrays of a file that have no exact name with tensors that have no array.

    Updates ``dumps``, whose later reads return the matched arrays.

    Parameters
    ----------
    program
        Program with the tensors.
    dumps
        File with the arrays. An array [N, ...] of a program with batch 1 is matched by the shape
        of its first item.
    names
        Name of an array -> name or display name of an instruction or input.
    layout
        Layout of the 4-D arrays; ``auto`` infers it.

    Raises
    ------
    UserError
        DIFF001 for names that do not exist; INPUT003 for a damaged file.
    """
    known = dict(_list_tensors(program))
    aliases = {
        alias: one.name
        for one, result_names in known.items()
        for name in (program.get_display_name(one.name), *result_names)
        for alias in list_name_forms(name)
    } | {one.name: one.name for one in known}
    mapped = {key: aliases.get(name, name) for key, name in names.items()}
    own_names = {one.name: result_names[0] for one, result_names in known.items()}
    if layout == "auto" and dumps.channels_first:
        layout = "nchw"
    for key, name in list(mapped.items()):
        if key in dumps.keys and name in own_names and dumps.is_raw(key):
            is_first = layout == "nchw"
            dumps.assign(own_names[name], key, is_by_order=False, channels_first=is_first)
            del mapped[key]
    tensors = [
        one
        for one, result_names in known.items()
        if one.name in mapped.values() or dumps.find_key([one.name, *result_names]) is None
    ]
    with dumps.file.keep_open():
        references = _list_references(program, dumps, set(mapped))
        shapes = {tuple(sorted(one.shape)) for one in references}
        # An input that was not recorded would make the order of the other tensors ambiguous.
        tensors = [
            one
            for one in tensors
            if one.opcode or one.name in mapped.values() or tuple(sorted(one.shape)) in shapes
        ]
        for has_values in (False, True):
            # Values that follow from the first pairs distinguish the branches.
            values = estimate_results(program, dumps) if has_values else {}
            known_tensors = {_set_values(one, values): one for one in tensors}
            found = match_tensors(list(known_tensors), list(references), mapped, layout)
            dumps.discard_matches(list(dumps.by_order))
            for pair in found.pairs:
                dumps.assign(
                    known[known_tensors[pair.tensor]][0],
                    references[pair.reference],
                    is_by_order=pair.how in (BY_ORDER, BY_VALUES),
                    channels_first=found.layout == "nchw",
                )


def _set_values(tensor: StoredTensor, values: Arrays) -> StoredTensor:
    """Return a tensor with its values, if they are known."""
    if tensor.name not in values:
        return tensor
    return attrs.evolve(tensor, load=partial(KnownValues.from_array, values[tensor.name]))


def _list_tensors(program: Program) -> Iterator[tuple[StoredTensor, list[str]]]:
    """Yield inputs and results, and their names in dumps; transposes are seldom recorded."""
    writers: dict[str, str] = {}
    for view in find_inputs_and_outputs(program.module)[0]:
        writers[view.buffer.name] = view.name
        yield _make_tensor(view.name, view, "", ()), [view.name]
    for op in list_operations(program):
        name = op.instruction.name
        found = (writers.get(view.buffer.name) for view in op.list_inputs())
        inputs = tuple(dict.fromkeys(one for one in found if one is not None))
        if op.instruction.opcode == "transpose" and inputs:
            writers[op.output.buffer.name] = inputs[0]
            continue
        yield _make_tensor(name, op.output, op.instruction.opcode, inputs), list_result_names(op)
        writers[op.output.buffer.name] = name


def _make_tensor(name: str, view: BufferView, opcode: str, inputs: tuple[str, ...]) -> StoredTensor:
    unknown = KnownValues(view.shape, np.empty(0, view.type.dtype))
    return StoredTensor(
        name, None, True, view.type, lambda: unknown, opcode=opcode, inputs=inputs,
        quantization=view.type.quant if view.is_narrow else None,
    )  # fmt: skip


def _list_references(program: Program, dumps: Dumps, mapped: set[str]) -> dict[StoredTensor, str]:
    """Return the arrays of numbers that have no exact name or are mapped, and their keys."""
    stored: dict[str, StoredArray] = {}
    for key in islice(dumps.keys, MAX_ARRAYS):
        if key.startswith((CONSTANT_PREFIX, EXPECTED_PREFIX)):
            continue
        parsed = parse_saved_key(key)
        if parsed is None or (key not in mapped and (parsed[2] or key in dumps.read_keys)):
            continue
        try:
            array = dumps.file.get_array(key)
        except UserError:  # an array that is not needed need not be readable
            continue
        has_type = not isinstance(array.file, RawFile)
        if has_type and array.dtype.kind in "iuf" and 0 not in array.shape:
            stored[key] = array
    batches = Counter(array.shape[0] for array in stored.values() if len(array.shape) > 1)
    items = batches.most_common(1)[0][0] if batches else 1
    views, _ = find_inputs_and_outputs(program.module)
    is_single = all(view.shape[:1] == (1,) for view in views)

    def read(key: str) -> Array:
        array = stored[key]
        if not is_single or len(array.shape) < 2 or array.shape[0] != items:
            return array.read()
        return array.take_rows(1).read()[:1]

    return dict(zip(list_saved_tensors(stored, read), stored, strict=True))
