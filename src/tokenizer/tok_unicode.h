/* tok_unicode.h - declares tables of characters. For these characters, the Unicode version of
 * tokenizers differs from those of PCRE2 and utf8proc. */
#ifndef OSH_TOK_UNICODE_H
#define OSH_TOK_UNICODE_H
#include <stdbool.h>
#include <stdint.h>

typedef struct osh_uni_range {
    uint32_t lo, hi;
    const char *cls;
} osh_uni_range; // a range whose hi is 0 ends a table
/* Characters that Unicode 15 to 16 added, by general category and script ("sc:Latin"). */
extern const osh_uni_range osh_uni_newer[];
extern const osh_uni_range osh_uni_numeric[], osh_uni_not_punct[], osh_uni_not_mark[],
    osh_uni_not_nfk[], osh_uni_not_mn[], osh_uni_no_class[];
/* True if a range of the table contains cp. The table is in ascending order. */
bool osh_uni_in(const osh_uni_range *table, uint32_t cp);
/* True if the property has the same characters in Oniguruma as in PCRE2, when the ranges of
 * osh_uni_newer are added to PCRE2's. */
bool osh_uni_is_category(const char *name);
bool osh_uni_is_script(const char *name);
/* True if the property contains a character without its other cases (Lu has A, not a). */
bool osh_uni_is_cased(const char *name);
/* True if Oniguruma and PCRE2 match a character from lo to hi with different characters when they
 * ignore case. */
bool osh_uni_folds_apart(uint32_t lo, uint32_t hi);
/* True if Oniguruma may match the two characters with a single character when it ignores case, such
 * as "ss" with U+00DF. */
bool osh_uni_folds_together(uint32_t first, uint32_t second);
/* Returns the number of the script of a character. Returns 0 if the character has no script of its
 * own, and so takes the script of the text before it. */
unsigned osh_cp_script(uint32_t cp);
#endif
