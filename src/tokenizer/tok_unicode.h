/* tok_unicode.h - tables of the characters on which the Unicode versions inside tokenizers and
 * inside our libraries differ. */
#ifndef OSH_TOK_UNICODE_H
#define OSH_TOK_UNICODE_H
#include <stdbool.h>
#include <stdint.h>

typedef struct osh_uni_range {
    uint32_t lo, hi;
    const char *cls;
} osh_uni_range; // a table ends with hi == 0
/* General categories of Unicode 15 to 16's characters, and scripts ("sc:Latin"). */
extern const osh_uni_range osh_uni_newer[];
extern const osh_uni_range osh_uni_numeric[], osh_uni_not_punct[], osh_uni_not_mark[],
    osh_uni_not_nfk[], osh_uni_not_mn[], osh_uni_no_class[];
/* True if a range of the table, which is in ascending order, contains cp. */
bool osh_uni_in(const osh_uni_range *table, uint32_t cp);
/* True if a property of this name has the same characters in Oniguruma and in PCRE2 with
 * osh_uni_newer. */
bool osh_uni_is_category(const char *name);
bool osh_uni_is_script(const char *name);
/* True if the other cases of the property's characters are not all in it. */
bool osh_uni_is_cased(const char *name);
/* True if a character from lo to hi matches others in Oniguruma without case than in PCRE2. */
bool osh_uni_folds_apart(uint32_t lo, uint32_t hi);
/* True if two characters, one after the other, may match a single one in Oniguruma without case. */
bool osh_uni_folds_together(uint32_t first, uint32_t second);
/* Returns the number of the script; 0: any script, which joins the text before it. */
unsigned osh_cp_script(uint32_t cp);
#endif
