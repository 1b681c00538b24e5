/* Start-up code: stack, thread-local variables, constructors, main, exit.
 *
 * Generated from the tables of nmpsim/isa/ by `python -m nmpsim.ckit.generate`.
 *
 * NMP_ALL_CORES   call main on all cores instead of core 0; a core whose main returns 0 halts
 * NMP_LIBC        end with exit() of a C library instead of the exit register
 */
    .section .text.start, "ax", @progbits
    .globl _start
    .type _start, @function
_start:
    .option push
    .option norelax
    la gp, __global_pointer$
    .option pop
    la sp, __stack_top
    la tp, __tls_base

    /* Stack and variables in the scratchpad become zero; these bytes count as written. */
    la t0, clear_scratchpad
    .insn r 0x0b, 5, 3, x0, t0, x0
    .insn r 0x0b, 0, 4, x0, x3, x0
    la t0, __tdata_start
    la t1, __tdata_end
    mv t2, tp
    j 2f
1:  lbu t3, 0(t0)
    sb t3, 0(t2)
    addi t0, t0, 1
    addi t2, t2, 1
2:  bltu t0, t1, 1b

    csrr s0, 0xf14 /* mhartid */
    bnez s0, 4f
    la s1, __init_array_start
    la s2, __init_array_end
    j 3f
5:  lw t0, 0(s1)
    jalr t0
    addi s1, s1, 4
3:  bltu s1, s2, 5b
4:
#ifdef NMP_ALL_CORES
    /* Wait until core 0 has called the constructors. */
    li t0, 0xffff
    csrr t1, 0xfc0 /* mcores */
    .insn r 0x0b, 1, 4, x0, t0, t1
#else
    bnez s0, halt
#endif
    li a0, 1
    la a1, arguments
    li a2, 0
    call main
#ifdef NMP_ALL_CORES
    beqz a0, halt
#endif
    call exit
    .size _start, . - _start

halt:
    .insn r 0x0b, 4, 4, x0, x0, x0
    j halt

#ifndef NMP_LIBC
    .globl exit
    .type exit, @function
exit:
#endif
    .globl _exit
    .type _exit, @function
_exit:
    li t0, 0x10001004
    sw a0, 0(t0)
    j halt
    .size _exit, . - _exit

    .section .rodata.start, "a", @progbits
    .balign 4
clear_scratchpad:
    .word 0 /* layer */
    .word 0 /* element */
    .word __scratchpad_start /* output */
    .word __scratchpad_end - __scratchpad_start /* count */
    .word 0 /* value */
arguments:
    .word program_name, 0
program_name:
    .asciz "program"
