/* The functions that compilers call in freestanding programs. */
#include <stddef.h>

void *memcpy(void *restrict to, const void *restrict from, size_t count)
{
    char *target = to;
    const char *source = from;
    while (count--)
        *target++ = *source++;
    return to;
}

void *memmove(void *to, const void *from, size_t count)
{
    char *target = to;
    const char *source = from;
    if (target <= source)
        return memcpy(to, from, count);
    while (count--)
        target[count] = source[count];
    return to;
}

void *memset(void *to, int value, size_t count)
{
    char *target = to;
    while (count--)
        *target++ = (char)value;
    return to;
}

int memcmp(const void *left, const void *right, size_t count)
{
    const unsigned char *a = left, *b = right;
    for (size_t i = 0; i < count; i++)
        if (a[i] != b[i])
            return a[i] - b[i];
    return 0;
}
