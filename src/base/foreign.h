/* foreign.h - finds the flag, command or value of this program for a word that other tools use. */
#ifndef OSH_FOREIGN_H
#define OSH_FOREIGN_H

typedef enum osh_foreign_kind {
    OSH_FOREIGN_COMMAND, // "quantize"
    OSH_FOREIGN_FLAG,    // "bits" or "m": a flag without its dashes
    OSH_FOREIGN_SCHEME,  // "int4"
    OSH_FOREIGN_VALUE,   // "method=awq"
} osh_foreign_kind;

/* Returns the end of a message that names the replacement of a word, such as "want --num-bits"
 * (static). Returns NULL if the word is not in the tables. Case does not matter, and '-' equals
 * '_'. */
const char *osh_foreign(osh_foreign_kind kind, const char *word);
#endif
