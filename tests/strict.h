/* strict.h - checks that hold to the bit on the played card, and that a real one need not pass to be of use. There a
 * failure says what it means, and the tolerant twin decides: a line that begins with STRICT goes into the table of
 * scripts/check-gpu.sh. */
#ifndef OSH_STRICT_H
#define OSH_STRICT_H
#include <stdbool.h>
#include <stdio.h>

/* Inside a cmocka test. nearly: the twin. means: what follows from exact being false while nearly is true. */
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
