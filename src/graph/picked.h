/* picked.h - the rows of a table that a batch's tokens name, instead of the table: what an op with `lookup` runs on.
 *
 *   ids 7 3 7 900, a table of 49,152 rows: rows 3, 7 and 900 are read, in that order; the ids become 1 0 1 2 */
#ifndef OSH_PICKED_H
#define OSH_PICKED_H
#include "graph/graph.h"
#include "tensor/device.h"

typedef struct osh_picked {
    osh_tensor *ids; // own: I32 [N], numbers of rows of w, in host memory
    osh_tensor *w;   // own: [distinct rows, D], in the order of the table; on the device
} osh_picked;
/* Whether weight k of the node is read like this, and not loaded. */
bool osh_is_picked(const osh_graph *g, const osh_node *n, int k);
typedef struct osh_picked_ids {
    const int32_t *ids; // view [n], in host memory
    int64_t n;
    osh_device *device; // view: where the rows go; NULL: host memory
} osh_picked_ids;
/* A row that is not finite fails naming tensor and element. */
osh_status osh_picked_read(osh_ctx *cx, osh_picked *out, const osh_weight *w, const osh_checkpoint *ck,
                           const osh_picked_ids *ids);
void osh_picked_deinit(osh_ctx *cx, osh_picked *r);
/* What that takes for n tokens, gross, an upper bound: on a device in host memory, and in the arena beside. */
size_t osh_picked_bytes(const osh_weight *w, int64_t n);
size_t osh_picked_arena_bytes(const osh_weight *w, int64_t n);
#endif
