/* rows.h - downloads rows of a data set from the Hub's datasets server (the server of rows) and
 * writes them to a .jsonl file. */
#ifndef OSH_HUB_ROWS_H
#define OSH_HUB_ROWS_H
#include "hub/ask.h"

typedef struct osh_hub_rows { // a request for rows of a data set
    /* Names of the data set and of its configuration. If `config` is NULL, the data set must have
     * only one configuration. */
    const char *id, *config;
    const char *splits;      // splits and ranges of rows, such as "train" or "train[:512]"
    /* Template for the key "text" of a line, with "{column}"; NULL: rows are not changed. */
    const char *text;
    /* Name of the column with a conversation; a line has only this column. NULL: `text` is used. */
    const char *chat;
    /* True if conversations that do not begin with a system message get an empty system message. */
    bool system_first;
    int64_t most;            // largest number of rows; 0: all rows of the splits
} osh_hub_rows;
/* Writes the rows of a data set of the Hub to the file `path` in hub->home, one JSON line for each
 * row. Writes under a temporary name first, so `path` never names an incomplete file. Fails if the
 * splits have no row. */
osh_status osh_hub_rows_get(osh_ctx *cx, const char *path, const osh_hub *hub,
                            const osh_hub_rows *rows);

/* Sets all members of *rows except `splits` and `most` for the data set that LLM Compressor calls
 * `name`. Returns false if there is no such name, or if this program cannot make the texts of the
 * data set. */
bool osh_hub_rows_registered(osh_hub_rows *rows, const char *name);
typedef struct osh_hub_page { // properties of a page of the server's answer
    int64_t first;            // index of the first requested row in the split
    int64_t n;                // number of rows in the page
    int64_t n_total; // number of rows in the split; -1: the answer does not have this number
    bool partial;             // true if the server has only some rows of the split
} osh_hub_page;
/* Reads the page and passes each row to `put` as a line of JSON, in chunks. If `rows` is NULL, only
 * counts and checks the rows. */
osh_status osh_hub_page_read(osh_ctx *cx, osh_hub_page *page, osh_json_walk *w,
                             const osh_hub_rows *rows, osh_json_put_fn put, void *user);
#endif
