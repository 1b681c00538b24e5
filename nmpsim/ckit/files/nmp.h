/* C interface of the NMP: instructions, descriptors, registers of the host and counters.
 *
 * Generated from the tables of nmpsim/isa/ by `python -m nmpsim.ckit.generate`.
 * docs/isa.md describes instructions and words of descriptors; docs/c.md describes this kit.
 */
#ifndef NMP_H
#define NMP_H

#include <stdint.h>

/* --- address map -------------------------------------------------------------------------- */

#define NMP_CONTROL_BASE 0x10000000u
#define NMP_HOST_CONSOLE 0x10001000u
#define NMP_HOST_EXIT 0x10001004u
#define NMP_SCRATCHPAD_BASE 0x20000000u
#define NMP_DRAM_BASE 0x80000000u
#define NMP_CONTROL_BYTES 4096u
#define NMP_SEMAPHORES 64u

#ifdef __cplusplus
#define _NMP_STATIC_ASSERT(condition) static_assert(condition, #condition)
#else
#define _NMP_STATIC_ASSERT(condition) _Static_assert(condition, #condition)
#endif

/* Place an uninitialized variable in the scratchpad: each core has its own. */
#define NMP_SCRATCHPAD __attribute__((section(".bss.scratchpad"), aligned(16)))

/* Function that computes a layer of a network, for `nmpsim compile --kernel` (docs/c.md):
 * NMP_KERNEL void name(const nmp_layer_t *layer, uint32_t core, uint32_t cores)
 */
#ifdef __cplusplus
#define NMP_KERNEL extern "C" __attribute__((section(".text.kernel"), used))
#else
#define NMP_KERNEL __attribute__((section(".text.kernel"), used))
#endif

/* --- values of enumerated words ------------------------------------------------------------ */

enum {
    NMP_ELEMENT_INT8 = 0,
    NMP_ELEMENT_INT16 = 1,
};
enum {
    NMP_PROFILE_GLOW_INT = 0,
    NMP_PROFILE_GLOW_FLOAT = 1,
    NMP_PROFILE_GLOW_FLOAT_LATE = 2,
    NMP_PROFILE_NMP = 3,
    NMP_PROFILE_Q31 = 4,
    NMP_PROFILE_FLOAT = 5,
    NMP_PROFILE_FBGEMM = 6,
    NMP_PROFILE_ONEDNN = 7,
    NMP_PROFILE_QNNPACK = 8,
    NMP_PROFILE_Q31_ONCE = 9,
    NMP_PROFILE_ONNX = 10,
};
enum {
    NMP_PART_ONLY = 0,
    NMP_PART_FIRST = 1,
    NMP_PART_MIDDLE = 2,
    NMP_PART_LAST = 3,
};
enum {
    NMP_ACTIVATION_NONE = 0,
    NMP_ACTIVATION_LEAKY = 1,
};
enum {
    NMP_DIVIDE_NOTHING = 0,
    NMP_DIVIDE_BY_VALID_TAPS = 1,
};
enum {
    NMP_OPERATION_ADD = 0,
    NMP_OPERATION_SUB = 1,
    NMP_OPERATION_MAX = 2,
    NMP_OPERATION_MIN = 3,
    NMP_OPERATION_MUL = 4,
};
enum {
    NMP_RHS_KIND_ELEMENT = 0,
    NMP_RHS_KIND_INT32 = 1,
};
enum {
    NMP_TYPE_INT8 = 0,
    NMP_TYPE_INT16 = 1,
    NMP_TYPE_INT32 = 2,
    NMP_TYPE_INT64 = 3,
    NMP_TYPE_FLOAT32 = 4,
    NMP_TYPE_OTHER = 5,
};
/* Units, for nmp_wait(). */
enum {
    NMP_LOAD = 0,
    NMP_STORE = 1,
    NMP_MAC = 2,
    NMP_VECTOR = 3,
};

/* --- descriptors and records -----------------------------------------------------------------
 * An address is 4 bytes; the comment has the valid values of the word.
 */

/* Bias and zero term of one output channel; aligned to 8 bytes. */
typedef struct {
    uint32_t bias_low; /* bias minus its zero point, 64 bits (fbgemm, onednn: a float64) */
    int32_t bias_high; /* upper half of this value */
    uint32_t zero_term_low; /* K*Ow*Ox - Ox*sum(w): the contribution of the input's zero point, 64 bits */
    int32_t zero_term_high; /* upper half of this value */
} nmp_channel_record_t;
_NMP_STATIC_ASSERT(sizeof(nmp_channel_record_t) == 16);

