/* A filter: an inlined function, a call in a loop, and a line that is never executed. */

int samples[16];
int result[8];
static const signed char taps[4] = {1, -2, 3, 4};

static inline int multiply(int a, int b) {
    int product = a * b;
    return product >> 1;
}

__attribute__((noinline)) int fir(const int *x) {
    int sum = 0;
    for (int i = 0; i < 4; i++)
        sum += multiply(x[i], taps[i]);
    return sum;
}

int main(void) {
    for (int i = 0; i < 8; i++)
        result[i] = fir(&samples[i]);
    if (result[0] > 100)
        return fir(result);
    return result[0];
}
