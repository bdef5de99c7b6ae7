/* ahead.h - a thread that reads items (weights) while the caller works on earlier ones. The caller
 * works on one item at a time. Meanwhile the thread reads the next item, so at most two items are
 * in memory. */
#ifndef OSH_READ_AHEAD_H
#define OSH_READ_AHEAD_H
#include "base/base.h"

typedef struct osh_read_ahead osh_read_ahead;
typedef struct osh_read_items {
    /* Reads an item on the thread; cx is the context of the thread. A long read checks
     * osh_read_ahead_stops, and may then return OSH_OK early. */
    osh_status (*read)(osh_ctx *cx, void *user, int item);
    void *user; // view
    int n;      // number of items
} osh_read_items;

/* Starts the thread, which begins to read item 0. Sets *out (own) before the thread starts. */
osh_status osh_read_ahead_start(osh_ctx *cx, osh_read_ahead **out, const osh_read_items *of);
/* Waits until the caller's item is read. Fails with the thread's error if the read failed. */
osh_status osh_read_ahead_wait(osh_ctx *cx, osh_read_ahead *r);
/* Ends the caller's work on its item. The next item becomes the caller's item, and the thread
 * begins to read the item after that one. */
void osh_read_ahead_next(osh_read_ahead *r);
bool osh_read_ahead_stops(const osh_read_ahead *r); // true if a read may stop early
/* Stops and joins the thread; accepts NULL. */
void osh_read_ahead_free(osh_ctx *cx, osh_read_ahead *r);
#endif
