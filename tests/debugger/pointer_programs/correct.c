/* Twenty correct programs; -DPROGRAM=1 to 20 selects one. Each returns 0 if its results are right. */
#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "nmp.h"
#define NOINLINE __attribute__((noinline))
static volatile int zero;

#if PROGRAM == 1 /* singly linked list, reversed in place */
struct node { struct node *next; int value; };
static struct node *push(struct node *head, int value) { struct node *n = malloc(sizeof *n); n->next = head; n->value = value; return n; }
int main(void)
{
    struct node *head = 0, *back = 0;
    for (int i = 0; i < 20; i++) head = push(head, i);
    while (head) { struct node *next = head->next; head->next = back; back = head; head = next; }
    int wrong = 0, i = 0;
    for (struct node *n = back, *next; n; n = next) { next = n->next; wrong |= n->value != i++; free(n); }
    return wrong || i != 20;
}
#elif PROGRAM == 2 /* growing array of strings */
int main(void)
{
    char **words = 0, line[] = "the quick brown fox jumps over the lazy dog";
    int count = 0, total = 0;
    for (char *word = strtok(line, " "); word; word = strtok(0, " ")) {
        words = realloc(words, (count + 1) * sizeof *words);
        words[count] = malloc(strlen(word) + 1);
        strcpy(words[count++], word);
    }
    for (int i = 0; i < count; i++) { total += strlen(words[i]); free(words[i]); }
    free(words);
    return count != 9 || total != 35;
}
#elif PROGRAM == 3 /* binary search tree */
struct tree { struct tree *child[2]; int key; };
static struct tree *insert(struct tree *t, int key)
{
    if (!t) { t = calloc(1, sizeof *t); t->key = key; return t; }
    t->child[key > t->key] = insert(t->child[key > t->key], key);
    return t;
}
static int check(struct tree *t, int *last) { if (!t) return 0; int bad = check(t->child[0], last); bad |= t->key < *last; *last = t->key; bad |= check(t->child[1], last); free(t); return bad; }
int main(void) { struct tree *t = 0; unsigned x = 7; for (int i = 0; i < 30; i++) { x = x * 1103515245 + 12345; t = insert(t, x >> 18); } int last = -1; return check(t, &last); }
#elif PROGRAM == 4 /* formatted text */
int main(void)
{
    char text[40], *end;
    int n = snprintf(text, sizeof text, "%d %5s|%-4x|%c %lu", -42, "ab", 0xbeef, 'z', 4000000000ul);
    long back = strtol(text, &end, 10);
    printf("%s %d\n", text, n);
    return back != -42 || *end != ' ' || strcmp(text, "-42    ab|beef|z 4000000000");
}
#elif PROGRAM == 5 /* sort of pointers by a callback */
static const char *names[] = {"pear", "fig", "apple", "kiwi", "plum", "date"};
static int compare(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }
int main(void) { qsort(names, 6, sizeof *names, compare); const char *key = "kiwi"; const char **p = bsearch(&key, names, 6, sizeof *names, compare); return p != names + 3 || strcmp(names[0], "apple"); }
#elif PROGRAM == 6 /* matrix product in blocks of rows */
static int *row(int *m, int n, int i) { return m + n * i; }
int main(void)
{
    enum { N = 6 };
    int *a = malloc(N * N * sizeof *a), *b = malloc(N * N * sizeof *b), *c = calloc(N * N, sizeof *c), trace = 0;
    for (int i = 0; i < N * N; i++) { a[i] = i; b[i] = i % N == i / N; }
    for (int i = 0; i < N; i++) for (int j = 0; j < N; j++) for (int k = 0; k < N; k++) row(c, N, i)[j] += row(a, N, i)[k] * row(b, N, k)[j];
    for (int i = 0; i < N; i++) trace += row(c, N, i)[i];
    trace -= memcmp(a, c, N * N * sizeof *a);
    free(c); free(b); free(a);
    return trace != 105;
}
#elif PROGRAM == 7 /* ring buffer in a struct with a flexible array */
struct ring { unsigned head, tail, size; char bytes[]; };
static void put(struct ring *r, char c) { r->bytes[r->head++ % r->size] = c; }
static char get(struct ring *r) { return r->bytes[r->tail++ % r->size]; }
int main(void) { struct ring *r = malloc(sizeof *r + 8); r->head = r->tail = 0; r->size = 8; int bad = 0; for (int i = 0; i < 50; i++) { put(r, i); put(r, i + 1); bad |= get(r) != i; bad |= get(r) != i + 1; } free(r); return bad; }
#elif PROGRAM == 8 /* variadic sum, arguments on the stack */
static int sum(int n, ...) { va_list list; va_start(list, n); int s = 0; while (n--) s += va_arg(list, int); va_end(list); return s; }
int main(void) { return sum(12, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12) != 78 || sum(0) || sum(2, 3, zero) != 3; }
#elif PROGRAM == 9 /* return by longjmp */
static jmp_buf back;
NOINLINE static void deep(int n) { volatile int local[4] = {n, n, n, n}; if (n == 5) longjmp(back, local[3]); deep(n + 1); local[0]++; }
int main(void) { int got = setjmp(back); if (got == 0) deep(0); int after[3] = {got, got, got}; return after[zero + 2] != 5; }
#elif PROGRAM == 10 /* structs by value, bit fields, unions */
struct big { int values[6]; short last; }; union word { float f; unsigned u; unsigned char b[4]; };
struct flags { unsigned a : 3, b : 7, c : 22; };
NOINLINE static struct big twice(struct big x) { for (int i = 0; i < 6; i++) x.values[i] *= 2; x.last++; return x; }
int main(void) { struct big x = {{1, 2, 3, 4, 5, 6}, 7}, y = twice(twice(x)); union word w = {1.0f}; struct flags f = {5, 100, 12345}; f.b++; return y.values[5] != 24 || y.last != 9 || w.b[3] != 0x3f || f.a + f.b + f.c != 12451; }
#elif PROGRAM == 11 /* string reversed, upper case, checksum by bytes of words */
int main(void)
{
    char text[12] = "hello world"; unsigned sum = 0, copy[3];
    for (char *p = text, *q = text + strlen(text) - 1; p < q; p++, q--) { char c = *p; *p = toupper(*q); *q = toupper(c); }
    memcpy(copy, text, sizeof copy);
    for (int i = 0; i < 3; i++) sum += copy[i] >> 24;
    return strcmp(text, "DLROW OLLEH") || sum != 'O' + 'L';
}
#elif PROGRAM == 12 /* own allocator on a global array, with a free list */
union cell { union cell *next; char bytes[16]; };
static union cell cells[8], *list;
NOINLINE static void *take(void) { union cell *c = list; list = c->next; return c; }
NOINLINE static void give(void *p) { union cell *c = p; c->next = list; list = c; }
int main(void) { for (int i = 0; i < 8; i++) give(cells + i); char *p = take(), *q = take(); strcpy(p, "fifteen letters"); strcpy(q, p); give(p); give(take()); int n = strlen(q); give(q); return n != 15; }
#elif PROGRAM == 13 /* table of functions, a state machine */
static int digits, others; typedef void (*state)(int);
static void digit(int c) { digits += c - '0'; } static void other(int c) { others += c != 0; }
static const state table[2] = {other, digit};
int main(void) { for (const char *p = "a1b22c333"; *p; p++) table[!!isdigit((unsigned char)*p)](*p); return digits != 14 || others != 3; }
#elif PROGRAM == 14 /* arrays of variable length and alloca */
NOINLINE static int work(int n) { int a[n]; short *b = __builtin_alloca(n * sizeof *b); for (int i = 0; i < n; i++) { a[i] = i; b[i] = n - i; } int s = 0; for (int i = 0; i < n; i++) s += a[i] * b[i]; return s; }
int main(void) { return work(5) + work(9) + work(1) != 20 + 120; }
#elif PROGRAM == 15 /* blocks in and out of the heap in mixed order */
int main(void)
{
    void *blocks[16] = {0}; unsigned x = 1; int bad = 0;
    for (int i = 0; i < 120; i++) {
        x = x * 69069 + 5; unsigned k = x >> 28, n = 4 + (x >> 20 & 63);
        if (blocks[k]) { unsigned char *p = blocks[k]; bad |= p[0] != k || p[3] != k; free(p); blocks[k] = 0; }
        else { blocks[k] = malloc(n); memset(blocks[k], k, n); }
    }
    for (int k = 0; k < 16; k++) free(blocks[k]);
    return bad;
}
#elif PROGRAM == 16 /* vector instruction in the scratchpad */
NMP_SCRATCHPAD int8_t tile[64];
int main(void) { nmp_fill_t fill = {.output = tile, .count = sizeof tile, .value = 3}; nmp_fill(&fill); nmp_wait(NMP_VECTOR, 0); int s = 0; for (int i = 0; i < 64; i++) s += tile[i]; return s != 192; }
#elif PROGRAM == 17 /* transfers between DRAM and the scratchpad, through a block of the heap */
NMP_SCRATCHPAD int8_t tile[48];
int main(void)
{
    int8_t *from = malloc(48), *to = malloc(48);
    for (int i = 0; i < 48; i++) from[i] = i;
    nmp_load_t load = {.dram = from, .spm = tile, .run_bytes = 16, .count_x = 3, .count_y = 1, .dram_stride_x = 16, .spm_stride_x = 16};
    nmp_load(&load); nmp_wait(NMP_LOAD, 0);
    tile[5] = 99;
    nmp_store_t store = {.dram = to, .spm = tile, .run_bytes = 48, .count_x = 1, .count_y = 1};
    nmp_store(&store); nmp_wait(NMP_STORE, 0);
    int bad = to[5] != 99 || to[47] != 47 || from[5] != 5;
    free(from); free(to);
    return bad;
}
#elif PROGRAM == 18 /* thread-local variables, 64-bit and float arithmetic */
static __thread int counter = 3; static __thread long long total;
NOINLINE static void count(int n) { counter += n; total += (long long)counter << 33; }
int main(void) { double d = 1.5; for (int i = 0; i < 4; i++) { count(i); d *= 1.25; } return counter != 9 || total >> 33 != 22 || d < 3.66 || d > 3.67; }
#elif PROGRAM == 19 /* pointers in unions, tagged pointers, pointers to pointers */
union any { int *p; unsigned u; }; static int target[4] = {1, 2, 3, 4};
NOINLINE static void set(int **where, int *what) { *where = what; }
int main(void) { union any a = {target + 2}; a.u |= 1; int *p, *q = (int *)(a.u & ~3u), **pp = &p; set(pp, q); set(&q, target + 4); int s = 0; while (q != target) s += *--q; return *p != 3 || s != 10; }
#elif PROGRAM == 20 /* hash table with chains, keys as text */
struct entry { struct entry *next; int count; char key[]; }; static struct entry *table[7];
static struct entry *find(const char *key)
{
    unsigned h = 0; for (const char *p = key; *p; p++) h = h * 31 + *p;
    struct entry **e = &table[h % 7];
    while (*e && strcmp((*e)->key, key)) e = &(*e)->next;
    if (!*e) { *e = malloc(sizeof **e + strlen(key) + 1); (*e)->next = 0; (*e)->count = 0; strcpy((*e)->key, key); }
    return *e;
}
int main(void) { const char *text[] = {"a", "bc", "a", "def", "bc", "a", "ghij"}; for (int i = 0; i < 7; i++) find(text[i])->count++; return find("a")->count != 3 || find("bc")->count != 2 || find("none")->count; }
#endif
