# Core 0 calls main; the other cores halt.
    .section .text.start
    .globl _start
_start:
    csrr t0, mhartid
    bnez t0, halt
    la sp, stack_top
    call main
halt:
    .word 0x0800400b  # nmp.halt
