"""The text of ``docs/isa.md`` that is not derived from tables."""

from __future__ import annotations

from nmpsim.isa.table import TrapCause, Unit

INTRODUCTION = """
# The instruction set of the NMP

Generated from `nmpsim/isa/table.py` by `python -m nmpsim.isa.document > docs/isa.md`; edit the
table.

The control core is RV32IM with Zicsr, Zifencei and Zicntr, machine mode only, as defined by the
RISC-V Instruction Set Manual (volumes I and II). Some parts are
[left out](#what-of-the-risc-v-manual-is-left-out). The `nmp.*` instructions are extensions in the
*custom-0* opcode. A tensor instruction names a register with the address of a descriptor: a
record of words with all parameters of the instruction.
"""

UNIT_NOTES: dict[Unit, str] = {
    Unit.LOAD: "DMA from DRAM into the scratchpad",
    Unit.STORE: "DMA from the scratchpad into DRAM",
    Unit.MAC: "convolutions and matrix products",
    Unit.VECTOR: "pools, elementwise operations, rescaling, look-up, fill, transpose",
}

EXECUTION = """
## How a program executes

All cores start at the same address with all registers zero. A program distinguishes the cores by
`mhartid`. `nmp.halt` stops a core. When all cores have halted, the host may start them again at
another address.

*Effect.* Within a core, instructions take effect in program order at the time of their issue: the
result of a tensor instruction is available to the next instruction. The descriptor is also read at
the issue and may be overwritten afterwards.

*Time.* A tensor instruction enters the in-order queue of its unit, and the core continues; if the
queue is full, the core waits. `nmp.wait unit, n` waits until at most `n` of the core's instructions
in that unit are unfinished. Units do not wait for each other. A program that uses unfinished data
computes the right values in the simulator, but wrong ones on a chip: it violates the
[contract](#what-is-undefined). Wait for a load before computing on its data, for a computation
before storing its result, and for a store before the barrier that announces it.

*Between cores.* Interactions take place in order of simulated time and, at the same time, in order
of core number. A core runs ahead of the other cores until its next instruction that they can
observe: DMA, access to DRAM or to the control block, barrier, post, pend.

*Barriers.* `nmp.barrier rs1, rs2` waits until `rs2` cores are at barrier number `rs1`. A barrier
may be reused after it has been passed.

*Semaphores.* There are {semaphores}, all zero at the start. `nmp.post` adds to a semaphore.
`nmp.pend` waits until it can subtract. Waiting cores are served in order of core number.

*Traps.* If `mtvec` is zero, a trap ends the run with all results so far; otherwise the core
continues at `mtvec` as defined by the RISC-V manual. A trap that ends the run waits for the
core's turn, like everything that other cores can observe.

*Operands.* An invalid descriptor is an operand fault, and `mtval` is the address of the invalid
word. The following are invalid: a size of zero, memory outside the scratchpad, a shift beyond 31, a
zero point or clip beyond the element, an odd address or stride of Int16, a profile that the
instruction does not support, a float32 that is infinite or not a number, and a result that overlaps
an operand or itself. Only `nmp.eltwise`, `nmp.rescale` and `nmp.lut` may write exactly where they
read.

An operand covers all bytes from its first to its last, including gaps between rows. An empty
operand, such as the input of a pool without existing rows, overlaps nothing. Results are in order:
each pixel of an image and each row of a matrix begins at or after the end of the previous one. Only
the elements written by `nmp.transpose` may overlap each other; the last one in order of the
dimensions remains.

*Limits.* Each [descriptor](#descriptors) lists the valid values of its words. In addition,
`out_channels` must be a multiple of `groups`. The windows of a convolution cover at most 2^26 rows
and columns with pixels of at most 2^26 bytes. The window of a pool has at most 2^23 taps, and not
more than the scratchpad has bytes. No instruction computes more results, or copies more bytes, than
the scratchpad has bytes, regardless of its strides. The invalid word is then `count_y`, `out_h`,
`rows`, `size_0` or `size_3`.
"""

