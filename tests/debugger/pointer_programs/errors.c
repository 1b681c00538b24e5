/* A wrong use of a pointer in each line with a comment "ERROR: part of the message". */
#include "start.h"

struct pair { int first, second; };
struct node { int value; struct node *next; };

int before[4] = {1, 2, 3, 4};
int taps[8] = {1, 2, 3, 4, 5, 6, 7, 8};
int after[8];
short halves[7] __attribute__((aligned(4)));
char text[6] = "abcde";
char copy[5];
struct pair pairs[3];
struct node nodes[3];
int matrix[3][4];
int *pointer_table[2] = {taps, after};
int *saved;

/* Reads and writes next to global objects. */
NOINLINE void store_after(int i) { taps[8 + i] = 1; }               // ERROR: store of 4 bytes at taps+32, 0 bytes after the end of taps (32 bytes)
NOINLINE void store_before(int i) { taps[i - 1] = 1; }              // ERROR: store of 4 bytes at taps-4, 4 bytes before the start of taps
NOINLINE int load_after(const int *p) { return p[8]; }              // ERROR: load of 4 bytes at taps+32
NOINLINE int load_before(const int *p) { return p[-2]; }            // ERROR: load of 4 bytes at after-8
NOINLINE int sum(const int *p, int n)
{
    int total = 0;
    for (int i = 0; i < n; i++)
        total += p[i];                                              // ERROR: load of 4 bytes at taps+32
    return total;
}
NOINLINE void fill(short *p, int n)
{
    for (int i = 0; i <= n; i++)
        p[i] = (short)i;                                            // ERROR: store of 2 bytes at halves+14, 0 bytes after the end of halves (14 bytes)
}
NOINLINE int second(struct pair *p) { return p->second; }           // ERROR: at pairs+28
NOINLINE void store_cell(int r, int c) { matrix[r][c] = 7; }        // ERROR: store of 4 bytes at matrix+48
NOINLINE int follow(struct node *n) { return n->next->value; }      // ERROR: load of 4 bytes at nodes+24
NOINLINE int far_away(const int *p, int i) { return p[i]; }         // ERROR: at before+400, 384 bytes after the end of before
NOINLINE char byte_after(const char *p) { return p[6]; }            // ERROR: load of 1 byte at text+6
NOINLINE void terminate(char *p, int n) { p[n] = 0; }               // ERROR: store of 1 byte at copy+5
NOINLINE void store_halves(short *p) { *(int *)(p + 6 + zero) = 1; } // ERROR: at halves+12, 2 bytes longer than halves

/* Pointers that pass through memory, registers and library functions. */
NOINLINE int from_table(int i) { return pointer_table[0][i]; }      // ERROR: load of 4 bytes at taps+32
NOINLINE int from_saved(void) { return saved[8]; }                  // ERROR: load of 4 bytes at after+32
NOINLINE int aligned(const int *p)
{
    const int *q = (const int *)((uintptr_t)p & ~(uintptr_t)3);
    return q[4 + zero];                                             // ERROR: load of 4 bytes at before+16
}
NOINLINE int copied_pointer(void)
{
    int *one = before, *other;
    memcpy((char *)&other, (char *)&one + zero, sizeof one);
    return other[4];                                                // ERROR: load of 4 bytes at before+16
}
NOINLINE void copy_text(const char *from, int n)
{
    memcpy(copy, from, n);                                          // ERROR: memcpy: store of 1 byte at copy+5, 0 bytes after the end of copy (5 bytes)
}
NOINLINE void clear(int *p, int n) { memset(p, 0, n); __asm__ volatile(""); } // ERROR: memset: store of 1 byte at after+32, 0 bytes after the end of after (32 bytes)
NOINLINE int difference(const int *p, const int *q) { return q[p - q + 9]; } // ERROR: load of 4 bytes at after+36

/* Variables on the stack. */
NOINLINE void fill_words(int *p, int n)
{
    for (int i = 0; i < n; i++)
        p[i] = i;                                                   // ERROR: store of 4 bytes at words+16, 0 bytes after the end of words (16 bytes, variable of over_words)
}
NOINLINE int over_words(int n)
{
    int words[4];
    fill_words(words, n);
    return words[3];
}
NOINLINE int under_words(int i)
{
    int words[4] = {1, 2, 3, 4};
    int *volatile p = words;
    return p[i - 1];                                                // ERROR: load of 4 bytes at words-4
}
NOINLINE int index_words(int i)
{
    int words[4] = {1, 2, 3, zero};
    int *volatile keep = words;
    (void)keep;
    return words[i];                                                // ERROR: load of 4 bytes at words+16
}
NOINLINE int over_scalar(int n)
{
    int scalar = n;
    int *volatile p = &scalar;
    return p[1];                                                    // ERROR: at scalar+4, 0 bytes after the end of scalar (4 bytes, variable of over_scalar)
}
NOINLINE int *return_local(int n)
{
    int local[4] = {n, n, n, n};
    int *volatile p = local;
    return p;
}
NOINLINE int use_returned(const int *p) { return p[1]; }            // ERROR: at local, a variable of return_local, which has returned
NOINLINE void keep_local(int n)
{
    int kept[2] = {n, n};
    saved = kept;
    sink = kept[zero];
}
NOINLINE void use_kept(void) { saved[0] = 5; }                      // ERROR: store of 4 bytes at kept, a variable of keep_local, which has returned

/* Values that were never written. */
NOINLINE int branch_on_word(int i)
{
    int words[4];
    words[0] = 1;
    int *volatile p = words;
    if (p[i] > 3)                                                   // ERROR: a value that was never written decides a branch
        return 5;
    return 6;
}
NOINLINE int index_by_word(int i)
{
    int words[4];
    words[0] = 1;
    int *volatile p = words;
    return taps[p[i]];                                              // ERROR: a value that was never written is used as an address
}
NOINLINE int follow_word(int i)
{
    int *table[4];
    table[0] = taps;
    int **volatile p = table;
    return *p[i];                                                   // ERROR: a value that was never written is used as an address
}
NOINLINE int branch_on_byte(int i)
{
    char bytes[8];
    memset(bytes, 1, 4);
    char *volatile p = bytes;
    if (p[i])                                                       // ERROR: a value that was never written decides a branch
        return 5;
    return 6;
}
NOINLINE int sum_of_words(int n)
{
    int words[4];
    int *volatile p = words;
    for (int i = 0; i < n; i++)
        p[i] = i;
    int total = p[0] + p[1] + p[2] + p[3];
    return total == 6 ? 1 : 2;                                      // ERROR: a value that was never written decides a branch
}

int main(void)
{
    nodes[0].next = &nodes[zero + 3];
    saved = after;
    store_after(zero);
    store_before(zero);
    sink = load_after(taps) + load_before(after) + sum(taps, 9);
    fill(halves, 7);
    sink = second(pairs + 3 + zero);
    store_cell(2, 4);
    sink = follow(nodes) + far_away(before, 100) + byte_after(text);
    terminate(copy, 5);
    store_halves(halves);
    sink = from_table(8) + from_saved() + aligned(before) + copied_pointer();
    copy_text(text, 6);
    clear(after, 36);
    sink = difference(after, after);
    sink = over_words(5) + under_words(zero) + index_words(4) + over_scalar(3);
    sink = use_returned(return_local(1));
    keep_local(2);
    use_kept();
    sink = branch_on_word(2) + index_by_word(1);
    sink = branch_on_byte(5);
    sink = sum_of_words(3);
    sink = follow_word(1);
    return 0;
}
