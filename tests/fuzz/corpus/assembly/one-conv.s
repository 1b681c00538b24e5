# A 3x3 convolution of a small image, by hand: load, wait, convolve, wait, store.
#
# Input 5 x 5 pixels of 4 channels, zero point 3, padded by one pixel; 2 output channels, so the
# result is 5 x 5 pixels of 2 channels, zero point -1. Weights have no zero point. Sums are halved
# twice (a shift right by 2, rounding half up) and clipped to int8.

.input  image,  i8[S:1.0 O:3]<5 x 5 x 4>
.output result, i8[S:4.0 O:-1]<5 x 5 x 2>
.layer  0, conv, convolution, result

# --- constants ------------------------------------------------------------------------------
.data
.balign 64
# int8 [out/16][ky][(kx*in)/4][16][4]: one block of 16 output channels, 3 kernel rows, 3 groups of
# 4 inputs (here a group is a pixel). Of the 16 channels only 2 exist, the rest are zero.
weights:
# ky 0: kx 0, 1, 2
    .byte 1, 0, -1, 2,   0, 1, 1, -2
    .zero 56
    .byte 3, -1, 0, 1,   -2, 2, 0, 1
    .zero 56
    .byte 0, 2, -2, 1,   1, 1, -1, 3
    .zero 56
# ky 1
    .byte -1, 4, 2, 0,   5, -3, 2, 1
    .zero 56
    .byte 7, 1, -3, 2,   -4, 6, 1, 0
    .zero 56
    .byte 1, -2, 0, 3,   2, 2, -2, 1
    .zero 56
# ky 2
    .byte 0, 1, 1, -1,   1, 0, 3, -1
    .zero 56
    .byte 2, 0, -4, 1,   0, -1, 2, 2
    .zero 56
    .byte -2, 1, 0, 1,   1, -1, 0, 2
    .zero 56
weights_end:

# A channel record each: bias minus its zero point, and -(input zero point) * (sum of weights), which
# takes back what the zero point adds to every sum. The sums are 20 and 24. Both are 64 bits, lower
# word first: the upper word of a negative number is -1.
.balign 64
channels:
    .word  40,  0, -60, -1
    .word -17, -1, -72, -1

# --- where things lie in the scratchpad -----------------------------------------------------
.set IMAGE,    0x20000000       # 7 x 7 x 4 bytes with padding
.set WEIGHTS,  0x20000100
.set CHANNELS, 0x20000400
.set RESULT,   0x20000500       # 5 x 5 x 2 bytes

# A row of the image is contiguous in DRAM, but a pixel is the unit of padding: so runs of 4 bytes.
load_image: .descriptor load, dram=image, spm=IMAGE, run_bytes=4, count_x=5, count_y=5, \
    dram_stride_x=4, dram_stride_y=20, spm_stride_x=4, spm_stride_y=28, \
    pad_x_before=1, pad_x_after=1, pad_y_before=1, pad_y_after=1, fill=3
load_weights: .descriptor load, dram=weights, spm=WEIGHTS, \
    run_bytes=weights_end-weights, count_x=1, count_y=1
load_channels: .descriptor load, dram=channels, spm=CHANNELS, run_bytes=32, count_x=1, count_y=1

# A scale with mul=1 and shifts of 0 is 1: the bias is on the sum's scale already.
convolve: .descriptor conv, input=IMAGE, weights=WEIGHTS, channels=CHANNELS, output=RESULT, \
    groups=1, in_channels=4, out_channels=2, kernel_h=3, kernel_w=3, stride_h=1, stride_w=1, \
    dilation_h=1, dilation_w=1, out_h=5, out_w=5, \
    in_row_stride=28, in_pixel_stride=4, out_row_stride=10, out_pixel_stride=2, \
    part=only, bias_mul=1, out_mul=1, out_post=2, out_offset=-1, activation=none, \
    clip_low=-128, clip_high=127, event_stride_y=10, event_stride_x=2

store_result: .descriptor store, dram=result, spm=RESULT, run_bytes=50, count_x=1, count_y=1

# --- program --------------------------------------------------------------------------------
.text
_start:
    csrr    t0, mhartid
    bnez    t0, done
    la      t0, load_image
    nmp.load t0
    la      t0, load_weights
    nmp.load t0
    la      t0, load_channels
    nmp.load t0
    nmp.wait load, 0
    la      t0, convolve
    nmp.conv t0
    nmp.wait mac, 0
    la      t0, store_result
    nmp.store t0
    nmp.wait store, 0
done:
    nmp.halt
