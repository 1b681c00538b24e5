"""The parts of ``docs/isa.md`` that no table holds."""

from __future__ import annotations

from nmpsim.isa.table import Cause, Unit

INTRODUCTION = """
# The instruction set of the NMP

Made from `nmpsim/isa/table.py` by `python -m nmpsim.isa.document > docs/isa.md`; edit there.

The control core is RV32IM with Zicsr, Zifencei and Zicntr, machine mode only, as the RISC-V
Instruction Set Manual (volumes I and II) has it, but for what is
[left out](#what-of-the-risc-v-manual-is-left-out). The `nmp.*` instructions are our own and lie in
the *custom-0* opcode. A tensor instruction names a register that holds the address of a
descriptor, a record of words with everything that the instruction needs.
"""

UNIT_NOTES: dict[Unit, str] = {
    Unit.LOAD: "DMA from DRAM into the scratchpad",
    Unit.STORE: "DMA from the scratchpad into DRAM",
    Unit.MAC: "convolutions and matrix products",
    Unit.VECTOR: "pools, elementwise operations, rescaling, look-up, fill, transpose",
}

EXECUTION = """
## How a program executes

All cores start at the same address; when a run begins every register is zero. A program tells the
cores apart by `mhartid`. `nmp.halt` ends a core's work; the device is done when all cores have
halted, and the host may start them again at another address.

*Effect.* Within a core an instruction takes effect in program order, at the moment when it is
issued: a tensor instruction's result is there for the next instruction. A descriptor is read at
that moment too, so it may be overwritten afterwards.

*Time.* A tensor instruction goes into the in-order queue of its unit and the core runs on; if the
queue is full, the core waits for room. `nmp.wait unit, n` lets the core continue when at most `n`
of its instructions in that unit are unfinished. Units do not wait for each other. So a program
that uses what a unit has not finished would compute the right values in the simulator and wrong
ones on a chip: it breaks the [contract](#what-is-undefined). Wait for a load before computing on
it, for a computation before storing its result, for a store before a barrier that announces it.

*Between cores.* Cores meet in order of simulated time, ties by core number. A core runs ahead of
the others until its next instruction that others could see: DMA, DRAM or control-block access,
barrier, post, pend.

*Barriers.* `nmp.barrier rs1, rs2` waits until the number of cores in `rs2` are at the barrier
with the number in `rs1`. A barrier may be used again once it has been passed.

*Semaphores.* There are {semaphores}, all zero at the start. `nmp.post` adds; `nmp.pend` waits until
it can subtract. Who waits is served by core number.

*Traps.* If `mtvec` is zero, a trap ends the run, with all results so far; otherwise the core goes
on at `mtvec` as the RISC-V manual has it. A trap that ends the run waits for the core's turn, like
everything that others can see.

*Operands.* A descriptor that is impossible is an operand fault, and `mtval` is the address of the
word that is wrong: a size of zero, memory outside the scratchpad, a shift beyond 31, a zero point
or clip beyond the element, an odd address or stride of Int16, a profile that the instruction does
not have, a float32 that is infinite or no number, a result that would lie on an operand or on
itself. Only `nmp.eltwise`, `nmp.rescale` and `nmp.lut` may write exactly where they read.

What an operand covers is all from its first to its last byte, gaps between rows included; one
without bytes, as the input of a pool of which no row exists, meets nothing. Results lie in order:
each pixel of an image and each row of a matrix begins where the one before has ended, or later.
Only the elements that `nmp.transpose` writes may lie on one another; the last one in order of the
dimensions stays.

*Limits.* Each [descriptor](#descriptors) lists what its words may be. Beyond that, `out_channels`
is a multiple of `groups`. The windows of a convolution touch at most 2^26 rows and columns, of
which a pixel has at most 2^26 bytes; a pool's window has at most 2^23 taps, nor more than the
scratchpad has bytes. No instruction makes more results, or copies more bytes, than the
scratchpad has bytes, whatever its strides say: what is too much is named by `count_y`, `out_h`,
`rows` or `size_0`, or by `size_3`.
"""

