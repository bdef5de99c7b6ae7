/* near.h - finds the known name nearest to a mistyped one, for "did you mean". */
#ifndef OSH_NEAR_H
#define OSH_NEAR_H
#include <stddef.h>

typedef struct osh_near {
    const char *word; // view: the mistyped word
    /* distance between `name` and `word`; while `name` is empty, a number above the allowed
     * distances */
    int distance;
    char name[200];   // nearest name so far; of equally near names, the first
    char hint[240];
} osh_near;

/* Returns the letter by which names are compared: '-' equals '_', and case does not matter. */
char osh_near_letter(char c);
/* Starts a search for the known name that is nearest to `word` (view). */
void osh_near_init(osh_near *n, const char *word);
/* Compares a known name with the word. The distance counts missing, extra, wrong and swapped
 * letters; '-' equals '_', and case does not matter. A name that contains the word is near too. */
void osh_near_see(osh_near *n, const char *name);
/* Returns a text such as "; did you mean --output?", in which `before` ("--") precedes the nearest
 * name. Returns "" if no name is near, or if the word is a known name. The text is a view, valid as
 * long as n. */
const char *osh_near_hint(osh_near *n, const char *before);
#endif
