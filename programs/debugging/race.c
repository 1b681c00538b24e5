/* Two cores increment a counter in DRAM without synchronization, so increments are lost. */

enum { CORES = 2, ROUNDS = 4 };

volatile int counter;

static int increment(int value)
{
    return value + 1;
}

void work(void)
{
    for (int round = 0; round < ROUNDS; round++)
        counter = increment(counter);
}

__attribute__((naked, section(".text.start"))) void _start(void)
{
    __asm__ volatile("csrr a0, mhartid\n"
                     "li t0, %0\n"
                     "bgeu a0, t0, 1f\n"
                     "li sp, 0x20020000\n"
                     "call work\n"
                     "1: .word 0x0800400b  # nmp.halt\n" ::"i"(CORES));
}
