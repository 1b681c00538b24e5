# Int16: a 1x1 convolution whose sums need more than 32 bits.
#
# Input 1 x 2 pixels of 4 channels, result 1 x 2 pixels of 2 channels, no zero points. A sum of
# four products of Int16 may reach 2^32, and the biases are beyond 2^31: the accumulator has 48
# bits. Sums are shifted right by 17, rounding half up, and clipped to int16.
#
# By hand, for a pixel of four times 10000:
#   channel 0:  3000000000 + 4*10000*30000             =  4200000000, / 2^17 =  32043.46 ->  32043
#   channel 1: -3000000000 + 10000*(1-2+3-4)*1000      = -3020000000, / 2^17 = -23040.77 -> -23041
# and for a pixel of zeros 22888 and -22888.

.input  image,  i16[S:0.0001 O:0]<1 x 2 x 4>
.output result, i16[S:0.0131072 O:0]<1 x 2 x 2>
.layer  0, conv, convolution, result

# --- constants ------------------------------------------------------------------------------
.data
.balign 64
# int16 [out/16][ky][(kx*in)/2][16][2]: one block of 16 output channels, one kernel row, two groups
# of 2 inputs. Of the 16 channels only 2 exist, the rest are zero.
weights:
    .half 30000, 30000,   1000, -2000
    .zero 56
    .half 30000, 30000,   3000, -4000
    .zero 56
weights_end:

# A channel record each: bias and zero term of 64 bits, lower word first. 3000000000 fits the lower
# word; -3000000000 is 1294967296 - 2^32, so its upper word is -1. Without a zero point the zero
# terms are 0.
.balign 64
channels:
    .word 3000000000,  0, 0, 0
    .word 1294967296, -1, 0, 0

# --- where things lie in the scratchpad -----------------------------------------------------
.set IMAGE,    0x20000000       # 2 x 4 values, 16 bytes
.set WEIGHTS,  0x20000040
.set CHANNELS, 0x200000c0       # a multiple of 8
.set RESULT,   0x20000100       # 2 x 2 values, 8 bytes

load_image: .descriptor load, dram=image, spm=IMAGE, run_bytes=16, count_x=1, count_y=1
load_weights: .descriptor load, dram=weights, spm=WEIGHTS, \
    run_bytes=weights_end-weights, count_x=1, count_y=1
load_channels: .descriptor load, dram=channels, spm=CHANNELS, run_bytes=32, count_x=1, count_y=1

# Strides are in bytes. A scale with mul=1 and shifts of 0 is 1: the bias is on the sum's scale.
convolve: .descriptor conv, element=int16, profile=glow_int, \
    input=IMAGE, weights=WEIGHTS, channels=CHANNELS, output=RESULT, \
    groups=1, in_channels=4, out_channels=2, kernel_h=1, kernel_w=1, stride_h=1, stride_w=1, \
    dilation_h=1, dilation_w=1, out_h=1, out_w=2, \
    in_row_stride=16, in_pixel_stride=8, out_row_stride=8, out_pixel_stride=4, \
    part=only, bias_mul=1, out_mul=1, out_post=17, activation=none, \
    clip_low=-32768, clip_high=32767, event_stride_y=4, event_stride_x=2

store_result: .descriptor store, dram=result, spm=RESULT, run_bytes=8, count_x=1, count_y=1

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
