/* near.h - finds the known name nearest to a mistyped one, for "did you mean". */
#ifndef OSH_NEAR_H
#define OSH_NEAR_H
#include <stddef.h>

typedef struct osh_near {
    const char *word; // view: the mistyped word
    int distance;     // distance of `name` from the word; above the limit while `name` is empty
    char name[200];   // nearest name so far; the first one of equally near names
    char hint[240];
} osh_near;

/* Returns the letter by which names are compared: '-' equals '_', and case does not matter. */
char osh_near_letter(char c);
void osh_near_init(osh_near *n, const char *word);
/* Compares a known name with the word. The distance counts missing, extra, wrong and swapped
 * letters; '-' equals '_', and case does not matter. A name that begins with the word, or contains
 * it, is near too. */
void osh_near_see(osh_near *n, const char *name);
/* Returns "; did you mean --output?" if before is "--", or "". View: lives as long as n. */
const char *osh_near_hint(osh_near *n, const char *before);
#endif
