/* ahead.h - has a thread that reads items (weights) before the caller needs them. The caller works
 * on one item at a time. Meanwhile the thread reads the next item, so at most two items are in
 * memory. The plan decides whether memory for two items exists. If not, the caller's thread reads
 * each item when the caller waits for it. */
#ifndef OSH_READ_AHEAD_H
#define OSH_READ_AHEAD_H
#include "base/base.h"

typedef struct osh_read_ahead osh_read_ahead;
typedef struct osh_read_items {
    /* Reads an item; cx is the context of the thread that reads. A long read checks
     * osh_read_ahead_stops, and may then return OSH_OK early. */
    osh_status (*read)(osh_ctx *cx, void *user, int item);
    void *user;  // view
    int n;       // number of items
    bool ahead;  // true if a thread reads items before the caller waits for them
    bool many;   // true for many items: the profile writes no record for each item
} osh_read_items;

/* Makes a reader: *out, own. If of->ahead is true, starts the thread, which reads item 0 first.
 * Sets *out before the thread starts. */
osh_status osh_read_ahead_start(osh_ctx *cx, osh_read_ahead **out, const osh_read_items *of);
/* Waits until the thread has read the caller's item. Without a thread, reads the item. Fails with
 * the error of the read if the read failed. */
osh_status osh_read_ahead_wait(osh_ctx *cx, osh_read_ahead *r);
/* Ends the caller's work on its item. The next item becomes the caller's item, and the thread
 * begins to read the item after that one. */
void osh_read_ahead_next(osh_read_ahead *r);
/* True if the result of a read is not needed, because the reader is being freed or the job is
 * interrupted. */
bool osh_read_ahead_stops(osh_ctx *cx, const osh_read_ahead *r);
/* Stops and joins the thread; accepts NULL. */
void osh_read_ahead_free(osh_ctx *cx, osh_read_ahead *r);
#endif
