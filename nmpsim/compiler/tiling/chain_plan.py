"""Instructions of a chain for all cores: loads, computations, stores, waits and barriers."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import attrs
import numpy as np

from nmpsim.compiler.tiling.chain_buffers import (
    ConstantGroup,
    ConstantPiece,
    PlaceGroup,
    count_weight_bytes,
    group_constants,
    is_gathered,
)
from nmpsim.compiler.tiling.chain_cores import compute_places, make_row_keys, make_sequence
from nmpsim.compiler.tiling.chain_division import ChainDivision
from nmpsim.compiler.tiling.chain_layers import (
    AVERAGE_POOL,
    CONV,
    PAIR,
    ChainLayer,
)
from nmpsim.compiler.tiling.chain_schedule import ChainInstruction, Span, hoist_loads
from nmpsim.compiler.tiling.chain_views import BufferedRows
from nmpsim.compiler.tiling.image import make_window_words
from nmpsim.compiler.tiling.plan import (
    LOAD,
    STORE,
    InstructionSequence,
    align_size,
    get_word_offsets,
    make_box_words,
)
from nmpsim.config import DeviceConfig
from nmpsim.isa.table import SCRATCHPAD_BASE, Unit
from nmpsim.isa.words import PART_ONLY


@attrs.frozen(eq=False)
class ChainPlan:
    """Plan of a chain: its instructions, and its constants for each range of channels."""

    sequence: InstructionSequence
    groups: list[list[ConstantGroup]]


def plan_chain(
    division: ChainDivision, config: DeviceConfig, place: PlaceGroup
) -> ChainPlan | None:
    """Plan a chain's instructions on all cores; return None if constants exceed the scratchpads."""
    chain, tiling = division.chain, division.tiling
    divided: Sequence[tuple[int, int] | None] = division.channels if tiling.across > 1 else [None]
    space = division.layout.constant_bytes
    found = [group_constants(chain, one, tiling.group_bytes, space) for one in divided]
    if None in found:
        return None
    groups = [
        [attrs.evolve(group, address=place(chain, group)) for group in own]
        for own in found
        if own is not None
    ]
    later_inputs = {name for layer in chain.layers[1:] for name in layer.inputs}
    reads_all_channels = not later_inputs.isdisjoint(chain.layers[0].inputs)
    programs: dict[Hashable, list[ChainInstruction]] = {}
    keys = []
    for core, rows in enumerate(make_row_keys(division)):
        down, across = divmod(core, tiling.across)
        channels = division.channels[across]
        key = rows, _make_group_key(groups[across], channels), channels[0] * reads_all_channels
        if key not in programs:
            program = _CoreProgram(division, down, across, groups[across])
            programs[key] = hoist_loads(program.make_instructions(), tiling.loads_ahead)
        keys.append(key)
    numbers = {key: number for number, key in enumerate(programs)}
    places = compute_places(division, [[one.address for one in own] for own in groups])
    nbytes = max(sum(align_size(group.nbytes) for group in own) for own in groups)
    sequence = make_sequence(
        list(programs.values()),
        [numbers[key] for key in keys],
        places,
        config.cores_count,
        (SCRATCHPAD_BASE, division.layout.constants + min(nbytes, space)),
    )
    return ChainPlan(sequence, groups)


def _make_group_key(groups: Sequence[ConstantGroup], channels: tuple[int, int]) -> Hashable:
    """Return a key of the constants of a range of channels, without their place in the layer."""
    pieces = ((group.nbytes, piece) for group in groups for piece in group.pieces)
    first, end = channels
    return end - first, tuple(
        (nbytes, layer, begin - first, last - first, offset)
        for nbytes, (layer, begin, last, offset) in pieces
    )