CSR_NOTE = """
An instruction that would write to an address from `0xc00` up traps as illegal; `csrrs`, `csrrc`
and their immediate forms with `zero` or 0 only read. A CSR that is not here does not exist: an
access to it is an illegal instruction. Counters have 64 bits, in two halves. What a counter is set
to is what the next instruction reads. The device has one clock: `time` counts its cycles.
"""

LEFT_OUT_NOTE = """
There is machine mode only: no user and supervisor mode, so none of their CSRs, no `sret` and no
`sfence.vma`, and MPP of `mstatus` is always 3. A trap ends the run as long as `mtvec` is 0, which
the manual does not know.

`python -m tests.riscv_tests FOLDER` runs built tests of
[riscv-tests](https://github.com/riscv-software-src/riscv-tests) on both engines. Of its version
34e6b6d of 2026-06-03, 41 of 42 of rv32ui pass, 8 of 8 of rv32um and 14 of 16 of rv32mi; ma_data
(misaligned loads and stores that succeed), breakpoint (triggers) and pmpaddr (memory protection)
test what is left out. That is, with what there is instead:
"""

LEFT_OUT = (
    (
        "interrupts",
        "`mip` is 0 and nothing becomes pending; `mie` and MIE of `mstatus` are kept and change "
        "nothing; `wfi` does nothing",
    ),
    ("vectored traps", "`mtvec` has direct mode only: its two lowest bits are 0"),
    (
        "misaligned loads and stores",
        "they trap, as the manual allows, and nothing is read or written",
    ),
    (
        "compressed instructions (C)",
        "jumps and branches to addresses that are no multiple of 4 trap; the two lowest bits of "
        "`mepc` are 0",
    ),
    (
        "physical memory protection (`pmpcfg*`, `pmpaddr*`)",
        "a store to a bundle's image is a fault, as is an access to what is no memory",
    ),
    (
        "triggers and debug mode (`tselect`, `tdata*`, `dcsr`)",
        "`nmpsim debug` has breakpoints and watchpoints",
    ),
    (
        "performance monitors (`mhpmcounter*`, `mhpmevent*`, `mcountinhibit`)",
        "the report has the counters; cycles and instructions are always counted",
    ),
    ("`mstatush`, `mconfigptr`, non-maskable interrupts", "nothing"),
    ("the extensions A, F, D, V, B and others", "nothing: `misa` says I and M"),
)
"""What of machine mode and of the extensions is left out, and what there is instead."""

TRAP_NOTE = """
`mepc` is the address of the instruction that trapped; it has changed no register and no memory.
If several words of a descriptor are wrong, `mtval` names the one that is found first: sizes are
looked at before addresses, and addresses before scales and clips, each in the order of the words.
A scale is named by its word `pre`, a table of scale records by the word `scales`.
"""

CONTRACT = """
## What is undefined

A program keeps to the contract if its answer is the same on every device of these sizes, whatever
its speed and whatever its memory held before. `nmpsim run` and `nmpsim check` stop at the first
violation (`--strict`, the default) and tell its category, place and a hint; `--no-strict` runs on,
and the report says that the contract was not proved. These cases are undefined:
"""

TRAP_VALUES: dict[Cause, str] = {
    Cause.FETCH_MISALIGNED: "where the jump or branch was to go",
    Cause.FETCH_FAULT: "the address of the instruction",
    Cause.ILLEGAL_INSTRUCTION: "the instruction word",
    Cause.BREAKPOINT: "the address of the instruction",
    Cause.LOAD_MISALIGNED: "the address",
    Cause.LOAD_FAULT: "the address",
    Cause.STORE_MISALIGNED: "the address",
    Cause.STORE_FAULT: "the address",
    Cause.ENVIRONMENT_CALL: "0",
    Cause.DESCRIPTOR_FAULT: "the address of the descriptor",
    Cause.OPERAND_FAULT: "the address of the word of the descriptor that is wrong",
}
"""What ``mtval`` holds."""

SCALAR_NOTE = """
Assembly gives `lui` and `auipc` the upper 20 bits as a number, and branches and jumps their target
(a label or an absolute address), as GNU's tools do.
"""

