/* The standard streams of picolibc: output goes to the console of the core, there is no input. */
#include <stdio.h>

#include "nmp.h"

static int put(char character, FILE *stream)
{
    (void)stream;
    nmp_putc(character);
    return (unsigned char)character;
}

static FILE console = FDEV_SETUP_STREAM(put, NULL, NULL, _FDEV_SETUP_WRITE);

FILE *const stdin = &console;
FILE *const stdout = &console;
FILE *const stderr = &console;
