/* A depthwise convolution with double buffering.
 *
 * A tile is one row of the result with up to 64 channels. While the MAC array computes a tile, the
 * DMA loads the input of the next one. There is one image, with symmetric pads.
 */
#include "nmp.h"

enum { BLOCK = 64, TAPS = 49, INPUT_BYTES = 32768, OUTPUT_BYTES = 8192 };

NMP_SCRATCHPAD static int8_t input[2][INPUT_BYTES];
NMP_SCRATCHPAD static int8_t output[2][OUTPUT_BYTES];
NMP_SCRATCHPAD static int16_t weights[TAPS * BLOCK];
NMP_SCRATCHPAD static nmp_channel_record_t channel_records[BLOCK];
NMP_SCRATCHPAD static nmp_scale_record_t scale_records[BLOCK];

static void load_bytes(uint32_t layer, const void *dram, void *spm, uint32_t nbytes)
{
    nmp_load_t load = {
        .layer = layer, .dram = dram, .spm = spm, .run_bytes = nbytes, .count_x = 1, .count_y = 1,
    };
    nmp_load(&load);
}

/* Load the constants of the channels from `first` on, and wait for them. */
static void load_constants(const nmp_dwconv_t *whole, uint32_t first, uint32_t count, uint32_t all)
{
    uint32_t wide = whole->element == NMP_ELEMENT_INT16 ? 2 : 1;
    nmp_load_t taps = {
        .layer = whole->layer,
        .dram = (const int8_t *)whole->weights + first * wide,
        .spm = weights,
        .run_bytes = count * wide,
        .count_x = whole->kernel_h * whole->kernel_w,
        .count_y = 1,
        .dram_stride_x = all * wide,
        .spm_stride_x = count * wide,
    };
    const nmp_channel_record_t *records = whole->channels;
    const nmp_scale_record_t *scales = whole->scales;

    nmp_load(&taps);
    load_bytes(whole->layer, &records[first], channel_records, count * sizeof *records);
    if (scales)
        load_bytes(whole->layer, &scales[first], scale_records, count * sizeof *scales);
    nmp_wait(NMP_LOAD, 0);
}

/* Load the input of a row of the result, with padding. */
static void load_row(const nmp_dwconv_t *tile, const nmp_tensor_t *x, const nmp_tensor_t *y,
                     uint32_t row, uint32_t channel, int8_t *spm)
{
    int32_t high = (tile->kernel_h - 1) * tile->dilation_h + 1;
    int32_t wide = (tile->kernel_w - 1) * tile->dilation_w + 1;
    int32_t height = x->size_1, width = x->size_2;
    int32_t down = (y->size_1 - 1) * tile->stride_h + high - height;
    int32_t across = (y->size_2 - 1) * tile->stride_w + wide - width;
    int32_t top = (int32_t)(row * tile->stride_h) - (down > 0 ? down / 2 : 0);
    int32_t left = across > 0 ? across / 2 : 0;
    int32_t begin = top > 0 ? top : 0, end = top + high < height ? top + high : height;
    int32_t columns = (y->size_2 - 1) * tile->stride_w + wide;
    nmp_load_t load = {
        .layer = tile->layer,
        .dram = (int8_t *)x->data + begin * x->stride_1 + channel * x->stride_3,
        .spm = spm,
        .run_bytes = tile->in_pixel_stride,
        .count_x = columns - left < width ? columns - left : width,
        .count_y = end - begin,
        .dram_stride_x = x->stride_2,
        .dram_stride_y = x->stride_1,
        .spm_stride_x = tile->in_pixel_stride,
        .spm_stride_y = tile->in_row_stride,
        .pad_x_before = left,
        .pad_x_after = columns - left > width ? columns - left - width : 0,
        .pad_y_before = begin - top,
        .pad_y_after = top + high - end,
        .element = tile->element,
        .fill = x->offset,
    };
    nmp_load(&load);
}

static void store_row(const nmp_dwconv_t *tile, const nmp_tensor_t *y, uint32_t row,
                      uint32_t channel)
{
    nmp_store_t store = {
        .layer = tile->layer,
        .dram = (int8_t *)y->data + row * y->stride_1 + channel * y->stride_3,
        .spm = tile->output,
        .run_bytes = tile->out_pixel_stride,
        .count_x = y->size_2,
        .count_y = 1,
        .dram_stride_x = y->stride_2,
        .spm_stride_x = tile->out_pixel_stride,
    };
    nmp_store(&store);
}

/* Compute the rows from `begin` to `end` of a block of channels. */
static void compute_rows(const nmp_layer_t *layer, uint32_t channel, uint32_t begin, uint32_t end)
{
    const nmp_tensor_t *tensors = layer->tensors, *y = &tensors[0], *x = &tensors[1];
    const nmp_dwconv_t *whole = layer->descriptor;
    uint32_t count = y->size_3 - channel < BLOCK ? y->size_3 - channel : BLOCK;
    uint32_t wide = (whole->kernel_w - 1) * whole->dilation_w + 1;
    uint32_t columns = (y->size_2 - 1) * whole->stride_w + wide;
    nmp_dwconv_t tile = *whole; /* profile, scales and zero points */

    tile.weights = weights;
    tile.channels = channel_records;
    tile.scales = whole->scales ? scale_records : 0;
    tile.channels_count = count;
    tile.out_h = 1;
    tile.out_w = y->size_2;
    tile.in_pixel_stride = tile.out_pixel_stride = count * y->stride_3;
    tile.in_row_stride = columns * tile.in_pixel_stride;
    tile.out_row_stride = y->size_2 * tile.out_pixel_stride;
    tile.event_stride_x = y->size_3;
    tile.event_stride_y = y->size_2 * y->size_3;
    if (tile.in_row_stride * ((whole->kernel_h - 1) * whole->dilation_h + 1) > INPUT_BYTES
        || tile.out_row_stride > OUTPUT_BYTES || y->size_0 != 1
        || whole->kernel_h * whole->kernel_w > TAPS)
        __builtin_trap();

    load_constants(whole, channel, count, y->size_3);
    load_row(&tile, x, y, begin, channel, input[begin & 1]);
    for (uint32_t row = begin; row < end; row++) {
        if (row + 1 < end) {
            load_row(&tile, x, y, row + 1, channel, input[(row + 1) & 1]);
            nmp_wait(NMP_LOAD, 1);
        } else {
            nmp_wait(NMP_LOAD, 0);
        }
        nmp_wait(NMP_STORE, 1); /* the store of the result before the last one */
        tile.input = input[row & 1];
        tile.output = output[row & 1];
        tile.event_origin = row * tile.event_stride_y + channel;
        nmp_dwconv(&tile);
        nmp_wait(NMP_MAC, 0);
        store_row(&tile, y, row, channel);
    }
    nmp_wait(NMP_STORE, 0);
}

NMP_KERNEL void depthwise(const nmp_layer_t *layer, uint32_t core, uint32_t cores)
{
    const nmp_tensor_t *y = layer->tensors;
    uint32_t rows = y->size_1, tiles = (y->size_3 + BLOCK - 1) / BLOCK * rows;
    uint32_t tile = tiles * core / cores, last = tiles * (core + 1) / cores;

    while (tile < last) {
        uint32_t block = tile / rows, begin = tile % rows;
        uint32_t end = last - tile < rows - begin ? begin + last - tile : rows;
        compute_rows(layer, block * BLOCK, begin, end);
        tile += end - begin;
    }
}