class _CoreProgram:
    """Instructions of one core."""

    def __init__(
        self, division: ChainDivision, down: int, across: int, groups: Sequence[ConstantGroup]
    ) -> None:
        self._chain, self._tiling = division.chain, division.tiling
        self._rows, self._layout = division.rows, division.layout
        self._division, self._across = division, across
        self._strips = division.list_strips(down)
        self._groups = groups
        self._is_resident = (
            sum(align_size(group.nbytes) for group in groups) <= division.layout.constant_bytes
        )
        self._found: list[ChainInstruction] = []
        self._loaded: dict[int, tuple[int, int]] = {}
        """Address and end of each group of constants that is in the scratchpad."""
        self._ring = 0
        """Offset of the next group of constants."""
        self._strip = 0
        self._turn = 0
        """Strip or image that the core computes, counted from its first."""
        self._pieces: list[list[tuple[int, list[ConstantPiece]]]] = [
            [
                (number, pieces)
                for number, group in enumerate(groups)
                if (pieces := [piece for piece in group.pieces if piece.layer == position])
            ]
            for position in range(len(self._chain.layers))
        ]
        """For each layer, its groups of constants and its pieces in them."""
        self._views: dict[tuple[int, str], BufferedRows] = {}

    def make_instructions(self) -> list[ChainInstruction]:
        """Return the instructions and barriers of the core in order, without waits."""
        for turn in range(self._tiling.turns):
            self._turn = turn
            self._strip = self._strips[turn]
            self._add_strip()
        return self._found

    def _add_strip(self) -> None:
        chain, keeps = self._chain, self._layout.keeps_padding
        if keeps and self._turn == 0:
            for layer in chain.layers:
                self._add_padding(layer)
        loaded = set()
        for position, layer in enumerate(chain.layers):
            for name in layer.inputs:
                if name in chain.sources and name not in loaded:
                    loaded.add(name)
                    own = self._rows[name].held
                    rows = int(own.begin[self._strip]), int(own.end[self._strip])
                    self._add_load(name, rows, layer.index, is_source=True)
            if not keeps:
                self._add_padding(layer)
            if position in self._tiling.exchanged:
                self._add_exchange(position, layer)
            else:
                self._add_rows(position, layer, self._get_computed(layer.output))
                if is_gathered(chain, self._tiling, layer.output):
                    if self._turn == self._tiling.images - 1:
                        self._add_gathered_store(layer)
                elif layer.output in chain.stored:
                    own = self._rows[layer.output].owned
                    self._add_store(layer, (int(own.begin[self._strip]), int(own.end[self._strip])))

    def _get_computed(self, name: str) -> tuple[int, int]:
        rows = self._rows[name].computed
        assert rows is not None
        return int(rows.begin[self._strip]), int(rows.end[self._strip])

    def _add_exchange(self, position: int, layer: ChainLayer) -> None:
        """Compute rows, store those that other cores need, and load rows of other cores.

        The rows at the edges come first, so that the exchange overlaps the other rows.
        """
        name, begin, end = layer.output, *self._get_computed(layer.output)
        held = self._rows[name].held
        top, bottom = (int(edge[self._strip]) for edge in self._rows[name].find_exchanged_rows())
        edges = [(begin, top), (bottom, end)] if top < bottom else [(begin, end)]
        for rows in edges:
            self._add_rows(position, layer, rows)
        if top < bottom:
            self._add_rows(position, layer, (top, bottom))
        for rows in edges:
            self._add_store(layer, rows)
        self._found.append(ChainInstruction(None, "", {}, (), ()))
        low, high = int(held.begin[self._strip]), int(held.end[self._strip])
        self._add_load(name, (low, begin), layer.index)
        self._add_load(name, (end, high), layer.index)
        if name in self._chain.stored and top < bottom:
            self._add_store(layer, (top, bottom))

    def _view(self, name: str) -> BufferedRows:
        if (self._turn, name) not in self._views:
            self._views[self._turn, name] = self._make_view(name)
        return self._views[self._turn, name]

    def _make_view(self, name: str) -> BufferedRows:
        tensor, own, (first, end) = (
            self._chain.tensors[name],
            self._rows[name],
            self._division.get_channels(name, self._across),
        )
        origin = 0
        if self._tiling.images:
            origin = self._turn * tensor.elements
            tensor = attrs.evolve(tensor, address=tensor.address + origin * tensor.element_bytes)
        start = self._layout.buffers[name][self._turn % len(self._layout.buffers[name])]
        if is_gathered(self._chain, self._tiling, name):
            start += origin * tensor.element_bytes
        run = (end - first) * tensor.element_bytes
        return BufferedRows(
            tensor,
            first,
            run,
            (tensor.columns + own.left + own.right) * run,
            start + own.left * run,
            int(own.held.begin[self._strip] - own.above[self._strip]),
            int(own.held.end[self._strip] + own.below[self._strip]),
            own.left,
            own.right,
            origin,
        )

    def _add_load(
        self, name: str, rows: tuple[int, int], layer: int, *, is_source: bool = False
    ) -> None:
        """Load rows from DRAM, those of a source with its padding."""
        if rows[0] >= rows[1]:
            return
        view = self._view(name)
        words = view.make_box_words(rows) | {"layer": layer}
        span = view.get_span(*rows)
        if is_source and self._rows[name].has_padding:
            own = self._rows[name]
            span = view.get_span(view.begin, view.end, with_padding=True)
            words = view.make_strided_words(rows) | {
                "layer": layer,
                "spm": span[0],
                "pad_x_before": own.left,
                "pad_x_after": own.right,
                "pad_y_before": int(own.above[self._strip]),
                "pad_y_after": int(own.below[self._strip]),
                "element": view.tensor.view.element,
                "fill": view.tensor.view.offset,
            }
        place = self._division.get_place(name, self._turn, in_bytes=True)
        load = ChainInstruction(Unit.LOAD, LOAD, words, (), (span,), is_source, place)
        self._found.append(load)

    def _add_store(self, layer: ChainLayer, rows: tuple[int, int]) -> None:
        if rows[0] < rows[1]:
            view = self._view(layer.output)
            words = view.make_box_words(rows) | {"layer": layer.index}
            span = view.get_span(*rows)
            place = self._division.get_place(layer.output, self._turn, in_bytes=True)
            self._found.append(ChainInstruction(Unit.STORE, STORE, words, (span,), (), place=place))

    def _add_gathered_store(self, layer: ChainLayer) -> None:
        """Store the results of all images of the core."""
        view = self._views[0, layer.output]
        start, nbytes = view.get_address(0), self._tiling.images * view.tensor.nbytes
        words = make_box_words(view.tensor.address, start, nbytes) | {"layer": layer.index}
        span = start, start + nbytes
        self._found.append(ChainInstruction(Unit.STORE, STORE, words, (span,), ()))

    def _add_padding(self, layer: ChainLayer) -> None:
        """Fill the padding of a layer's result with loads that read nothing from DRAM.

        The loads belong to the layer that reads the padding, as in programs without chains.
        """
        own, view = self._rows[layer.output], self._view(layer.output)
        if not own.has_padding:
            return
        readers = (one for one in self._chain.layers if layer.output in one.inputs)
        reader = next(one.index for one in readers if one.is_padded and one.axes is not None)
        low, high = int(own.held.begin[self._strip]), int(own.held.end[self._strip])
        wide = view.left + view.right
        columns = view.tensor.columns + wide
        top = int(own.above[self._strip]) * columns + view.left
        bottom = int(own.below[self._strip]) * columns + view.right
        between = high - low - 1 if wide else 0
        for start, pixels, count in (
            (view.get_address(low) + view.tensor.columns * view.run, wide, between),
            (view.get_address(low) - top * view.run, top, 1),
            (view.get_address(high - 1) + view.tensor.columns * view.run, bottom, 1),
        ):
            if pixels and count:
                words = {
                    "layer": reader,
                    "dram": view.tensor.address,
                    "spm": start,
                    "run_bytes": view.run,
                    "count_y": count,
                    "spm_stride_x": view.run,
                    "spm_stride_y": view.row,
                    "pad_x_before": pixels,
                    "element": view.tensor.view.element,
                    "fill": view.tensor.view.offset,
                }
                span = start, start + (count - 1) * view.row + pixels * view.run
                self._found.append(ChainInstruction(Unit.LOAD, LOAD, words, (), (span,), True))

    def _list_constants(self, position: int, layer: int) -> Iterator[tuple[ConstantPiece, int]]:
        """Yield the pieces of a layer's constants with their addresses; load missing ones."""
        for number, pieces in self._pieces[position]:
            group = self._groups[number]
            if number not in self._loaded:
                size = align_size(group.nbytes)
                if self._ring + size > self._layout.constant_bytes:
                    self._ring = 0
                start = self._layout.constants + self._ring
                self._ring += size
                overwritten = [
                    old
                    for old, (low, high) in self._loaded.items()
                    if low < start + size and start < high
                ]
                for old in overwritten:  # loaded again if it is needed again
                    del self._loaded[old]
                self._loaded[number] = start, start + size
                words = make_box_words(group.address, start, group.nbytes) | {"layer": layer}
                span = start, start + group.nbytes
                place = self._division.count_places() + number
                load = ChainInstruction(Unit.LOAD, LOAD, words, (), (span,), True, place)
                self._found.append(load)
            start = self._loaded[number][0]
            yield from ((piece, start + piece.offset) for piece in pieces)

    def _add_rows(self, position: int, layer: ChainLayer, rows: tuple[int, int]) -> None:
        """Compute rows of a layer's result."""
        if rows[0] >= rows[1]:
            return
        if layer.mnemonic == PAIR:
            self._add_pair(layer, rows)
        elif layer.weighted is None:
            self._add_pool(layer, rows)
        else:
            self._add_weighted(position, layer, rows)

    def _add_weighted(self, position: int, layer: ChainLayer, rows: tuple[int, int]) -> None:
        assert layer.weighted is not None and layer.axes is not None
        source, target = self._view(layer.inputs[0]), self._view(layer.output)
        high, wide = layer.axes
        top = rows[0] * high.stride - high.pad
        start = source.get_address(top) - wide.pad * source.run
        bottom = top + high.count_inputs(rows[1] - rows[0])
        columns = wide.count_inputs(wide.out)
        read = start, source.get_address(bottom - 1) + (columns - wide.pad) * source.run
        wide_bytes = target.tensor.element_bytes
        shared = {
            **layer.words,
            **make_window_words(*layer.axes, "kernel", "stride", "dilation"),
            **self._make_image_words(rows, source, target, 0),
            "layer": layer.index,
        }
        origin, result = shared["event_origin"], target.get_address(rows[0])
        writes = (target.get_span(*rows),)
        for piece, address in self._list_constants(position, layer.index):
            scales, weights = piece.list_offsets(layer.weighted)
            count, skipped = piece.end - piece.begin, piece.begin - target.first
            words = {
                **shared,
                "event_origin": origin + piece.begin,
                "output": result + skipped * wide_bytes,
                "channels": address,
                "scales": address + scales if layer.weighted.scale_bytes else 0,
                "weights": address + weights,
            }
            if layer.mnemonic == CONV:
                words |= {"input": start, "groups": 1, "in_channels": layer.weighted.depth}
                words |= {"out_channels": count, "part": PART_ONLY}
            else:
                offset = (piece.begin - source.first) * wide_bytes
                words |= {"input": start + offset, "channels_count": count}
            end = address + weights + count_weight_bytes(layer, count)
            reads = read, (address, end)
            place = self._division.get_place(layer.output, self._turn)
            self._found.append(
                ChainInstruction(Unit.MAC, layer.mnemonic, words, reads, writes, place=place)
            )

    @staticmethod
    def _make_image_words(
        rows: tuple[int, int], source: BufferedRows, target: BufferedRows, channel: int
    ) -> dict[str, int]:
        """Return the words of the shape, the strides and the position of rows of an image."""
        columns, channels = target.tensor.columns, target.tensor.channels
        return {
            "out_h": rows[1] - rows[0],
            "out_w": columns,
            "in_row_stride": source.row,
            "in_pixel_stride": source.run,
            "out_row_stride": target.row,
            "out_pixel_stride": target.run,
            "event_origin": target.origin + rows[0] * columns * channels + channel,
            "event_stride_y": columns * channels,
            "event_stride_x": channels,
        }

    def _add_pool(self, layer: ChainLayer, rows: tuple[int, int]) -> None:
        assert layer.axes is not None
        source, target = self._view(layer.inputs[0]), self._view(layer.output)
        wide = layer.axes[1]
        first, end, above, _ = (
            int(one[0]) for one in layer.find_input_rows(*np.array(rows).reshape(2, 1))
        )
        words = {
            **layer.words,
            **make_window_words(*layer.axes, "kernel", "stride"),
            **self._make_image_words(rows, source, target, target.first),
            "layer": layer.index,
            "input": source.get_address(first),
            "output": target.get_address(rows[0]),
            "channels": target.run // target.tensor.element_bytes,
            "in_h": end - first,
            "in_w": wide.size,
            "pad_top": above,
            "pad_left": wide.pad,
        }
        if layer.mnemonic != AVERAGE_POOL:
            known = get_word_offsets(layer.mnemonic)
            words = {name: value for name, value in words.items() if name in known}
        self._add_vector(layer, words, [source.get_span(first, end)], target.get_span(*rows))

    def _add_pair(self, layer: ChainLayer, rows: tuple[int, int]) -> None:
        left, right, target = views = [*map(self._view, (*layer.inputs, layer.output))]
        tensor, count = target.tensor, rows[1] - rows[0]
        runs = [view.run for view in views]
        row_elements = tensor.columns * tensor.channels
        is_packed = all(view.row == tensor.columns * view.run for view in views)
        if min(runs) == tensor.pixel_bytes:
            steps, width, stride = [view.row for view in views], row_elements, row_elements
            parts = [(rows[0], 1, count * width) if is_packed else (rows[0], count, width)]
        else:  # each pixel is a row, because channels of other cores follow in the result
            steps, width, stride = runs, target.run // tensor.element_bytes, tensor.channels
            parts = [(row, tensor.columns, width) for row in range(*rows)]
            if is_packed:
                parts = [(rows[0], count * tensor.columns, width)]
        for first, height, columns in parts:
            places = [
                view.get_address(first) + (target.first - view.first) * tensor.element_bytes
                for view in views
            ]
            words = {
                **layer.words,
                "layer": layer.index,
                **dict(zip(("lhs", "rhs", "output"), places, strict=True)),
                "rows": height,
                "columns": columns,
                **dict(zip(("lhs_stride", "rhs_stride", "out_stride"), steps, strict=True)),
                "event_origin": target.origin + first * row_elements + target.first,
                "event_stride_y": stride,
            }
            reads = [left.get_span(*rows), right.get_span(*rows)]
            self._add_vector(layer, words, reads, target.get_span(*rows))

    def _add_vector(
        self, layer: ChainLayer, words: dict[str, Any], reads: Sequence[Span], write: Span
    ) -> None:
        place = self._division.get_place(layer.output, self._turn)
        self._found.append(
            ChainInstruction(
                Unit.VECTOR, layer.mnemonic, words, tuple(reads), (write,), place=place
            )
        )
