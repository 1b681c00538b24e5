"""One core's tiles of a convolution, with their instructions."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import attrs

from nmpsim.compiler.tiling.conv_scheme import Buffers, Scheme
from nmpsim.compiler.tiling.plan import Arena, Command, StridedRuns, TileStep, chunks, load, store
from nmpsim.compiler.tiling.slices import Slice, slices_of, takes_whole_groups
from nmpsim.compiler.tiling.tiles import event_words, output_box, window_words
from nmpsim.compiler.tiling.weighted import Weighted
from nmpsim.compiler.tiling.window import row_tiles
from nmpsim.config import DeviceConfig
from nmpsim.isa.words import (
    CHANNEL_BYTES,
    PART_FIRST,
    PART_LAST,
    PART_MIDDLE,
    PART_ONLY,
    SCALE_BYTES,
)


@attrs.frozen
class Share:
    """What a core computes: output channels, rows over all images, columns."""

    atoms: list[Slice]
    rows: tuple[int, int]
    columns: tuple[int, int]


@attrs.frozen
class Addresses:
    """Where a convolution's operands lie in DRAM."""

    source: int
    target: int
    channels: int
    scales: int | None
    weights: Callable[[Slice, int, int], tuple[int, int]]
    """Address and bytes of the packed weights of a slice and a range of input channels."""


@attrs.frozen
class _Tile:
    piece: Slice
    image: int
    rows: tuple[int, int]
    columns: tuple[int, int]
    part: tuple[int, int]

    @property
    def loaded(self) -> tuple[object, ...]:
        """What its input depends on."""
        return self.image, self.rows, self.columns, self.part, self.piece.first_input


class _Ring:
    """Buffers used in turn; what is asked for again stays where it is."""

    def __init__(self, arena: Arena, sizes: tuple[int, ...], copies: int) -> None:
        self._buffers = [tuple(arena.take(size) for size in sizes) for _ in range(copies)]
        self._turn = -1
        self._holds: object = None

    def hold(self, key: object) -> tuple[tuple[int, ...], bool]:
        """Addresses of what ``key`` names, and whether it has yet to be loaded."""
        is_new = key != self._holds
        if is_new:
            self._turn, self._holds = self._turn + 1, key
        return self._buffers[self._turn % len(self._buffers)], is_new