/* Scales of one output channel, used if channels have different scales. */
typedef struct {
    int32_t weight_offset; /* zero point of the weights; a value of the element */
    uint32_t bias_pre; /* bias to accumulator: shift before the product (q31: to the left) */
    int32_t bias_mul; /* bias to accumulator: factor (float profiles: float32) */
    uint32_t bias_post; /* bias to accumulator: shift after the product, rounding */
    uint32_t out_pre; /* accumulator to result: shift before the product (q31: to the left) */
    int32_t out_mul; /* accumulator to result: factor (float profiles: float32) */
    uint32_t out_post; /* accumulator to result: shift after the product, rounding */
} nmp_scale_record_t;
_NMP_STATIC_ASSERT(sizeof(nmp_scale_record_t) == 28);

/* The scratchpad address is that of the first padding byte. */
typedef struct {
    uint32_t layer; /* number of the layer that this work counts for */
    const void *dram; /* DRAM side */
    void *spm; /* scratchpad side; even for Int16 */
    uint32_t run_bytes; /* bytes of one run (contiguous on both sides); 0 to 2^26, even for Int16 */
    uint32_t count_x; /* runs in a row; 0 to 2^26 */
    uint32_t count_y; /* rows; 0 to 2^26 */
    uint32_t dram_stride_x; /* bytes from run to run in DRAM; 0 to 2^31 */
    uint32_t dram_stride_y; /* bytes from row to row in DRAM; 0 to 2^31 */
    uint32_t spm_stride_x; /* bytes from run to run in the scratchpad; 0 to 2^26, even for Int16 */
    uint32_t spm_stride_y; /* bytes from row to row in the scratchpad; 0 to 2^26, even for Int16 */
    uint32_t pad_x_before; /* runs of padding before each row; 0 to 2^26 */
    uint32_t pad_x_after; /* runs of padding after each row; 0 to 2^26 */
    uint32_t pad_y_before; /* rows of padding before the box; 0 to 2^26 */
    uint32_t pad_y_after; /* rows of padding after the box; 0 to 2^26 */
    uint32_t element; /* element type of the padding */
    int32_t fill; /* value that padding is filled with; a value of the element */
} nmp_load_t;
_NMP_STATIC_ASSERT(sizeof(nmp_load_t) == 64);

/* The reverse of a load, without padding. */
typedef struct {
    uint32_t layer; /* number of the layer that this work counts for */
    void *dram; /* DRAM side */
    const void *spm; /* scratchpad side */
    uint32_t run_bytes; /* bytes of one run (contiguous on both sides); 0 to 2^26 */
    uint32_t count_x; /* runs in a row; 0 to 2^26 */
    uint32_t count_y; /* rows; 0 to 2^26 */
    uint32_t dram_stride_x; /* bytes from run to run in DRAM; 0 to 2^31 */
    uint32_t dram_stride_y; /* bytes from row to row in DRAM; 0 to 2^31 */
    uint32_t spm_stride_x; /* bytes from run to run in the scratchpad; 0 to 2^26 */
    uint32_t spm_stride_y; /* bytes from row to row in the scratchpad; 0 to 2^26 */
} nmp_store_t;
_NMP_STATIC_ASSERT(sizeof(nmp_store_t) == 40);

/* A fully connected layer is a convolution of one row with a 1x1 window. */
typedef struct {
    uint32_t layer; /* number of the layer that this work counts for */
    uint32_t element; /* type of input, weights and result */
    uint32_t profile; /* arithmetic of the result; glow_int, glow_float, glow_float_late, nmp, q31, float, fbgemm, onednn, q31_once */
    const void *input; /* [rows][columns][groups*in_channels], padding included; even for Int16 */
    const void *weights; /* [out/16][ky][(kx*in)/4][16][4], for Int16 [out/16][ky][(kx*in)/2][16][2]; bytes beyond the edges are reserved; even for Int16 */
    const void *channels; /* a channel record for each output channel; a multiple of 8 */
    const void *scales; /* a scale record for each output channel; 0: the words below apply to all channels; a multiple of 4, or 0 */
    void *output; /* [out_h][out_w][out_channels]; even for Int16 */
    uint32_t groups; /* independent groups of channels; 1 to 2^20 */
    uint32_t in_channels; /* input channels of one group; 1 to 2^20 */
    uint32_t out_channels; /* output channels of all groups, a multiple of `groups`; 1 to 2^20 */
    uint32_t kernel_h; /* rows of the window; 1 to 2^20 */
    uint32_t kernel_w; /* columns of the window; 1 to 2^20 */
    uint32_t stride_h; /* rows from window to window; 1 to 2^20 */
    uint32_t stride_w; /* columns from window to window; 1 to 2^20 */
    uint32_t dilation_h; /* rows from tap to tap; 1 to 2^20 */
    uint32_t dilation_w; /* columns from tap to tap; 1 to 2^20 */
    uint32_t out_h; /* rows of the result; 1 to 2^20 */
    uint32_t out_w; /* columns of the result; 1 to 2^20 */
    uint32_t in_row_stride; /* bytes from row to row of the input; 0 to 2^26, even for Int16 */
    uint32_t in_pixel_stride; /* bytes from pixel to pixel of the input; 0 to 2^26, even for Int16 */
    uint32_t out_row_stride; /* bytes from row to row of the result; 0 to 2^26, even for Int16 */
    uint32_t out_pixel_stride; /* bytes from pixel to pixel of the result; 0 to 2^26, even for Int16 */
    uint32_t part; /* position in a sum over several instructions */
    void *partial; /* running sums, int32 (int64 for Int16) [out_h][out_w][out_channels], unless part is only; a multiple of 4, for Int16 of 8 */
    int32_t weight_offset; /* zero point of the weights; a value of the element */
    uint32_t bias_pre; /* bias to accumulator: shift before the product (q31: to the left) */
    int32_t bias_mul; /* bias to accumulator: factor (float profiles: float32) */
    uint32_t bias_post; /* bias to accumulator: shift after the product, rounding */
    uint32_t out_pre; /* accumulator to result: shift before the product (q31: to the left) */
    int32_t out_mul; /* accumulator to result: factor (float profiles: float32) */
    uint32_t out_post; /* accumulator to result: shift after the product, rounding */
    uint32_t result_scale; /* float32: scale of the result or its reciprocal, if the profile uses it */
    int32_t out_offset; /* zero point of the result */
    uint32_t activation; /* applied before the clip */
    uint32_t leaky_pre; /* factor of a result below its zero point, if leaky: shift before the product (q31: to the left) */
    int32_t leaky_mul; /* factor of a result below its zero point, if leaky: factor (float profiles: float32) */
    uint32_t leaky_post; /* factor of a result below its zero point, if leaky: shift after the product, rounding */
    int32_t clip_low; /* lowest result; a value of the element */
    int32_t clip_high; /* highest result; not less than `clip_low`; a value of the element */
    uint32_t clip_wanted; /* bit 0: the lower clip is an activation; bit 1: the upper clip is an activation; 0 to 3 */
    uint32_t event_origin; /* index of the first result in the layer's output, row-major */
    uint32_t event_stride_y; /* step of that index from row to row */
    uint32_t event_stride_x; /* step of that index from pixel to pixel */
} nmp_conv_t;
_NMP_STATIC_ASSERT(sizeof(nmp_conv_t) == 176);

