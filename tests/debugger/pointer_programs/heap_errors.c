/* Wrong uses of blocks and operands, each with a comment "ERROR: part of the message". */
#include "nmp.h"
#include <stdlib.h>
#include <string.h>
#define NOINLINE __attribute__((noinline))
struct node { int value; struct node *next; };
static volatile int sink, zero;
static int pool[64], used;
NMP_SCRATCHPAD int8_t tile[64], other[64];
static int8_t data[32];

NOINLINE void *take(unsigned nbytes) { void *p = (char *)pool + used; used += (nbytes + 3) & ~3u; return p; }
NOINLINE void give(void *p) { *(int *)p = used; }

NOINLINE void store_after(int *p, int i) { p[4 + i] = 1; }         // ERROR: store of 4 bytes at block+16, 0 bytes after the end of block (16 bytes, allocated by main
NOINLINE int load_before(const int *p) { return p[-1]; }           // ERROR: load of 4 bytes at block-4, 4 bytes before the start of block
NOINLINE int use_freed(const int *p) { return p[1]; }              // ERROR: load of 4 bytes at block, which was freed by main
NOINLINE void free_twice(void *p) { free(p); free(p); }            // ERROR: free of block (8 bytes, allocated by main
NOINLINE void free_inside(char *p) { free(p + 4 + zero); }         // ERROR: which is not the start of a block
NOINLINE void free_global(void) { free(pool + zero); }             // ERROR: which is not the start of a block
NOINLINE int branch(const int *p) { return p[2] > 5 ? 1 : 2; }     // ERROR: a value that was never written decides a branch
NOINLINE int stale(const int *p) { return *p; }                    // ERROR: load of 4 bytes at block, which was freed by main
NOINLINE void after_growth(char *p) { p[100] = 1; }                // ERROR: store of 1 byte at block+100, 0 bytes after the end of block (100 bytes
NOINLINE void clear(char *p, int n) { memset(p, 0, n); __asm__ volatile(""); } // ERROR: block+6, 0 bytes after the end of block (6 bytes
NOINLINE int follow(struct node *n) { return n->next->value; }     // ERROR: load of 4 bytes at block, which was freed by main
NOINLINE void copy_text(char *p, const char *text) { strcpy(p, text); } // ERROR: after the end of block (5 bytes
NOINLINE void own_block(int *p) { p[2] = 1; }                      // ERROR: store of 4 bytes at block+8, 0 bytes after the end of block (8 bytes
NOINLINE int own_freed(int *p) { return p[0]; }                    // ERROR: load of 4 bytes at block, which was freed by main
NOINLINE void fill(void *p, unsigned count)
{
    nmp_fill_t fill = {.output = p, .count = count, .value = 1};
    nmp_fill(&fill);                                               // ERROR: write of output of nmp.fill of 65 bytes at tile+0, 1 byte longer than tile (64 bytes)
    nmp_wait(NMP_VECTOR, 0);
}
NOINLINE void store_tile(const void *from)
{
    nmp_store_t store = {.spm = from, .dram = data, .run_bytes = 33, .count_x = 1, .count_y = 1};
    nmp_store(&store);                                             // ERROR: write of dram of nmp.store of 33 bytes at data+0, 1 byte longer than data (32 bytes)
    nmp_wait(NMP_STORE, 0);
}

int main(void)
{
    int *four = malloc(16), *kept = calloc(4, 4);
    store_after(four, zero);
    sink = load_before(kept);
    free(kept);
    sink = use_freed(kept);
    free_twice(malloc(8));
    free_inside(malloc(16));
    free_global();
    sink = branch(malloc(12));
    char *small = malloc(16), *large;
    memset(small, 1, 16);
    large = realloc(small, 100);
    sink = stale((int *)small);
    after_growth(large);
    clear(malloc(6), 7);
    struct node *one = calloc(1, sizeof *one), *two = calloc(1, sizeof *two);
    one->next = two;
    free(two);
    sink = follow(one);
    copy_text(malloc(5), "12345");
    int *own = take(8), *freed = take(8);
    own_block(own);
    freed[0] = 1;
    give(freed);
    sink = own_freed(freed);
    fill(tile, 65);
    store_tile(other);
    return 0;
}
