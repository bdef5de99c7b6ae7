/* rows.h - rows of a data set of the Hub, from its server of rows, into a .jsonl. */
#ifndef OSH_HUB_ROWS_H
#define OSH_HUB_ROWS_H
#include "hub/ask.h"

typedef struct osh_hub_rows { // which
    const char *id, *config; // config NULL: the only one that there is
    const char *splits;      // "train", "train[:512]", ...
    const char *text;        // of each row only this becomes "text", "{column}" in it replaced; NULL: rows as they are
    const char *chat;        // of each row only this column, a conversation; NULL: see text
    bool system_first;       // a conversation that begins without one gets an empty system message
    int64_t most;            // rows; 0: all of the split
} osh_hub_rows;
osh_status osh_hub_rows_get(osh_ctx *cx, const char *path, const osh_hub *hub, const osh_hub_rows *rows);

/* What LLM Compressor's name of a data set means there: all but splits and most; false: no such
 * name, or one whose texts are not made here. */
bool osh_hub_rows_registered(osh_hub_rows *rows, const char *name);
typedef struct osh_hub_page { // of the server's answer
    int64_t first;            // the number of the first row that was asked for
    int64_t n;                // rows that were found
    int64_t n_total;          // of the split; -1: the answer does not say
    bool partial;             // the server has a part of the split only
} osh_hub_page;
/* Each row of the page as a line of JSON to put, a piece at a time. rows NULL: the rows are
 * counted and checked only. */
osh_status osh_hub_page_read(osh_ctx *cx, osh_hub_page *page, osh_json_walk *w,
                             const osh_hub_rows *rows, osh_json_put_fn put, void *user);
#endif