/* Each channel is convolved with its own window. */
typedef struct {
    uint32_t layer; /* number of the layer that this work counts for */
    uint32_t element; /* type of input, weights and result */
    uint32_t profile; /* arithmetic of the result; glow_int, glow_float, glow_float_late, nmp, q31, float, fbgemm, onednn, q31_once */
    const void *input; /* [rows][columns][channels], padding included; even for Int16 */
    const void *weights; /* [ky][kx][channels]; even for Int16 */
    const void *channels; /* a channel record for each output channel; a multiple of 8 */
    const void *scales; /* a scale record for each output channel; 0: the words below apply to all channels; a multiple of 4, or 0 */
    void *output; /* [out_h][out_w][channels]; even for Int16 */
    uint32_t channels_count; /* channels of input, weights and result; 1 to 2^20 */
    uint32_t kernel_h; /* rows of the window; 1 to 2^20 */
    uint32_t kernel_w; /* columns of the window; 1 to 2^20 */
    uint32_t stride_h; /* rows from window to window; 1 to 2^20 */
    uint32_t stride_w; /* columns from window to window; 1 to 2^20 */
    uint32_t dilation_h; /* rows from tap to tap; 1 to 2^20 */
    uint32_t dilation_w; /* columns from tap to tap; 1 to 2^20 */
    uint32_t out_h; /* rows of the result; 1 to 2^20 */
    uint32_t out_w; /* columns of the result; 1 to 2^20 */
    uint32_t in_row_stride; /* bytes from row to row of the input; 0 to 2^26, even for Int16 */
    uint32_t in_pixel_stride; /* bytes from pixel to pixel of the input; 0 to 2^26, even for Int16 */
    uint32_t out_row_stride; /* bytes from row to row of the result; 0 to 2^26, even for Int16 */
    uint32_t out_pixel_stride; /* bytes from pixel to pixel of the result; 0 to 2^26, even for Int16 */
    int32_t weight_offset; /* zero point of the weights; a value of the element */
    uint32_t bias_pre; /* bias to accumulator: shift before the product (q31: to the left) */
    int32_t bias_mul; /* bias to accumulator: factor (float profiles: float32) */
    uint32_t bias_post; /* bias to accumulator: shift after the product, rounding */
    uint32_t out_pre; /* accumulator to result: shift before the product (q31: to the left) */
    int32_t out_mul; /* accumulator to result: factor (float profiles: float32) */
    uint32_t out_post; /* accumulator to result: shift after the product, rounding */
    uint32_t result_scale; /* float32: scale of the result or its reciprocal, if the profile uses it */
    int32_t out_offset; /* zero point of the result */
    uint32_t activation; /* applied before the clip */
    uint32_t leaky_pre; /* factor of a result below its zero point, if leaky: shift before the product (q31: to the left) */
    int32_t leaky_mul; /* factor of a result below its zero point, if leaky: factor (float profiles: float32) */
    uint32_t leaky_post; /* factor of a result below its zero point, if leaky: shift after the product, rounding */
    int32_t clip_low; /* lowest result; a value of the element */
    int32_t clip_high; /* highest result; not less than `clip_low`; a value of the element */
    uint32_t clip_wanted; /* bit 0: the lower clip is an activation; bit 1: the upper clip is an activation; 0 to 3 */
    uint32_t event_origin; /* index of the first result in the layer's output, row-major */
    uint32_t event_stride_y; /* step of that index from row to row */
    uint32_t event_stride_x; /* step of that index from pixel to pixel */
} nmp_dwconv_t;
_NMP_STATIC_ASSERT(sizeof(nmp_dwconv_t) == 160);

