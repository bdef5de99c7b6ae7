/* near.h - the known name that a mistaken one is nearest to, for "did you mean". */
#ifndef OSH_NEAR_H
#define OSH_NEAR_H
#include <stddef.h>

typedef struct osh_near {
    const char *word; // view: what was written
    int distance;     // of name; beyond the limit: there is none
    char name[200];   // the nearest so far; of several the first
    char hint[240];
} osh_near;

void osh_near_init(osh_near *n, const char *word);
/* The distance counts letters that are missing, too many, others, or swapped with the next; '-' and '_', large and
 * small are the same. A name that begins with the word, or has it as a part, is near, too. */
void osh_near_see(osh_near *n, const char *name);
/* "; did you mean --output?" for before "--", or "". Lives as long as n. */
const char *osh_near_hint(osh_near *n, const char *before);
#endif
