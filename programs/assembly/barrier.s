# Two cores each write half of a buffer in DRAM and meet at a barrier; then core 0 reads all of it,
# also what core 1 stored, and stores it as the output.
#
# Core 0 copies the first half of the input (16 bytes), core 1 fills the second half with 77.

.input  first,  i8[S:1.0 O:0]<16>
.output result, i8[S:1.0 O:0]<32>
.buffer halves, i8[S:1.0 O:0]<32>
.layer  0, exchange, copy, halves, 0
.layer  1, collect, copy, result

.set SPM, 0x20000000
.set CORES, 2

take_first:  .descriptor load,  layer=0, dram=first, spm=SPM, run_bytes=16, count_x=1, count_y=1
give_first:  .descriptor store, layer=0, dram=halves, spm=SPM, run_bytes=16, count_x=1, count_y=1
make_second: .descriptor fill,  layer=0, output=SPM, count=16, value=77
give_second: .descriptor store, layer=0, dram=halves+16, spm=SPM, run_bytes=16, count_x=1, count_y=1
take_all:    .descriptor load,  layer=1, dram=halves, spm=SPM, run_bytes=32, count_x=1, count_y=1
give_all:    .descriptor store, layer=1, dram=result, spm=SPM, run_bytes=32, count_x=1, count_y=1

_start:
    csrr    s0, mhartid
    li      t1, CORES
    bgeu    s0, t1, done        # cores 2 and up have nothing to do
    bnez    s0, second

first_half:
    la      t0, take_first
    nmp.load t0
    nmp.wait load, 0
    la      t0, give_first
    nmp.store t0
    j       meet

second:
    la      t0, make_second
    nmp.fill t0
    nmp.wait vector, 0
    la      t0, give_second
    nmp.store t0

meet:
    nmp.wait store, 0           # the barrier says that the half is in DRAM
    li      a0, 0               # number of the barrier
    li      a1, CORES
    nmp.barrier a0, a1
    bnez    s0, done

    la      t0, take_all
    nmp.load t0
    nmp.wait load, 0
    la      t0, give_all
    nmp.store t0
    nmp.wait store, 0
done:
    nmp.halt