/* result = scale(sum of (lhs - offset) * (rhs - offset)) + out_offset, clipped. */
typedef struct {
    uint32_t layer; /* number of the layer that this work counts for */
    uint32_t element; /* type of both operands and the result */
    uint32_t profile; /* arithmetic of the result; glow_int, glow_float, glow_float_late, nmp, q31, float, q31_once */
    const void *lhs; /* [rows][inner]; even for Int16 */
    const void *rhs; /* [inner][columns]; even for Int16 */
    void *output; /* [rows][columns]; even for Int16 */
    uint32_t rows; /* rows of lhs and result; 1 to 2^26 */
    uint32_t inner; /* columns of lhs, rows of rhs; 1 to 2^26 */
    uint32_t columns; /* columns of rhs and result; 1 to 2^26 */
    uint32_t lhs_stride; /* bytes from row to row of lhs; 0 to 2^26, even for Int16 */
    uint32_t rhs_stride; /* bytes from row to row of rhs; 0 to 2^26, even for Int16 */
    uint32_t out_stride; /* bytes from row to row of the result; 0 to 2^26, even for Int16 */
    uint32_t part; /* position in a sum over several instructions */
    void *partial; /* running sums, int32 (int64 for Int16) [rows][columns], unless part is only; a multiple of 4, for Int16 of 8 */
    int32_t lhs_offset; /* zero point of lhs; a value of the element */
    int32_t rhs_offset; /* zero point of rhs; a value of the element */
    uint32_t out_pre; /* accumulator to result: shift before the product (q31: to the left) */
    int32_t out_mul; /* accumulator to result: factor (float profiles: float32) */
    uint32_t out_post; /* accumulator to result: shift after the product, rounding */
    uint32_t result_scale; /* float32: scale of the result or its reciprocal, if the profile uses it */
    int32_t out_offset; /* zero point of the result */
    int32_t clip_low; /* lowest result; a value of the element */
    int32_t clip_high; /* highest result; not less than `clip_low`; a value of the element */
    uint32_t clip_wanted; /* bit 0: the lower clip is an activation; bit 1: the upper clip is an activation; 0 to 3 */
    uint32_t event_origin; /* index of the first result in the layer's output, row-major */
    uint32_t event_stride_y; /* step of that index from row to row */
} nmp_gemm_t;
_NMP_STATIC_ASSERT(sizeof(nmp_gemm_t) == 104);

/* The maximum ignores padding. */
typedef struct {
    uint32_t layer; /* number of the layer that this work counts for */
    uint32_t element; /* type of input and result */
    const void *input; /* [in_h][in_w][channels], without padding; even for Int16 */
    void *output; /* [out_h][out_w][channels]; even for Int16 */
    uint32_t channels; /* channels; 1 to 2^26 */
    uint32_t in_h; /* rows of the input; 0 to 2^26 */
    uint32_t in_w; /* columns of the input; 0 to 2^26 */
    uint32_t kernel_h; /* rows of the window; 1 to 2^20 */
    uint32_t kernel_w; /* columns of the window; 1 to 2^20 */
    uint32_t stride_h; /* rows from window to window; 1 to 2^20 */
    uint32_t stride_w; /* columns from window to window; 1 to 2^20 */
    int32_t pad_top; /* rows of the first window above the first existing row; -2^26 to 2^26 */
    int32_t pad_left; /* columns of the first window left of the first existing one; -2^26 to 2^26 */
    uint32_t out_h; /* rows of the result; 1 to 2^20 */
    uint32_t out_w; /* columns of the result; 1 to 2^20 */
    uint32_t in_row_stride; /* bytes from row to row of the input; 0 to 2^26, even for Int16 */
    uint32_t in_pixel_stride; /* bytes from pixel to pixel of the input; 0 to 2^26, even for Int16 */
    uint32_t out_row_stride; /* bytes from row to row of the result; 0 to 2^26, even for Int16 */
    uint32_t out_pixel_stride; /* bytes from pixel to pixel of the result; 0 to 2^26, even for Int16 */
    int32_t empty_value; /* result of a window that lies only in padding; a value of the element */
} nmp_maxpool_t;
_NMP_STATIC_ASSERT(sizeof(nmp_maxpool_t) == 80);

