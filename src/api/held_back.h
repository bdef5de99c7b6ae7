/* held_back.h - finds rows of the calibration data set that are not used for the calibration, but
 * for an evaluation. */
#ifndef OSH_HELD_BACK_H
#define OSH_HELD_BACK_H
#include "match/options.h"

typedef struct osh_held_back {
    char splits[64];  // the rows, such as "rows[512:516]"; "": no rows are evaluated
    char name[96];    // description of the rows, such as "rows 513 to 516"
    /* view: reason why no rows can be chosen; NULL: rows are chosen, or none are wanted */
    const char *not;
    int64_t host;     // smallest --host-memory for the evaluation of the rows
} osh_held_back;

/* Chooses the rows. Reads the data only up to the last of these rows, and does not tokenize it. */
osh_status osh_held_back_find(osh_ctx *cx, osh_held_back *h, const osh_options *opt);
#endif
