/* rows.h - downloads rows of a data set from the Hub's server of rows and writes them to a
 * .jsonl. */
#ifndef OSH_HUB_ROWS_H
#define OSH_HUB_ROWS_H
#include "hub/ask.h"

typedef struct osh_hub_rows { // the rows to ask for
    const char *id, *config; // config NULL: the only configuration of the data set
    const char *splits;      // such as "train" or "train[:512]"
    const char *text;        // template of the "text" of a line, with "{column}"; NULL: rows stay
                             // as they are
    const char *chat;        // column with a conversation, which alone is kept; NULL: see text
    bool system_first;       // a conversation that does not begin with a system message gets an
                             // empty one
    int64_t most;            // most rows; 0: all rows of the splits
} osh_hub_rows;
osh_status osh_hub_rows_get(osh_ctx *cx, const char *path, const osh_hub *hub,
                            const osh_hub_rows *rows);

/* Sets all members but splits and most for a data set that LLM Compressor has a name for. Returns
 * false if there is no such name, or if this program does not make its texts. */
bool osh_hub_rows_registered(osh_hub_rows *rows, const char *name);
typedef struct osh_hub_page { // a page of the server's answer
    int64_t first;            // number of the first requested row
    int64_t n;                // number of rows in the page
    int64_t n_total;          // rows of the split; -1: the answer does not have the number
    bool partial;             // the server has only a part of the split
} osh_hub_page;
/* Passes each row of the page to `put` as a line of JSON, in pieces. If `rows` is NULL, it only
 * counts and checks the rows. */
osh_status osh_hub_page_read(osh_ctx *cx, osh_hub_page *page, osh_json_walk *w,
                             const osh_hub_rows *rows, osh_json_put_fn put, void *user);
#endif