/* Sum of (x - in_offset) over existing taps, scaled and divided according to `divide`. */
typedef struct {
    uint32_t layer; /* number of the layer that this work counts for */
    uint32_t element; /* type of input and result */
    const void *input; /* [in_h][in_w][channels], without padding; even for Int16 */
    void *output; /* [out_h][out_w][channels]; even for Int16 */
    uint32_t channels; /* channels; 1 to 2^26 */
    uint32_t in_h; /* rows of the input; 0 to 2^26 */
    uint32_t in_w; /* columns of the input; 0 to 2^26 */
    uint32_t kernel_h; /* rows of the window; 1 to 2^20 */
    uint32_t kernel_w; /* columns of the window; 1 to 2^20 */
    uint32_t stride_h; /* rows from window to window; 1 to 2^20 */
    uint32_t stride_w; /* columns from window to window; 1 to 2^20 */
    int32_t pad_top; /* rows of the first window above the first existing row; -2^26 to 2^26 */
    int32_t pad_left; /* columns of the first window left of the first existing one; -2^26 to 2^26 */
    uint32_t out_h; /* rows of the result; 1 to 2^20 */
    uint32_t out_w; /* columns of the result; 1 to 2^20 */
    uint32_t in_row_stride; /* bytes from row to row of the input; 0 to 2^26, even for Int16 */
    uint32_t in_pixel_stride; /* bytes from pixel to pixel of the input; 0 to 2^26, even for Int16 */
    uint32_t out_row_stride; /* bytes from row to row of the result; 0 to 2^26, even for Int16 */
    uint32_t out_pixel_stride; /* bytes from pixel to pixel of the result; 0 to 2^26, even for Int16 */
    uint32_t profile; /* arithmetic of the result; glow_int, glow_float, nmp, q31, float, fbgemm, onnx */
    int32_t in_offset; /* zero point of the input; a value of the element */
    uint32_t divide; /* what the sum is divided by */
    uint32_t out_pre; /* sum to result: shift before the product (q31: to the left) */
    int32_t out_mul; /* sum to result: factor (float profiles: float32) */
    uint32_t out_post; /* sum to result: shift after the product, rounding */
    uint32_t result_scale; /* float32: scale of the result or its reciprocal, if the profile uses it */
    int32_t out_offset; /* zero point of the result */
    int32_t clip_low; /* lowest result; a value of the element */
    int32_t clip_high; /* highest result; not less than `clip_low`; a value of the element */
    uint32_t clip_wanted; /* bit 0: the lower clip is an activation; bit 1: the upper clip is an activation; 0 to 3 */
    uint32_t event_origin; /* index of the first result in the layer's output, row-major */
    uint32_t event_stride_y; /* step of that index from row to row */
    uint32_t event_stride_x; /* step of that index from pixel to pixel */
} nmp_avgpool_t;
_NMP_STATIC_ASSERT(sizeof(nmp_avgpool_t) == 132);

/* Both operands are rescaled to the result's scale and rounded before the operation. */
typedef struct {
    uint32_t layer; /* number of the layer that this work counts for */
    uint32_t element; /* type of lhs and result */
    uint32_t profile; /* arithmetic of the result; glow_int, glow_float, nmp, q31, float, qnnpack, onnx */
    uint32_t operation; /* operation */
    const void *lhs; /* [rows][columns]; even for Int16 */
    const void *rhs; /* [rows][columns]; even for Int16, a multiple of 4 for int32 */
    void *output; /* [rows][columns]; even for Int16 */
    uint32_t rhs_kind; /* what rhs is */
    uint32_t rows; /* rows; 1 to 2^26 */
    uint32_t columns; /* elements of a row; 1 to 2^26 */
    uint32_t lhs_stride; /* bytes from row to row of lhs; 0 to 2^26, even for Int16 */
    uint32_t rhs_stride; /* bytes from row to row of rhs, of int32 a multiple of 4; 0 repeats one row; 0 to 2^26, even for Int16 */
    uint32_t out_stride; /* bytes from row to row of the result; 0 to 2^26, even for Int16 */
    int32_t lhs_offset; /* zero point of lhs; a value of the element */
    int32_t rhs_offset; /* zero point of rhs */
    uint32_t lhs_pre; /* lhs to result (not for mul): shift before the product (q31: to the left) */
    int32_t lhs_mul; /* lhs to result (not for mul): factor (float profiles: float32) */
    uint32_t lhs_post; /* lhs to result (not for mul): shift after the product, rounding */
    uint32_t rhs_pre; /* rhs to result (not for mul): shift before the product (q31: to the left) */
    int32_t rhs_mul; /* rhs to result (not for mul): factor (float profiles: float32) */
    uint32_t rhs_post; /* rhs to result (not for mul): shift after the product, rounding */
    uint32_t out_pre; /* product (or sum, if the profile rescales it) to result: shift before the product (q31: to the left) */
    int32_t out_mul; /* product (or sum, if the profile rescales it) to result: factor (float profiles: float32) */
    uint32_t out_post; /* product (or sum, if the profile rescales it) to result: shift after the product, rounding */
    uint32_t result_scale; /* float32: scale of the result or its reciprocal, if the profile uses it */
    int32_t out_offset; /* zero point of the result */
    int32_t clip_low; /* lowest result; a value of the element */
    int32_t clip_high; /* highest result; not less than `clip_low`; a value of the element */
    uint32_t clip_wanted; /* bit 0: the lower clip is an activation; bit 1: the upper clip is an activation; 0 to 3 */
    uint32_t event_origin; /* index of the first result in the layer's output, row-major */
    uint32_t event_stride_y; /* step of that index from row to row */
} nmp_eltwise_t;
_NMP_STATIC_ASSERT(sizeof(nmp_eltwise_t) == 124);

