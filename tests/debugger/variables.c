/* Variables of many types; `print EXPRESSION` gives the text after each `// PRINT`. */
enum color { RED, GREEN = 5, BLUE = -1 };
struct pair { short first; unsigned char flags : 3, mode : 5; int second; };
union word { int i; float f; unsigned char bytes[4]; };
struct node { int value; struct node *next; struct { int x, y; }; enum color color; };
typedef int (*function)(int);
int twice(int n);
struct node nodes[2] = {{7, nodes + 1, {1, 2}, GREEN}, {-8, 0, {3, 4}, BLUE}};
int matrix[2][3] = {{1, 2, 3}, {4, 5, 6}};
char text[8] = "hello";
const char *message = "a message";
double ratio = 0.1;
long long wide = -5000000000;
union word word = {0x40000000};
function handler = twice;
_Bool ready = 1;
volatile unsigned char bytes[3] = {1, 200, 'x'};
volatile int sink;

__attribute__((noinline)) int twice(int n)
{
    volatile int doubled = n * 2;
    return doubled;
}
__attribute__((noinline)) int sum(const int *p, int n)
{
    int total = 0;
    for (int i = 0; i < n; i++)
        total += twice(p[i]);
    sink = total;
    return total + n;
}
__attribute__((noinline)) int factorial(int n)
{
    if (n < 2)
        return 1;
    return n * factorial(n - 1);
}
int main(void)
{
    volatile struct pair local = {3, 2, 17, -9};
    sink = sum(matrix[1], 3) + factorial(3);
    sink = nodes[0].value + text[0] + message[0] + (int)ratio + (int)wide + word.i + ready + bytes[1];
    sink = handler(local.second);
    return 0;
}
// PRINT nodes[0] = {value = 7, next = 0x........ <nodes+20>, x = 1, y = 2, color = GREEN (5)}
// PRINT *nodes[0].next = {value = -8, next = 0x0, x = 3, y = 4, color = BLUE (-1)}
// PRINT nodes[0].next->y = 4
// PRINT matrix = {{1, 2, 3}, {4, 5, 6}}
// PRINT matrix[1] = {4, 5, 6}
// PRINT matrix[1][2] = 6
// PRINT text = "hello"
// PRINT message = 0x........ "a message"
// PRINT *message = 97 'a'
// PRINT ratio = 0.1
// PRINT wide = -5000000000
// PRINT word = {i = 1073741824, f = 2, bytes = {0, 0, 0, 64 '@'}}
// PRINT handler = 0x........ <twice (variables.c:21)>
// PRINT ready = true
// PRINT bytes[1] = 200