CSR_NOTE = """
An instruction that would write to an address from `0xc00` up traps as illegal; `csrrs`, `csrrc`
and their immediate forms with `zero` or 0 only read the register. Access to a CSR that is
not in the table is an illegal instruction. Counters have 64 bits, in two halves. A written value
is visible to the next instruction. The device has one clock: `time` counts its cycles.
"""

LEFT_OUT_NOTE = """
Only machine mode exists. User and supervisor mode, their CSRs, `sret` and `sfence.vma` are
missing, and MPP of `mstatus` is always 3. Unlike in the manual, a trap ends the run if `mtvec`
is 0.

`python -m tests.riscv_tests FOLDER` runs compiled tests of
[riscv-tests](https://github.com/riscv-software-src/riscv-tests) on both engines. Of its version
34e6b6d of 2026-06-03, 41 of 42 of rv32ui pass, 8 of 8 of rv32um and 14 of 16 of rv32mi; ma_data
(misaligned loads and stores that succeed), breakpoint (triggers) and pmpaddr (memory protection)
test the following missing parts:
"""

LEFT_OUT = (
    (
        "interrupts",
        "`mip` is 0 and nothing becomes pending; `mie` and MIE of `mstatus` are stored without "
        "effect; `wfi` does nothing",
    ),
    ("vectored traps", "`mtvec` has direct mode only: its two lowest bits are 0"),
    (
        "misaligned loads and stores",
        "they trap, as the manual allows, and nothing is read or written",
    ),
    (
        "compressed instructions (C)",
        "jumps and branches to addresses that are not multiples of 4 trap; the two lowest bits of "
        "`mepc` are 0",
    ),
    (
        "physical memory protection (`pmpcfg*`, `pmpaddr*`)",
        "a store to a bundle's image is a fault, as is an access outside of memory",
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
"""Parts of machine mode and extensions that are not implemented, and their replacement."""

TRAP_NOTE = """
`mepc` is the address of the instruction that trapped; it has changed no register and no memory.
If several words of a descriptor are invalid, `mtval` is the address of the first one found. Sizes
are checked before addresses, and addresses before scales and clips, each in the order of the words.
An invalid scale is reported at its word `pre`, an invalid table of scale records at the word
`scales`.
"""

CONTRACT = """
## What is undefined

A program respects the contract if its result is the same on every device with the same sizes,
regardless of the device's speed and the previous contents of its memory. `nmpsim run` and `nmpsim
check` stop at the first violation (`--strict`, the default) and report its category, its place and
a hint. `--no-strict` continues, and the report states that the contract was not proved. These cases
are undefined:
"""

TRAP_VALUES: dict[TrapCause, str] = {
    TrapCause.FETCH_MISALIGNED: "the target of the jump or branch",
    TrapCause.FETCH_FAULT: "the address of the instruction",
    TrapCause.ILLEGAL_INSTRUCTION: "the instruction word",
    TrapCause.BREAKPOINT: "the address of the instruction",
    TrapCause.LOAD_MISALIGNED: "the address",
    TrapCause.LOAD_FAULT: "the address",
    TrapCause.STORE_MISALIGNED: "the address",
    TrapCause.STORE_FAULT: "the address",
    TrapCause.ENVIRONMENT_CALL: "0",
    TrapCause.DESCRIPTOR_FAULT: "the address of the descriptor",
    TrapCause.OPERAND_FAULT: "the address of the invalid word of the descriptor",
}
"""Contents of ``mtval`` for each cause."""

SCALAR_NOTE = """
In assembly, the operand of `lui` and `auipc` is the upper 20 bits as a number. The operand of
branches and jumps is their target, a label or an absolute address, as in GNU's tools.
"""

MEMORY_LAYOUTS = """
## How tensors lie in memory

Everything is little endian; the last index of a shape is contiguous. The word `element` is the type
of input, weights and result: Int8, or Int16 at even addresses with even strides. Strides are in
bytes.

*Activations* are `[rows][columns][channels]` (NHWC, one image at a time); strides between rows
and pixels are in the descriptor. Padding is filled with the input's zero point, so that with the
zero term of the channel record a padded tap contributes nothing.

*Weights* of `nmp.conv` are blocked by 16 output channels and by four bytes of consecutive inputs of
a kernel row, counted as `kx * in_channels + channel`: `[out/16][ky][(kx*in)/4][16][4]` for Int8,
`[out/16][ky][(kx*in)/2][16][2]` for Int16, with divisions rounded up. With groups, `in` is the
number of channels of one group, and the output channels of all groups follow each other. Weights of
`nmp.dwconv` are `[ky][kx][channels]`.

*Reserved bytes.* The weights after the last input of a kernel row, and those of channels beyond the
last output channel, should be zero. They have no effect on results, partial sums, counts of
saturated values and cycles. The same applies to all bytes outside of operands: between the rows and
pixels of strided tensors, between operands, after the last channel's record, and after the
scratchpad.

*Partial sums* are `[out_h][out_w][out_channels]`, contiguous: 32 bits each for Int8, 64 bits (of
which an accumulator uses 48) at a multiple of 8 for Int16.

*Tables* of `nmp.lut` have 256 bytes, the entry of -128 first.
"""

SCALES = """
## Sums and scales

The result of a convolution is computed in three steps, with a channel record for each output
channel:

    start  = bias (if the profile adds it at the scale of the sum) + zero_term
    sum    = start + sum over ky, kx, channel of (w - weight_offset) * x
    result = clip(the sum on the result's scale, with its zero point, clip_low, clip_high)

The accumulator has 32 bits for Int8 and 48 bits for Int16; each step of the sum saturates there.
Bias and zero term have 64 bits, lower word first; the start of a sum saturates to the
accumulator. `part` splits the sum over several instructions: *first* begins with `start` and leaves
the sum at `partial`, *middle* adds to it, *last* adds to it and computes the result,
*only* does all of these.

The word `profile` selects the arithmetic of a result:

{profiles}

A scale consists of three words, `pre`, `mul` and `post`. Their meaning depends on the profile:

{forms}

The shifts are arithmetic. The integer form saturates the value before the last shift to 32 bits
for Int8; for Int16, `x >> pre` saturates where its product with `mul` would leave 62 bits. The
fixed-point form saturates `x << pre` to 32 bits and rounds twice, after the product and after the
shift; 48-bit sums of Int16 are multiplied by `mul` rounded to 16 bits and shifted once, by
`15 - pre + post`. The product of the float64 form is rounded to an integer, halves away
from zero, and limited to 2^61. It is not saturated otherwise before the clip. `nmp.gemm` has no
bias words, so its bias is 0.

[Numerics](numerics.md) contains the formulas of each profile, the derivation of their numbers, and
the references that they match bit-exactly. The following tables show which words hold the numbers.

### Scales of `nmp.conv`, `nmp.dwconv` and `nmp.gemm`

{sums}

`onednn` has the reciprocal of the result's scale in `result_scale`. A table of scale records gives
`bias` and `out` for each channel. An integer bias has its zero point subtracted. With
`activation=leaky`, in {leaky} only, a result below `out_offset` is scaled by the leaky scale
before the clip. `nmp.gemm` has no bias, and does not support the profiles {without_gemm}.

### Scales of `nmp.eltwise`

{pairs}

The words `lhs_post` and `rhs_post` of `float` are the bits of a float32 that may be negative;
product and sum are rounded to float32 in one step.

### Scales of `nmp.avgpool` and `nmp.rescale`

`nmp.avgpool` scales the sum by `out`. `divide=by_valid_taps` divides:

{averages}

`nmp.rescale` scales the input:

{rescales}

With `activation=leaky`, inputs below their zero point are scaled by `leaky`.

### Formulas

The compiled engine derives its arithmetic from this file. [Numerics](numerics.md) states the same
formulas independently, with their sources.

```toml
{formulas}```
"""