/* relu, clip, leaky relu, max with a constant and plain rescaling. */
typedef struct {
    uint32_t layer; /* number of the layer that this work counts for */
    uint32_t element; /* type of input and result */
    uint32_t profile; /* arithmetic of the result; glow_int, glow_float, nmp, q31, float */
    const void *input; /* [count]; even for Int16 */
    void *output; /* [count]; even for Int16 */
    uint32_t count; /* elements; 1 to 2^26 */
    int32_t in_low; /* the input is clamped to at least this; a value of the element */
    int32_t in_high; /* the input is clamped to at most this; not less than `in_low`; a value of the element */
    int32_t in_offset; /* zero point of the input; a value of the element */
    uint32_t out_pre; /* input to result: shift before the product (q31: to the left) */
    int32_t out_mul; /* input to result: factor (float profiles: float32) */
    uint32_t out_post; /* input to result: shift after the product, rounding */
    uint32_t activation; /* whether inputs below the zero point have the leaky scale */
    uint32_t leaky_pre; /* input below its zero point to result, if leaky: shift before the product (q31: to the left) */
    int32_t leaky_mul; /* input below its zero point to result, if leaky: factor (float profiles: float32) */
    uint32_t leaky_post; /* input below its zero point to result, if leaky: shift after the product, rounding */
    uint32_t result_scale; /* float32: scale of the result or its reciprocal, if the profile uses it */
    int32_t out_offset; /* zero point of the result */
    int32_t clip_low; /* lowest result; a value of the element */
    int32_t clip_high; /* highest result; not less than `clip_low`; a value of the element */
    uint32_t clip_wanted; /* bit 0: the lower clip is an activation; bit 1: the upper clip is an activation; 0 to 3 */
    uint32_t event_origin; /* index of the first result in the layer's output, row-major */
} nmp_rescale_t;
_NMP_STATIC_ASSERT(sizeof(nmp_rescale_t) == 88);

/* result = table[x + 128]. */
typedef struct {
    uint32_t layer; /* number of the layer that this work counts for */
    const void *input; /* int8 [count] */
    void *output; /* int8 [count] */
    const void *table; /* int8 [256], the entry of -128 first */
    uint32_t count; /* elements; 1 to 2^26 */
} nmp_lut_t;
_NMP_STATIC_ASSERT(sizeof(nmp_lut_t) == 20);

/* Every element is set to the value. */
typedef struct {
    uint32_t layer; /* number of the layer that this work counts for */
    uint32_t element; /* type of the result */
    void *output; /* [count]; even for Int16 */
    uint32_t count; /* elements; 1 to 2^26 */
    int32_t value; /* the value; a value of the element */
} nmp_fill_t;
_NMP_STATIC_ASSERT(sizeof(nmp_fill_t) == 20);

/* Strides define any order of up to four dimensions. */
typedef struct {
    uint32_t layer; /* number of the layer that this work counts for */
    const void *input; /* elements */
    void *output; /* elements */
    uint32_t element_bytes; /* bytes of an element; 1, 2, 4, 8 */
    uint32_t size_0; /* elements along dimension 0; 1 to 2^26 */
    uint32_t size_1; /* elements along dimension 1; 1 to 2^26 */
    uint32_t size_2; /* elements along dimension 2; 1 to 2^26 */
    uint32_t size_3; /* elements along dimension 3; 1 to 2^26 */
    uint32_t in_stride_0; /* bytes from one input element to the next along dimension 0; 0 to 2^26 */
    uint32_t in_stride_1; /* bytes from one input element to the next along dimension 1; 0 to 2^26 */
    uint32_t in_stride_2; /* bytes from one input element to the next along dimension 2; 0 to 2^26 */
    uint32_t in_stride_3; /* bytes from one input element to the next along dimension 3; 0 to 2^26 */
    uint32_t out_stride_0; /* bytes from one result element to the next along dimension 0; 0 to 2^26 */
    uint32_t out_stride_1; /* bytes from one result element to the next along dimension 1; 0 to 2^26 */
    uint32_t out_stride_2; /* bytes from one result element to the next along dimension 2; 0 to 2^26 */
    uint32_t out_stride_3; /* bytes from one result element to the next along dimension 3; 0 to 2^26 */
} nmp_transpose_t;
_NMP_STATIC_ASSERT(sizeof(nmp_transpose_t) == 64);

