/* rows.h - writes rows of a data set of the Hub, from its server of rows, into a .jsonl. */
#ifndef OSH_HUB_ROWS_H
#define OSH_HUB_ROWS_H
#include "hub/ask.h"

typedef struct osh_hub_rows { // the rows to ask for
    const char *id, *config; // config NULL: the only one of the data set
    const char *splits;      // "train", "train[:512]", ...
    const char *text;        // "text" of a line, with "{column}" replaced; NULL: rows as they are
    const char *chat;        // the column to keep, a conversation; NULL: see text
    bool system_first;       // a conversation without a system message first gets an empty one
    int64_t most;            // limit of rows; 0: all of the splits
} osh_hub_rows;
osh_status osh_hub_rows_get(osh_ctx *cx, const char *path, const osh_hub *hub,
                            const osh_hub_rows *rows);

/* Fills in all but splits and most for a data set that LLM Compressor has a name for. Returns false
 * if there is no such name, or if its texts are not made here. */
bool osh_hub_rows_registered(osh_hub_rows *rows, const char *name);
typedef struct osh_hub_page { // a page of the server's answer
    int64_t first;            // number of the first row that was asked for
    int64_t n;                // rows found
    int64_t n_total;          // rows of the split; -1: the answer does not say
    bool partial;             // the server has only a part of the split
} osh_hub_page;
/* Passes each row of the page as a line of JSON to put, in pieces. With rows NULL it only counts
 * and checks the rows. */
osh_status osh_hub_page_read(osh_ctx *cx, osh_hub_page *page, osh_json_walk *w,
                             const osh_hub_rows *rows, osh_json_put_fn put, void *user);
#endif
