/* tok_pattern.h - declares the interface between tok_step.c and tok_pattern.c. */
#ifndef OSH_TOK_PATTERN_H
#define OSH_TOK_PATTERN_H
#include <stdbool.h>

/* True if s is X, X+, X{n}, X{n,} or X{n,m} with n up to 3. X is a character, brackets without
 * escapes, or one of \s \d \n \r \t. */
bool osh_tok_is_one_atom(const char *s);
#endif