/* Row-major tensor in DRAM with four dimensions: the missing first ones are 1. */
typedef struct {
    void *data; /* address of the first element */
    uint32_t type; /* type of the elements; int8 and int16 as in the word element */
    uint32_t size_0; /* number of images, or the product of all dimensions but the last three */
    uint32_t size_1; /* number of rows */
    uint32_t size_2; /* number of columns */
    uint32_t size_3; /* number of channels */
    uint32_t stride_0; /* bytes from image to image */
    uint32_t stride_1; /* bytes from row to row */
    uint32_t stride_2; /* bytes from pixel to pixel */
    uint32_t stride_3; /* bytes of an element */
    uint32_t scale; /* float32: scale; 0 if the tensor is not quantized */
    int32_t offset; /* zero point */
} nmp_tensor_t;
_NMP_STATIC_ASSERT(sizeof(nmp_tensor_t) == 48);

/* Layer that a kernel computes. */
typedef struct {
    uint32_t number; /* number of the layer, for the word layer of descriptors */
    uint32_t barrier; /* number of a barrier that the kernel may use, with all cores */
    uint32_t scratchpad_bytes; /* size of a scratchpad */
    uint32_t tensors_count; /* number of tensors */
    const void *tensors; /* nmp_tensor_t: the result, then inputs and constants in the order of the LIR operands */
    const void *descriptor; /* descriptor of the compiler's first tile, with operands in DRAM; 0 if it computes nothing */
} nmp_layer_t;
_NMP_STATIC_ASSERT(sizeof(nmp_layer_t) == 24);

/* --- instructions --------------------------------------------------------------------------- */

/* copy a box from DRAM to the scratchpad, padding it */
static inline void nmp_load(const nmp_load_t *descriptor)
{
    __asm__ volatile(".insn r 0x0b, 0, 0, x0, %0, x0" : : "r"(descriptor) : "memory");
}

/* copy a box from the scratchpad into DRAM */
static inline void nmp_store(const nmp_store_t *descriptor)
{
    __asm__ volatile(".insn r 0x0b, 0, 1, x0, %0, x0" : : "r"(descriptor) : "memory");
}

/* 2-D convolution, grouped or fully connected */
static inline void nmp_conv(const nmp_conv_t *descriptor)
{
    __asm__ volatile(".insn r 0x0b, 0, 2, x0, %0, x0" : : "r"(descriptor) : "memory");
}

/* depthwise 2-D convolution */
static inline void nmp_dwconv(const nmp_dwconv_t *descriptor)
{
    __asm__ volatile(".insn r 0x0b, 1, 2, x0, %0, x0" : : "r"(descriptor) : "memory");
}

/* product of two matrices that are both activations */
static inline void nmp_gemm(const nmp_gemm_t *descriptor)
{
    __asm__ volatile(".insn r 0x0b, 2, 2, x0, %0, x0" : : "r"(descriptor) : "memory");
}

/* maximum over windows */
static inline void nmp_maxpool(const nmp_maxpool_t *descriptor)
{
    __asm__ volatile(".insn r 0x0b, 0, 3, x0, %0, x0" : : "r"(descriptor) : "memory");
}

/* average over windows */
static inline void nmp_avgpool(const nmp_avgpool_t *descriptor)
{
    __asm__ volatile(".insn r 0x0b, 1, 3, x0, %0, x0" : : "r"(descriptor) : "memory");
}

/* add, sub, max, min or mul of two tensors */
static inline void nmp_eltwise(const nmp_eltwise_t *descriptor)
{
    __asm__ volatile(".insn r 0x0b, 2, 3, x0, %0, x0" : : "r"(descriptor) : "memory");
}

/* clamp, then change scale and offset */
static inline void nmp_rescale(const nmp_rescale_t *descriptor)
{
    __asm__ volatile(".insn r 0x0b, 3, 3, x0, %0, x0" : : "r"(descriptor) : "memory");
}

/* look every element up in a table of 256 bytes */
static inline void nmp_lut(const nmp_lut_t *descriptor)
{
    __asm__ volatile(".insn r 0x0b, 4, 3, x0, %0, x0" : : "r"(descriptor) : "memory");
}

/* write one value to consecutive elements */
static inline void nmp_fill(const nmp_fill_t *descriptor)
{
    __asm__ volatile(".insn r 0x0b, 5, 3, x0, %0, x0" : : "r"(descriptor) : "memory");
}

/* strided copy within the scratchpad */
static inline void nmp_transpose(const nmp_transpose_t *descriptor)
{
    __asm__ volatile(".insn r 0x0b, 6, 3, x0, %0, x0" : : "r"(descriptor) : "memory");
}

