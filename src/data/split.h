/* split.h - finds the rows that a split such as "train[:512]", "train[10%:20%]" or
 * "train[:50]+test[:50]" selects. */
#ifndef OSH_SPLIT_H
#define OSH_SPLIT_H
#include "base/base.h"

/* Checks the split `text`; NULL means all rows. Sets *wants_count to true if the selected rows
 * depend on the number of rows of the file. The names of the splits are not checked. */
osh_status osh_split_check(osh_ctx *cx, bool *wants_count, const char *text);
/* Returns part i of a sum such as "train[:50]+test[:50]" (view of `text`, *n bytes), or NULL if
 * there are fewer parts. */
const char *osh_split_part(const char *text, int i, size_t *n);
/* True if every part of a sum such as "train[:50]+test[:50]" has rows in brackets. */
bool osh_split_is_sliced(const char *text);
/* Sets [*first, *end) to the rows of part i in a file with n_rows rows. osh_split_check must have
 * accepted `text`. Returns false if there is no part i. n_rows may be INT64_MAX if osh_split_check
 * set *wants_count to false. */
bool osh_split_rows(int64_t *first, int64_t *end, const char *text, int i, int64_t n_rows);
#endif