class ConvCore:
    """One core's buffers and steps."""

    def __init__(
        self,
        layer: Weighted,
        scheme: Scheme,
        buffers: Buffers,
        at: Addresses,
        config: DeviceConfig,
    ) -> None:
        self._layer = layer
        self._scheme = scheme
        self._at = at
        arena = Arena(config)
        copies = buffers.weight_copies
        self._weights = _Ring(arena, (buffers.weights,), copies)
        self._tables = _Ring(arena, (buffers.channels, buffers.scales), copies)
        self._inputs = _Ring(arena, (buffers.input,), buffers.input_copies)
        self._outputs = _Ring(arena, (buffers.output,), buffers.output_copies)
        self._partial = arena.take(buffers.partial)

    def steps(self, share: Share) -> Iterator[TileStep]:
        """Tile by tile, part by part."""
        for tile in self._tiles(share):
            (weights,), new_weights = self._weights.hold((tile.piece.first, tile.part))
            tables, new_tables = self._tables.hold(tile.piece.first)
            (source,), new_input = self._inputs.hold(tile.loaded)
            (target,), _ = self._outputs.hold(
                (tile.piece.first, tile.image, tile.rows, tile.columns)
            )
            loads = self._load_tables(tile.piece, tables) if new_tables else []
            if new_weights:
                address, nbytes = self._at.weights(tile.piece, *tile.part)
                loads.append(load(StridedRuns(address, weights, nbytes)))
            if new_input:
                loads.append(self._load_input(tile, source))
            conv = self._conv(tile, source, weights, tables, target)
            last = tile.part[1] == self._layer.depth
            yield TileStep(tuple(loads), (conv,), (self._store(tile, target),) if last else ())

    def _tiles(self, share: Share) -> Iterator[_Tile]:
        """In the order in which what stays is used as long as possible."""
        layer, scheme = self._layer, self._scheme
        slices = list(slices_of(share.atoms, scheme.atoms, takes_whole_groups(layer)))
        places = [
            (image, (top, bottom), columns)
            for image, top, bottom in row_tiles(*share.rows, layer.rows.out, scheme.rows)
            for columns in chunks(*share.columns, scheme.columns)
        ]
        if scheme.input_stays:
            order = [(piece, place) for place in places for piece in slices]
        else:
            order = [(piece, place) for piece in slices for place in places]
        for piece, place in order:
            for part in chunks(0, layer.depth, scheme.part):
                yield _Tile(piece, *place, part)

    def _load_tables(self, piece: Slice, tables: tuple[int, ...]) -> list[Command]:
        at = self._at
        records = at.channels + piece.first * CHANNEL_BYTES
        loads = [load(StridedRuns(records, tables[0], piece.count * CHANNEL_BYTES))]
        if at.scales is not None:
            records = at.scales + piece.first * SCALE_BYTES
            loads.append(load(StridedRuns(records, tables[1], piece.count * SCALE_BYTES)))
        return loads

    def _run(self, tile: _Tile) -> int:
        """Bytes of a pixel of the input tile."""
        return tile.piece.groups * (tile.part[1] - tile.part[0]) * self._layer.element_bytes

    def _load_input(self, tile: _Tile, spm: int) -> Command:
        layer = self._layer
        rows = layer.rows.need(*tile.rows)
        columns = layer.columns.need(*tile.columns)
        run = self._run(tile)
        pixel = layer.channels * layer.element_bytes
        row = pixel * layer.columns.size
        first = (tile.piece.first_input + tile.part[0]) * layer.element_bytes
        offset = ((tile.image * layer.rows.size + rows.first) * row) + columns.first * pixel + first
        return load(
            StridedRuns(
                self._at.source + offset,
                spm,
                run,
                columns.count,
                rows.count,
                pixel,
                row,
                run,
                run * (columns.before + columns.count + columns.after),
            ),
            pad_x_before=columns.before,
            pad_x_after=columns.after,
            pad_y_before=rows.before,
            pad_y_after=rows.after,
            element=layer.element,
            fill=layer.source.offset,
        )

    def _conv(
        self, tile: _Tile, source: int, weights: int, tables: tuple[int, ...], target: int
    ) -> Command:
        layer, piece = self._layer, tile.piece
        run = self._run(tile)
        out_h, out_w = tile.rows[1] - tile.rows[0], tile.columns[1] - tile.columns[0]
        out_pixel = piece.count * layer.element_bytes
        in_w = layer.columns.extent(out_w)
        first, last = tile.part[0] == 0, tile.part[1] == layer.depth
        part = {(True, True): PART_ONLY, (True, False): PART_FIRST, (False, False): PART_MIDDLE}
        return Command(
            "nmp.conv",
            {
                **layer.words,
                "input": source,
                "weights": weights,
                "channels": tables[0],
                "scales": tables[1] if self._at.scales is not None else 0,
                "output": target,
                "groups": piece.groups,
                "in_channels": tile.part[1] - tile.part[0],
                "out_channels": piece.count,
                **window_words(layer),
                "out_h": out_h,
                "out_w": out_w,
                "in_row_stride": in_w * run,
                "in_pixel_stride": run,
                "out_row_stride": out_w * out_pixel,
                "out_pixel_stride": out_pixel,
                "part": part.get((first, last), PART_LAST),
                "partial": self._partial,
                **event_words(layer, tile.image, tile.rows[0], tile.columns[0], piece.first),
            },
        )

    def _store(self, tile: _Tile, spm: int) -> Command:
        return store(
            output_box(
                self._layer,
                self._at.target,
                spm,
                tile.image,
                tile.rows,
                tile.columns,
                (tile.piece.first, tile.piece.count),
            )
        )
