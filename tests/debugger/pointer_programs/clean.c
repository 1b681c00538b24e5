/* Twenty small programs without a wrong use of a pointer. */
#include "start.h"

struct node { int value; struct node *next; };
struct point { short x, y; char name[6]; };
typedef int (*function)(int);

static int numbers[32], sorted[32], heap_words[64];
static char line[40], words[4][8];
static const int table[8] = {3, 1, 4, 1, 5, 9, 2, 6};
static const int *const parts[2] = {table, table + 4};
static int left[3][4], right[4][3], product[3][3];
static struct node nodes[10];
static unsigned seed = 1;

NOINLINE static int next_random(void) { seed = seed * 1103515245u + 12345u; return (int)(seed >> 16) & 0x7FFF; }

NOINLINE static void insertion_sort(int *p, int n)
{
    for (int i = 1; i < n; i++)
        for (int j = i; j > 0 && p[j - 1] > p[j]; j--) { int t = p[j]; p[j] = p[j - 1]; p[j - 1] = t; }
}
NOINLINE static void quick_sort(int *low, int *high)
{
    if (high - low < 2) return;
    int pivot = low[(high - low) / 2], *i = low, *j = high - 1;
    while (i <= j) {
        while (*i < pivot) i++;
        while (*j > pivot) j--;
        if (i <= j) { int t = *i; *i++ = *j; *j-- = t; }
    }
    quick_sort(low, j + 1);
    quick_sort(i, high);
}
NOINLINE static int linked_list(int n)
{
    struct node *head = 0;
    for (int i = 0; i < n; i++) { nodes[i].value = i; nodes[i].next = head; head = &nodes[i]; }
    int total = 0;
    for (struct node *p = head; p; p = p->next) total += p->value;
    return total;
}
NOINLINE static int multiply_matrices(void)
{
    for (int i = 0; i < 3; i++) for (int j = 0; j < 4; j++) left[i][j] = right[j][i] = i + j;
    for (int i = 0; i < 3; i++) for (int j = 0; j < 3; j++) {
        int s = 0;
        for (int k = 0; k < 4; k++) s += left[i][k] * right[k][j];
        product[i][j] = s;
    }
    return product[2][2];
}
NOINLINE static int copy_strings(void)
{
    char buffer[11];
    strcpy(buffer, "0123456789");
    memcpy(line, buffer, sizeof buffer);
    memmove(line + 1, line, 11);
    memset(line + 20, 'x', 3);
    line[23] = 0;
    return (int)strlen(buffer) + (int)strlen(line + 20) + strcmp(line + 1, buffer) + memcmp(line + 1, buffer, 10);
}
NOINLINE static int partly_written_string(int n)
{
    char buffer[13];
    for (int i = 0; i < n; i++) buffer[i] = 'a';
    buffer[n] = 0;
    return (int)strlen(buffer);
}
NOINLINE static int copy_structs(void)
{
    struct point a = {1, 2, "abc"}, b = a, points[3];
    for (int i = 0; i < 3; i++) points[i] = b;
    return points[2].y + points[1].name[1];
}
NOINLINE static int reverse(int n)
{
    int local[9];
    for (int i = 0; i < n; i++) local[i] = table[i];
    for (int *p = local, *q = local + n - 1; p < q; p++, q--) { int t = *p; *p = *q; *q = t; }
    return local[0] * 10 + local[n - 1];
}
NOINLINE static int from_end(const int *end, int n) { int s = 0; while (n--) s += *--end; return s; }
NOINLINE static int window(const int *p, int n)
{
    int s = 0;
    for (int i = 1; i < n - 1; i++) s += p[i - 1] + 2 * p[i] + p[i + 1];
    return s;
}
NOINLINE static int recursive(int n) { int local[3] = {n, n + 1, n + 2}; return n == 0 ? local[2] : recursive(n - 1) + local[n % 3]; }
NOINLINE static void out_parameters(int *quotient, int *rest, int a, int b) { *quotient = a / b; *rest = a % b; }
NOINLINE static int use_out_parameters(void) { int q, r; out_parameters(&q, &r, 47, 5); return q > r ? q : r; }
NOINLINE static int twice(int n) { return 2 * n; }
NOINLINE static int thrice(int n) { return 3 * n; }
NOINLINE static int function_pointers(void)
{
    function all[2] = {twice, thrice};
    int total = 0;
    for (int i = 0; i < 2; i++) total += all[i](i + 1);
    return total;
}
NOINLINE static int *allocate(int n)
{
    static int used;
    int *found = &heap_words[used];
    used += n;
    return found;
}
NOINLINE static int use_allocator(void)
{
    int *a = allocate(10), *b = allocate(20);
    for (int i = 0; i < 10; i++) a[i] = i;
    memcpy(b, a, 40);
    return b[9];
}
NOINLINE static int variable_length(int n)
{
    int local[n];
    for (int i = 0; i < n; i++) local[i] = i;
    return local[n - 1];
}
NOINLINE static int many_arguments(int a, int b, int c, int d, int e, int f, int g, int h, int i, const int *p) { return a + b + c + d + e + f + g + h + i + *p; }
NOINLINE static unsigned checksum(const void *p, int n)
{
    const uint8_t *bytes = p;
    unsigned s = 0;
    for (int i = 0; i < n; i++) s = (s << 3 | s >> 29) ^ bytes[i];
    return s;
}
NOINLINE static int rows_of_text(void)
{
    for (int i = 0; i < 4; i++) { strcpy(words[i], "row"); words[i][3] = (char)('0' + i); words[i][4] = 0; }
    return words[3][3];
}
NOINLINE static int64_t wide(int n)
{
    int64_t values[4], total = 0;
    for (int i = 0; i < 4; i++) values[i] = (int64_t)n * i << 20;
    for (int i = 0; i < 4; i++) total += values[i] / (i + 1);
    return total;
}
NOINLINE static int binary_search(const int *p, int n, int wanted)
{
    int low = 0, high = n;
    while (low < high) { int middle = (low + high) / 2; if (p[middle] < wanted) low = middle + 1; else high = middle; }
    return low;
}
NOINLINE static int pointer_array(void)
{
    int *rows[3], total = 0;
    for (int i = 0; i < 3; i++) rows[i] = left[i];
    for (int i = 0; i < 3; i++) total += rows[i][3];
    return total + *parts[1] + parts[0][3];
}

int main(void)
{
    for (int i = 0; i < 32; i++) numbers[i] = sorted[i] = next_random();
    insertion_sort(numbers, 32);
    quick_sort(sorted, sorted + 32);
    sink = memcmp(numbers, sorted, sizeof sorted);
    sink = linked_list(10) + multiply_matrices() + copy_strings() + partly_written_string(9) + copy_structs();
    sink = reverse(8) + from_end(table + 8, 8) + window(table, 8) + recursive(6) + use_out_parameters();
    sink = function_pointers() + use_allocator() + variable_length(7) + many_arguments(1, 2, 3, 4, 5, 6, 7, 8, 9, table + 7);
    sink = (int)checksum(line, sizeof line) + rows_of_text() + (int)wide(5) + binary_search(numbers, 32, 1000) + pointer_array();
    return 0;
}
