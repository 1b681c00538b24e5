/* Start of a program on core 0; the other cores halt. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static char stack[16384] __attribute__((aligned(16), used));
int main(void);

__attribute__((naked, used, section(".text.start"))) void _start(void)
{
    __asm__ volatile(".option push\n.option norelax\n.option arch, +zicsr\n"
                     "la gp, __global_pointer$\n"
                     "csrr a0, mhartid\n bnez a0, 1f\n la sp, stack + 16384\n"
                     "call main\n1: .word 0x0800400b\n j 1b\n.option pop");
}

static volatile int sink, zero;
#define NOINLINE __attribute__((noinline))
