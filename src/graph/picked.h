/* picked.h - reads those rows of a table that the tokens of a batch need, for lookup ops such as
 * embedding.
 *
 *   ids 7 3 7 900, table of 49,152 rows: rows 3, 7 and 900 are read; the ids become 1 0 1 2 */
#ifndef OSH_PICKED_H
#define OSH_PICKED_H
#include "graph/graph.h"
#include "tensor/device.h"

typedef struct osh_picked {
    osh_tensor *ids; // own: I32 [N] in host memory; index in `w` of the row of each id
    osh_tensor *w;   // own: [distinct ids, D] on the device, in the order of the table
} osh_picked;
/* True if weight k of the node is a table that is not read as a whole: only the rows that the
 * tokens of a batch need are read. */
bool osh_is_picked(const osh_graph *g, const osh_node *n, int k);
typedef struct osh_picked_ids {
    const int32_t *ids; // view [n], in host memory
    int64_t n;
    osh_device *device; // view: device to which the rows are copied; NULL: host memory
} osh_picked_ids;
/* Reads the rows of the table w whose indices are in `ids`. A non-finite element is an error that
 * names the tensor and the element. */
osh_status osh_picked_read(osh_ctx *cx, osh_picked *out, const osh_weight *w,
                           const osh_checkpoint *ck, const osh_picked_ids *ids);
/* Frees the rows. */
void osh_picked_deinit(osh_ctx *cx, osh_picked *r);
/* Returns the number of table rows that the node reads for one token. */
int64_t osh_picked_each(const osh_graph *g, const osh_node *n);
/* Both functions return an upper bound of the memory in bytes for looking up n ids.
 * osh_picked_bytes counts host memory, with the allocator's overhead. If the rows go to a device,
 * only a band of them is in host memory at a time. osh_picked_arena_bytes counts memory in the
 * arena of a device. */
size_t osh_picked_bytes(const osh_weight *w, int64_t n, bool on_device);
size_t osh_picked_arena_bytes(const osh_weight *w, int64_t n);
#endif
