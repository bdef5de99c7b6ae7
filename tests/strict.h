/* strict.h - defines checks that must hold exactly on the emulated GPU, and nearly on a real GPU.
 *
 * If an exact check fails on a real GPU, the test prints the consequence, and fails only if the
 * tolerant condition is false, too. The printed line begins with STRICT. scripts/check-gpu.sh puts
 * such lines into a table. */
#ifndef OSH_STRICT_H
#define OSH_STRICT_H
#include <stdbool.h>
#include <stdio.h>

/* Checks the condition `what` inside a cmocka test. `exact` is the exact condition, and `nearly` is
 * the tolerant condition. `means` is the message if `exact` is false and `nearly` is true. */
static inline void strict(bool exact, bool nearly, const char *what, const char *means)
{
    if (exact) return;
#ifdef OSH_PLAY
    nearly = false;
#endif
    if (!nearly) fail_msg("%s: not true, nor nearly", what);
    printf("STRICT %s: not true, but nearly. %s\n", what, means);
}
#endif
