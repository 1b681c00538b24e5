# Load a box of the input into the scratchpad with padding around it, and store the whole tile.
#
# The input has 6 rows of 8 pixels of 2 channels. The box is rows 1 to 3, pixels 2 to 6. Around it
# come one pixel left and right, one row above and two below, filled with -5. The tile is then 6
# rows of 7 pixels, 84 bytes, and goes to the output as it lies in the scratchpad.

.input  image, i8[S:1.0 O:-5]<6 x 8 x 2>
.output tile,  i8[S:1.0 O:-5]<6 x 7 x 2>
.layer  0, copy, copy, tile

.set TILE, 0x20000000           # where the tile lies in the scratchpad

# A pixel is a run of 2 bytes; a row of the image has 16 bytes, a row of the tile 14.
load_box: .descriptor load, layer=0, dram=image+1*16+2*2, spm=TILE, \
    run_bytes=2, count_x=5, count_y=3, \
    dram_stride_x=2, dram_stride_y=16, spm_stride_x=2, spm_stride_y=14, \
    pad_x_before=1, pad_x_after=1, pad_y_before=1, pad_y_after=2, fill=-5

# On both sides the tile is one piece, so it is one run of 84 bytes.
store_tile: .descriptor store, layer=0, dram=tile, spm=TILE, run_bytes=84, count_x=1, count_y=1

_start:
    csrr    t0, mhartid
    bnez    t0, done            # core 0 does it all
    la      t0, load_box
    nmp.load t0
    nmp.wait load, 0            # the tile must be there before it is stored
    la      t0, store_tile
    nmp.store t0
    nmp.wait store, 0
done:
    nmp.halt
