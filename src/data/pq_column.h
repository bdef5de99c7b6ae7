/* pq_column.h - reads one column of a row group of a Parquet file, page by page. Memory has one
 * page and the dictionary of the column. */
#ifndef OSH_PQ_COLUMN_H
#define OSH_PQ_COLUMN_H
#include "base/file.h"
#include "data/pq_values.h"

typedef struct osh_pq_chunk {               // a column of a row group, as the footer describes it
    /* from: offset of the chunk in the file; n_bytes: its size. */
    int64_t codec, n_values, from, n_bytes;
} osh_pq_chunk;

typedef struct osh_pq_column {
    osh_file *file; // view
    char *what;     // own: file and column, for messages
    int type, max_rep, max_def;
    osh_pq_chunk chunk;
    /* at: offset of the next header in the file; n_seen: number of levels in the pages read so
     * far. */
    int64_t at, n_seen;
    /* own. head: bytes of a header.
     * packed: a page as the file has it.
     * page: decompressed levels and values of the page. */
    uint8_t *head, *packed, *page;
    size_t head_cap, packed_cap, page_cap;
    osh_pq_dictionary dictionary; // own
    osh_pq_hybrid reps, defs;
    osh_pq_values values; // own: the member `last` of `values`
    int64_t n_left;       // number of levels of the current page that were not yet read
    bool ready;           // true: rep and def are the levels of the next value
    bool ended;           // true: the column has no more values; `rep` is then 0
    int rep, def;
} osh_pq_column;

/* Begins to read a column of a row group. The caller has set `file`, `what`, `type`, `max_rep` and
 * `max_def`. */
void osh_pq_column_begin(osh_ctx *cx, osh_pq_column *c, const osh_pq_chunk *chunk);
/* Frees the buffers of the column. */
void osh_pq_column_deinit(osh_ctx *cx, osh_pq_column *c);
/* Reads the levels of the next value into c->rep and c->def, or sets c->ended. Does nothing if
 * c->ready is true. */
osh_status osh_pq_column_peek(osh_ctx *cx, osh_pq_column *c);
/* Decodes the current value if it is not null, and moves to the next value. */
osh_status osh_pq_column_take(osh_ctx *cx, osh_pq_column *c, osh_pq_value *out);
#endif
