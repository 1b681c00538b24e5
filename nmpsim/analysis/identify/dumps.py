"""Recorded tensors of a device, read by name in the types and layouts of a program."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from operator import itemgetter
from pathlib import Path

import numpy as np

from nmpsim.analysis.matching.tensors import parse_saved_key
from nmpsim.array_files import ArrayFile, ArrayFolder, RawFile, StoredArray
from nmpsim.arrays import Array, Shape
from nmpsim.compiler.operations import BufferView
from nmpsim.diagnostics import UserError, fail
from nmpsim.lir.names import make_legal_name

MAX_ELEMENTS = 1 << 24
"""Most elements of a tensor that are read at a time."""
_RUN = 1 << 20
"""Elements of a run of consecutive rows of the largest array."""
CONSTANT_PREFIX, EXPECTED_PREFIX = "constant/", "expected/"
"""Prefixes of a probe's arrays: constants in place of the program's, and expected results."""
_PREFIXES = "input/", "output/", "act/"
_RESULT = "_res"
_UNSIGNED = {"i8": np.uint8, "i16": np.uint16}


class Dumps:
    """Dumps of a device: recorded tensors of a program in an ``.npz`` file or a folder.

    Parameters
    ----------
    path
        The ``.npz`` file, or the folder of ``.npy``, ``.raw`` and ``.bin`` files. Its keys are
        names of tensors, or those of ``nmpsim run --save-layers``.
    channels_first
        Whether a tensor whose shape fits both layouts has channels first, unless nmpsim wrote it.
    transposed
        Tensors of the program by name, and the tensor that each one is a transpose of, if any. An
        array with such a name belongs to no other tensor than these two.

    Raises
    ------
    UserError
        FILE001 or INPUT003 if the file or folder cannot be read.
    """

    def __init__(
        self, path: Path, channels_first: bool = False, transposed: Mapping[str, str] | None = None
    ) -> None:
        self.path, self.channels_first = path, channels_first
        self._transposed = {} if transposed is None else transposed
        self.file = ArrayFolder(path) if path.is_dir() else ArrayFile(path)
        """The file or folder itself."""
        if not self.file.is_archive:
            raise fail(
                "INPUT003",
                "the dumps have no names of tensors",
                place=path,
                found="an .npy file",
                expected="an .npz file or a folder with an array for each tensor",
                hint="Pass a folder with an .npy file for each tensor, such as conv1.npy.",
            )
        self._keys: dict[str, str] = {}
        # A layer's own name comes before names that follow from a buffer, which layers may share.
        forms = [(*pair, key) for key in self.file.keys for pair in enumerate(list_name_forms(key))]
        for _, name, key in sorted(forms, key=itemgetter(0)):
            self._keys.setdefault(name, key)
        self.read_keys: set[str] = set()
        """Keys of the arrays that were read."""
        self.partial: set[str] = set()
        """Keys of the arrays of which only the first rows were read."""
        self.by_order: dict[str, str] = {}
        """Names of tensors that were matched by order or values, and the keys of their arrays."""
        self._layouts: dict[str, bool] = {}
        self.block = 0
        """Number of the block of rows that is read."""
        self._rows, self._run, self.blocks = self._plan_blocks()

    def _plan_blocks(self) -> tuple[int, int, int]:
        """Return the rows of the largest array, the rows of a run, and the number of blocks.

        A block contains runs of rows from the whole file, so that each block is a sample of it.
        """
        largest, rows = 1, 1
        for key in self.file.keys:
            with suppress(UserError):  # an array that is not needed need not be readable
                stored = self.file.get_array(key)
                count = math.prod(stored.shape)
                if count > largest and not isinstance(stored.file, RawFile):
                    largest, rows = count, stored.shape[0]
        run = max(_RUN * rows // largest, 1)
        return rows, run, min(-(-largest // MAX_ELEMENTS), -(-rows // run))

    @property
    def keys(self) -> tuple[str, ...]:
        """Names of the arrays in the file."""
        return self.file.keys

    def is_raw(self, key: str) -> bool:
        """Return whether an array is in a raw file, which contains neither its type nor shape."""
        return isinstance(self.file.get_array(key).file, RawFile)

    def find_key(self, names: Sequence[str]) -> str | None:
        """Return the key of the array of a tensor that has one of the names, or None."""
        known = (self._keys.get(name) for one in names for name in list_name_forms(one))
        found = (one for one in known if one is not None)
        return next(
            (one for one in found if one in names or self._transposed.get(one, names[-1]) in names),
            None,
        )

    def assign(self, name: str, key: str, *, is_by_order: bool, channels_first: bool) -> None:
        """Assign an array to a tensor of another name; later reads of the tensor return it."""
        self._keys[name], self._layouts[key] = key, channels_first
        if is_by_order:
            self.by_order[name] = key

    def read(
        self, view: BufferView, names: Sequence[str], *, is_weight: bool = False
    ) -> Array | None:
        """Read the recorded values [N, *shape] of a tensor, or return None if the file lacks them.

        An input or output of the program (``is_weight``) has the layout of the model's file.

        Raises
        ------
        UserError
            INPUT002 for a wrong size or type, or a value that is no number.
        """
        key = self.find_key(names)
        if key is None:
            return None
        if key not in self.by_order.values():
            return self._read_array(view, key, is_weight)
        try:
            return self._read_array(view, key, is_weight)
        except UserError as error:
            if error.diagnostics[0].code != "INPUT002":
                raise
        # The tensor cannot have these values, so the match is wrong.
        self.discard_matches([name for name, one in self.by_order.items() if one == key])
        self.read_keys.discard(key)
        self.partial.discard(key)
        return None

    def read_constant(self, key: str, values: Array) -> Array:
        """Read the array of a constant, which must have the shape and type of ``values``.

        Raises UserError (INPUT002) for another shape or type.
        """
        stored = self.file.get_array(key)
        if stored.shape != values.shape or stored.dtype != values.dtype:
            raise fail(
                "INPUT002",
                f"the array {key!r} has the wrong shape or type",
                place=self.path,
                found=f"{stored.dtype} {list(stored.shape)}",
                expected=f"{values.dtype} {list(values.shape)}",
                hint="Pass the weights of the probe, or remove the array.",
            )
        self.read_keys.add(key)
        return stored.read()

    def discard_matches(self, names: Iterable[str]) -> None:
        """Discard the matches by order of tensors."""
        for name in names:
            del self._keys[name], self.by_order[name]

    def _read_array(self, view: BufferView, key: str, is_weight: bool) -> Array:
        stored, is_first = self.file.get_array(key), self._has_channels_first(key, is_weight)
        if isinstance(stored.file, RawFile):
            stored = self._read_raw_header(stored.file, view, key, is_first)
        elements = view.type.elements
        count = math.prod(stored.shape)
        has_axes = len(stored.shape) == len(view.shape) == 4
        is_another = has_axes and sorted(stored.shape[1:]) != sorted(view.shape[1:])
        if not count or count % elements or is_another:
            raise self._make_error(
                view, key, "size", f"shape {list(stored.shape)}", _describe(view)
            )
        if self.blocks > 1 and stored.shape and stored.shape[0] % self._rows == 0:
            run = self._run * stored.shape[0] // self._rows
            stored = stored.take_runs(self.block, self.blocks, run)
        elif count > MAX_ELEMENTS and stored.shape and stored.shape[0] > 1:
            rows = max(MAX_ELEMENTS * stored.shape[0] // count, 1)
            stored = stored.take_rows(rows)
            self.partial.add(key)
        array = stored.read()
        self.read_keys.add(key)
        items = array.size // elements
        if items * elements != array.size:
            raise self._make_error(view, key, "size", f"shape {list(array.shape)}", _describe(view))
        return self._convert(_arrange(array, view, items, is_first), view, key)

    def _has_channels_first(self, key: str, is_weight: bool) -> bool:
        has_number = (parse_saved_key(key) or (None,))[0] is not None
        return not is_weight and self._layouts.get(key, self.channels_first and not has_number)

    def _read_raw_header(
        self, file: RawFile, view: BufferView, key: str, is_first: bool
    ) -> StoredArray:
        """Return a raw file as an array of a tensor's type, with one or several of its shapes."""
        size, dtype = file.get_array("").size, view.type.dtype
        batch, *shape = view.shape or (1,)
        if len(shape) == 3 and is_first:
            shape = [shape[2], *shape[:2]]
        items, rest = divmod(size, math.prod(shape) * dtype.itemsize)
        if rest or items % batch:
            expected = f"{_describe(view)}: a multiple of {view.type.nbytes:,} bytes"
            raise self._make_error(view, key, "size", f"{size:,} bytes", expected)
        return file.get_typed_array(dtype, (items, *shape))

    def _convert(self, array: Array, view: BufferView, key: str) -> Array:
        """Return an array in the stored type of a tensor."""
        dtype = view.type.dtype
        if view.type.quant is None:
            return array.astype(dtype)
        if array.dtype.kind == "f":
            if not np.isfinite(array).all():
                raise self._make_error(view, key, "values", "NaN or infinity", "finite numbers")
            whole = np.rint(array)
            if not np.array_equal(whole, array):
                whole = np.rint(array / view.scale) + view.offset
                if np.abs((whole - view.offset) * view.scale - array).max() > view.scale / 8:
                    found = "numbers that are not on the grid of the tensor"
                    raise self._make_error(view, key, "values", found, _describe(view))
            array = whole.astype(np.int64)
        if array.dtype.kind not in "iu":
            raise self._make_error(view, key, "type", str(array.dtype), _describe(view))
        if array.dtype == _UNSIGNED.get(view.type.elem):
            array = array.astype(np.int64) - (1 << 8 * array.dtype.itemsize - 1)
        limits = np.iinfo(dtype)
        low, high = int(array.min()), int(array.max())
        if low < limits.min or high > limits.max:
            raise self._make_error(view, key, "values", f"{low} to {high}", _describe(view))
        return array.astype(dtype)

    def _make_error(
        self, view: BufferView, key: str, what: str, found: str, expected: str
    ) -> UserError:
        return fail(
            "INPUT002",
            f"the array {key!r} has the wrong {what} for %{view.name}",
            place=self.path,
            found=found,
            expected=expected,
            hint="Pass dumps of this network, with an array for each tensor.",
        )


