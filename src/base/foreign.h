/* foreign.h - words that users bring from other tools, and what to type here instead. */
#ifndef OSH_FOREIGN_H
#define OSH_FOREIGN_H

typedef enum osh_foreign_kind {
    OSH_FOREIGN_COMMAND, // "quantize"
    OSH_FOREIGN_FLAG,    // "bits", without its dashes; "m" for -m
    OSH_FOREIGN_SCHEME,  // "int4"
    OSH_FOREIGN_VALUE,   // "method=awq"
} osh_foreign_kind;

/* Returns what to type instead, for the end of a message: "want --num-bits". Static; NULL: the word
 * is not in the tables. Case does not matter, and '-' equals '_'. */
const char *osh_foreign(osh_foreign_kind kind, const char *word);
#endif
