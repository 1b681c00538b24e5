"""Words of descriptors that convolutions of all kinds share: window, place in the output, store."""

from __future__ import annotations

from nmpsim.compiler.tiling.plan import StridedRuns
from nmpsim.compiler.tiling.weighted import Weighted


def window_words(layer: Weighted) -> dict[str, int]:
    """Kernel, stride and dilation."""
    return {
        "kernel_h": layer.rows.kernel,
        "kernel_w": layer.columns.kernel,
        "stride_h": layer.rows.stride,
        "stride_w": layer.columns.stride,
        "dilation_h": layer.rows.dilation,
        "dilation_w": layer.columns.dilation,
    }


def event_words(layer: Weighted, image: int, row: int, column: int, channel: int) -> dict[str, int]:
    """Where a tile lies in the layer's output."""
    pixel = (image * layer.rows.out + row) * layer.columns.out + column
    return {
        "event_origin": pixel * layer.out_channels + channel,
        "event_stride_y": layer.columns.out * layer.out_channels,
        "event_stride_x": layer.out_channels,
    }


def output_box(
    layer: Weighted,
    target: int,
    spm: int,
    image: int,
    rows: tuple[int, int],
    columns: tuple[int, int],
    channels: tuple[int, int],
) -> StridedRuns:
    """The DRAM box of a tile of results; ``channels`` is (first, count)."""
    wide = layer.element_bytes
    run, stride = channels[1] * wide, layer.out_channels * wide
    width = columns[1] - columns[0]
    pixel = (image * layer.rows.out + rows[0]) * layer.columns.out + columns[0]
    return StridedRuns(
        target + pixel * stride + channels[0] * wide,
        spm,
        run,
        width,
        rows[1] - rows[0],
        stride,
        layer.columns.out * stride,
        run,
        width * run,
    )
