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
extern const osh_uni_range osh_uni_newer[]; // general categories of Unicode 15 to 16's characters
extern const osh_uni_range osh_uni_numeric[], osh_uni_not_punct[], osh_uni_not_mark[],
    osh_uni_not_nfk[], osh_uni_not_mn[], osh_uni_no_class[];
/* True if a range of the table, which is in ascending order, contains cp. */
bool osh_uni_in(const osh_uni_range *table, uint32_t cp);
/* Returns the number of the script; 0: any script, which joins the text before it. */
unsigned osh_cp_script(uint32_t cp);
#endif