MEMORY_LAYOUTS = """
## How tensors lie in memory

Everything is little endian, the last index of a shape is contiguous. The word `element` says what
input, weights and result are: Int8, or Int16 at even addresses with even strides. Strides are in
bytes.

*Activations* are `[rows][columns][channels]` (NHWC, one image at a time); strides between rows
and pixels are in the descriptor. Padding is filled with the input's zero point, so that with the
zero term of the channel record a padded tap contributes nothing.

*Weights* of `nmp.conv` are blocked by 16 output channels and by four bytes of consecutive inputs
of a kernel row, counted as `kx * in_channels + channel`: `[out/16][ky][(kx*in)/4][16][4]` for
Int8, `[out/16][ky][(kx*in)/2][16][2]` for Int16, the divisions rounded up. With
groups, `in` is the channels of one group, and output channels of all groups follow each other.
Weights of `nmp.dwconv` are `[ky][kx][channels]`.

*Reserved bytes.* The weights behind the last input of a kernel row, and those of channels beyond
the last output channel, should be zero, and software must not rely on anything else. Whatever they
hold, they take no part: results, partial sums, counts of saturated values and cycles are the same.
The same is true of all bytes that no operand names: what lies between the rows and pixels of
strided tensors, between operands, behind the last channel's record, and behind the scratchpad.

*Partial sums* are `[out_h][out_w][out_channels]`, contiguous: 32 bits each for Int8, 64 bits (of
which an accumulator uses 48) at a multiple of 8 for Int16.

*Tables* of `nmp.lut` have 256 bytes, the entry of -128 first.
"""

SCALES = """
## Sums and scales

A convolution's result is made in three steps, each output channel with its channel record:

    start  = bias on the scale of the sum, if the profile has it there, + zero_term
    sum    = start + sum over ky, kx, channel of (w - weight_offset) * x
    result = clip(the sum on the result's scale, with its zero point, clip_low, clip_high)

The accumulator has 32 bits for Int8 and 48 bits for Int16; each step of the sum saturates there.
Bias and zero term have 64 bits, lower word first; the start of a sum saturates to the
accumulator. `part` splits the sum over several instructions: *first* begins with `start` and leaves
the sum at `partial`, *middle* adds to it, *last* adds to it and makes the result, *only* does all.

The word `profile` says whose arithmetic makes a result:

{profiles}

A scale is three words, `pre`, `mul` and `post`. What they mean depends on the profile:

{forms}

The shifts are arithmetic. The integer form saturates what is shifted last to 32 bits for Int8; for
Int16, `x >> pre` saturates where its product with `mul` would leave 62 bits. The fixed-point form
saturates `x << pre` to 32 bits and rounds twice, after the product and after the shift; but 48-bit
sums of Int16 are multiplied with `mul` rounded to 16 bits and shifted once, by `15 - pre + post`.
The product of the float64 form is rounded to an integer, halves away from zero, is
held at 2^61, and saturates nothing before the clip. `nmp.gemm` has no words of a bias: they count
as 0.

[Numerics](numerics.md) has each profile's formulas, how a compiler finds their numbers, and the
references that they equal to the bit. This is where the numbers go.

### Scales of `nmp.conv`, `nmp.dwconv` and `nmp.gemm`

{sums}

`onednn` has the reciprocal of the result's scale in `result_scale`. A table of scale records gives
`bias` and `out` for each channel. An integer bias is less its own zero point. With
`activation=leaky`, in {leaky} only, a result below `out_offset` is brought there by
the leaky scale before the clip. `nmp.gemm` has no bias, and not the profiles {without_gemm}.

### Scales of `nmp.eltwise`

{pairs}

The words `lhs_post` and `rhs_post` of `float` are the bits of a float32 that may be negative;
product and sum are rounded to float32 together, once.

### Scales of `nmp.avgpool` and `nmp.rescale`

`nmp.avgpool` brings the sum to the result by `out`. What `divide=by_valid_taps` divides:

{averages}

`nmp.rescale` brings the input to the result:

{rescales}

`leaky` holds with `activation=leaky`, below the input's zero point.
"""
