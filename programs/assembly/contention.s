# Two cores each load 128 bytes of the same DRAM row at the same time, then meet: one of them stands
# in line. With the default device (docs/timing.md has the costs):
#
#                         core 0            core 1
#   asks the DRAM at      19                19
#   is served             19 to 47          47 to 55      a row miss (20) and two bursts (4 each)
#   has its data at       87                95            40 later
#   waits for load        16 to 87          16 to 95      28 of these in line
#   is at the barrier at  90                98
#   goes on at            114               114           16 after the last
#
# Layer 0 takes 114 cycles; then each core stores its half.

.input  block, i8[S:1.0 O:0]<256>       # read-write memory begins where a DRAM row does
.output copy,  i8[S:1.0 O:0]<256>
.layer  0, fetch, copy, copy, 0
.layer  1, give, copy, copy

.set SPM, 0x20000000
.set CORES, 2
.set HALF, 128
.set STORE_BYTES, 40                    # of a store's descriptor

take:  .descriptor load,  layer=0, dram=block, spm=SPM, run_bytes=HALF, count_x=1, count_y=1
       .descriptor load,  layer=0, dram=block+HALF, spm=SPM, run_bytes=HALF, count_x=1, count_y=1
give:  .descriptor store, layer=1, dram=copy, spm=SPM, run_bytes=HALF, count_x=1, count_y=1
       .descriptor store, layer=1, dram=copy+HALF, spm=SPM, run_bytes=HALF, count_x=1, count_y=1

_start:
    csrr    a0, mhartid             # done at 1
    li      t1, CORES               # 2
    bgeu    a0, t1, done            # 3: cores 2 and up have nothing to do
    slli    a1, a0, 6               # 4: a load's descriptor takes 64 bytes
    la      t0, take                # 6
    add     t0, t0, a1              # 7
    nmp.load t0                     # descriptor until 15: the transfer begins; 16
    nmp.wait load, 0                # the wait, and 1
    li      t2, 0                   # number of the barrier
    nmp.barrier t2, t1

    la      t0, give
    beqz    a0, put
    addi    t0, t0, STORE_BYTES
put:
    nmp.store t0
    nmp.wait store, 0
done:
    nmp.halt
