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

/* What LLM Compressor's name of a data set means there: all but splits and most; false: no such name, or one whose
 * texts are not made here. */
bool osh_hub_rows_registered(osh_hub_rows *rows, const char *name);
typedef struct osh_hub_page { // of the server's answer; view
    const char *text; // [n]
    size_t n;
    int64_t first; // the number of the first row that was asked for
} osh_hub_page;
/* A page's rows appended as lines of JSON. *n: how many. */
osh_status osh_hub_rows_read(osh_ctx *cx, osh_buf *to, int64_t *n, const osh_hub_page *page, const osh_hub_rows *rows);
#endif
