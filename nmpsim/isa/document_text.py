"""The parts of ``docs/isa.md`` that no table holds."""

from __future__ import annotations

from nmpsim.isa.table import Cause, Unit

INTRODUCTION = """
# The instruction set of the NMP

Made from `nmpsim/isa/table.py` by `python -m nmpsim.isa.document > docs/isa.md`; edit there.

The control core is RV32IM with Zicsr, machine mode only, as the RISC-V Instruction Set Manual
(volumes I and II) has it. The `nmp.*` instructions are our own and lie in the *custom-0* opcode.
A tensor instruction names a register that holds the address of a descriptor, a record of words
with everything that the instruction needs.
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
that uses what a unit has not finished computes the right values in the simulator and wrong ones on
a chip; nothing warns of it yet. Wait for a load before computing on it, for a
computation before storing its result, for a store before a barrier that announces it.

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
"""

TRAP_NOTE = """
`mepc` is the address of the instruction that trapped; it has changed no register and no memory.
If several words of a descriptor are wrong, `mtval` names the one that is found first: sizes are
looked at before addresses, and addresses before scales and clips. A scale is named by its word
`pre`, a table of scale records by the word `scales`.
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
Int8, `[out/16][ky][(kx*in)/2][16][2]` for Int16, the divisions rounded up, zero beyond the edges.
With groups, `in` is the channels of one group, and output channels of all groups follow each
other. Weights of `nmp.dwconv` are `[ky][kx][channels]`.

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

A scale is three words, `pre`, `mul` and `post`. What they mean depends on the profile:

| profiles | form | `scale(x)` |
| --- | --- | --- |
| `glow_int`, `nmp` | integer | `((x >> pre) * mul + half) >> post`; `half` is `(1 << post) >> 1` |
| `q31` | fixed point | `x << pre`, times `mul / 2^31`, divided by `2^post` |
| all others | real | `x` as float32 times `mul`, the bits of a float32; no shifts |

The shifts are arithmetic. The integer form saturates what is shifted last to 32 bits for Int8; for
Int16, `x >> pre` saturates where its product with `mul` would leave 62 bits. The fixed-point form
saturates `x << pre` to 32 bits and rounds twice, after the product and after the shift; but 48-bit
sums of Int16 are multiplied with `mul` rounded to 16 bits and shifted once, by `15 - pre + post`.

[Numerics](numerics.md) has each profile's formulas, how a compiler finds their numbers, and the
references that they equal to the bit. This is where the numbers go.

### Scales of `nmp.conv`, `nmp.dwconv` and `nmp.gemm`

| profile | bias in the channel record | `bias` | `out` |
| --- | --- | --- | --- |
| `glow_int`, `glow_float`, `glow_float_late` | integer | bias to sum | sum to result |
| `nmp` | integer on the result's scale | unused | sum to result |
| `q31`, `float` | integer on the sum's scale | unused | sum to result |
| `fbgemm` | float64 on the sum's scale | unused | sum to result |
| `onednn` | float64, the real bias | `bias_mul`: input's scale | weights' scale |

`onednn` has the reciprocal of the result's scale in `result_scale`. A table of scale records gives
`bias` and `out` for each channel. An integer bias is less its own zero point. With
`activation=leaky`, in `glow_int` and `nmp` only, a result below `out_offset` is brought there by
the leaky scale before the clip. `nmp.gemm` has no bias, and not the profiles `fbgemm` and `onednn`.

### Scales of `nmp.eltwise`

| profile | operation | words |
| --- | --- | --- |
| `glow_int`, `nmp` | add, sub, max, min | `lhs`, `rhs`: side to result |
| `glow_float` | add | `lhs`, `rhs`: side to a common scale; `out`: sum to result |
| | sub | `lhs`, `rhs`: side to result |
| | max, min | `lhs_mul`, `rhs_mul`: the sides' scales; `result_scale` divides |
| `q31` | add, sub | `lhs`, `rhs`: side to a common scale; `out`: sum to result |
| | max, min | `lhs`, `rhs`: side to result |
| `float` | all but mul | `side * lhs_mul + lhs_post`, `rhs` likewise; `result_scale` multiplies |
| `qnnpack` | add, sub | `lhs_mul`, `rhs_mul`: integers; `out_post`: shift to the right |
| all but `qnnpack` | mul | `out`: product to result |

The words `lhs_post` and `rhs_post` of `float` are the bits of a float32 that may be negative;
product and sum are rounded to float32 together, once.

### Scales of `nmp.avgpool` and `nmp.rescale`

`nmp.avgpool` brings the sum to the result by `out`. With `divide=by_valid_taps`, `glow_int`, `nmp`
and `q31` divide what comes of that, halves away from zero; `glow_float`, `float` and `fbgemm`
divide the factor.

`nmp.rescale` brings the input to the result by `out`, or by `leaky` below the input's zero point if
`activation=leaky`. In `glow_float` these lead to real numbers, which `result_scale` divides. In
`float` they do too, but `leaky` multiplies what `out` made, and `result_scale` multiplies that.
"""