def read_shapes(paths: Iterable[Path]) -> dict[str, Shape]:
    """Return the shapes of the arrays in files and folders by the names that tensors may have."""
    shapes: dict[str, Shape] = {}
    for path in paths:
        file = Dumps(path).file
        for key in file.keys:
            with suppress(UserError):  # an array that is not needed need not be readable
                array = file.get_array(key)
                if not isinstance(array.file, RawFile):
                    shapes |= dict.fromkeys(list_name_forms(key), array.shape)
    return shapes


def _describe(view: BufferView) -> str:
    return f"{view.type.elem} {list(view.shape)}, or several of them"


def list_name_forms(name: str) -> list[str]:
    """Return the forms in which a tensor's name may occur."""
    parsed = parse_saved_key(name)
    found = [name] if parsed is None else [name, parsed[1], parsed[2] or parsed[1]]
    for prefix in _PREFIXES:
        found += [one.removeprefix(prefix) for one in found if one.startswith(prefix)]
    found += [one.removesuffix(_RESULT) for one in found if one.endswith(_RESULT)]
    return list(dict.fromkeys([*found, *map(make_legal_name, found)]))


def _arrange(array: Array, view: BufferView, items: int, channels_first: bool) -> Array:
    """Return an array as [items, *shape], channels last if its shape has them first."""
    shape = view.shape
    if len(shape) == 4 and array.ndim == 4:
        first = shape[3], shape[1], shape[2]
        is_same = array.shape[1:] == shape[1:]
        if array.shape[1:] == first and (channels_first or not is_same):
            array = array.transpose(0, 2, 3, 1)
    return np.ascontiguousarray(array).reshape(items, *shape)