/* until at most this many of the unit's are unfinished */
#define nmp_wait(unit, outstanding) \
    __asm__ volatile(".insn r 0x0b, 0, 4, x0, x%0, x%1" : : "i"(unit), "i"(outstanding) : "memory")

/* until rs2 cores are at barrier number rs1 */
static inline void nmp_barrier(uint32_t number, uint32_t count)
{
    __asm__ volatile(".insn r 0x0b, 1, 4, x0, %0, %1" : : "r"(number), "r"(count) : "memory");
}

/* semaphore rs1 += rs2 */
static inline void nmp_post(uint32_t number, uint32_t count)
{
    __asm__ volatile(".insn r 0x0b, 2, 4, x0, %0, %1" : : "r"(number), "r"(count) : "memory");
}

/* until semaphore rs1 >= rs2, then semaphore rs1 -= rs2 */
static inline void nmp_pend(uint32_t number, uint32_t count)
{
    __asm__ volatile(".insn r 0x0b, 3, 4, x0, %0, %1" : : "r"(number), "r"(count) : "memory");
}

/* this core is done until the host starts it again */
static inline void nmp_halt(void)
{
    __asm__ volatile(".insn r 0x0b, 4, 4, x0, x0, x0" : : : "memory");
}

/* --- control and status registers ------------------------------------------------------------ */

#define NMP_CSR_MSTATUS 0x300
#define NMP_CSR_MISA 0x301
#define NMP_CSR_MIE 0x304
#define NMP_CSR_MTVEC 0x305
#define NMP_CSR_MSCRATCH 0x340
#define NMP_CSR_MEPC 0x341
#define NMP_CSR_MCAUSE 0x342
#define NMP_CSR_MTVAL 0x343
#define NMP_CSR_MIP 0x344
#define NMP_CSR_MCYCLE 0xb00
#define NMP_CSR_MINSTRET 0xb02
#define NMP_CSR_MCYCLEH 0xb80
#define NMP_CSR_MINSTRETH 0xb82
#define NMP_CSR_CYCLE 0xc00
#define NMP_CSR_TIME 0xc01
#define NMP_CSR_INSTRET 0xc02
#define NMP_CSR_CYCLEH 0xc80
#define NMP_CSR_TIMEH 0xc81
#define NMP_CSR_INSTRETH 0xc82
#define NMP_CSR_MCORES 0xfc0
#define NMP_CSR_MVENDORID 0xf11
#define NMP_CSR_MARCHID 0xf12
#define NMP_CSR_MIMPID 0xf13
#define NMP_CSR_MHARTID 0xf14

#define nmp_read_csr(csr) __extension__({ \
    uint32_t nmp_value; \
    __asm__ volatile("csrr %0, %1" : "=r"(nmp_value) : "i"(csr) : "memory"); \
    nmp_value; \
})

/* Return the number of this core, from 0. */
static inline uint32_t nmp_hartid(void) { return nmp_read_csr(NMP_CSR_MHARTID); }

/* Return the number of cores of the device. */
static inline uint32_t nmp_cores(void) { return nmp_read_csr(NMP_CSR_MCORES); }

/* Return the cycles since the run began. */
static inline uint64_t nmp_cycles(void)
{
    uint32_t low, high, again;
    do {
        high = nmp_read_csr(NMP_CSR_CYCLEH);
        low = nmp_read_csr(NMP_CSR_CYCLE);
        again = nmp_read_csr(NMP_CSR_CYCLEH);
    } while (high != again);
    return (uint64_t)high << 32 | low;
}

/* Return the instructions that this core has executed. */
static inline uint64_t nmp_instructions(void)
{
    uint32_t low, high, again;
    do {
        high = nmp_read_csr(NMP_CSR_INSTRETH);
        low = nmp_read_csr(NMP_CSR_INSTRET);
        again = nmp_read_csr(NMP_CSR_INSTRETH);
    } while (high != again);
    return (uint64_t)high << 32 | low;
}

/* --- console and exit ------------------------------------------------------------------------ */

/* Print a character on the console of this core. */
static inline void nmp_putc(char character)
{
    *(volatile uint8_t *)NMP_HOST_CONSOLE = (uint8_t)character;
}

/* Print a text as it is on the console of this core; no newline is added. */
static inline void nmp_puts(const char *text)
{
    while (*text)
        nmp_putc(*text++);
}

/* End the program with an exit status: all cores halt. */
__attribute__((noreturn)) static inline void nmp_exit(int status)
{
    *(volatile int32_t *)NMP_HOST_EXIT = status;
    for (;;)
        nmp_halt();
}

/* Return the float32 with these bits, for words such as scale. */
static inline float nmp_float(uint32_t bits)
{
    union { float value; uint32_t bits; } both;
    both.bits = bits;
    return both.value;
}

/* Return the bits of a float32, for words such as result_scale. */
static inline uint32_t nmp_float_bits(float value)
{
    union { float value; uint32_t bits; } both;
    both.value = value;
    return both.bits;
}

#endif
