/* slots.h - values on the disk: a file for each, a slot of fixed place for each sample.
 *
 *   | bytes kept 8 | XXH3 of them 8 | data, as it is or as a zstd frame ... | hole where it is shorter |
 *
 * With a card, and without compression, data begins with a block of the file, so that the card may read it itself, and
 * has a checksum that a card can make (ops/wordsum.h):
 *
 *   | bytes kept 8 | checksum 8 | of the next sample ... | to the end of the block | data | to its end | data ...
 *
 * The checksum is seeded with that of the run, the stage, the value, the sample, its place and its size: what another
 * run, pass or place left is not taken for it. */
#ifndef OSH_SLOTS_H
#define OSH_SLOTS_H
#include "base/file.h"
#include "graph/exec.h"
#include "gpu/gpu.h"
#include "data/dataset.h"

typedef struct osh_slot_file { // of a value
    osh_file *file;      // own; NULL: none
    osh_cuda_file *card; // own: for reads of the card; NULL: not yet
    uint64_t stage;      // that it was stored in
} osh_slot_file;

typedef struct osh_slots {
    const osh_graph *g;   // view
    const osh_dataset *d; // view
    osh_device *device;   // view: that blocks of files are read to; NULL: as without a card
    bool f16;             // what is kept is F16, not of the value's dtype
    bool zstd, by_card;   // by_card: the device has a stage for files
    uint64_t run;
    void *frame;          // own: [frame_room], for zstd
    size_t frame_room;
    void *transit;        // own: a sample on its way between a device and the disk
    size_t transit_room;
} osh_slots;
void osh_slots_deinit(osh_ctx *cx, osh_slots *s);
void osh_slots_close(osh_ctx *cx, osh_slot_file *f);
bool osh_slots_in_blocks(const osh_slots *s);
int64_t osh_slots_bytes(const osh_graph *g, const osh_dataset *d, int value, int64_t first, bool in_blocks);
osh_dtype osh_slots_dtype(const osh_slots *s, int value); // in which it is kept
size_t osh_slot_bytes(const osh_slots *s, int value, int64_t sample); // a sample's own
size_t osh_slots_rows_bytes(const osh_slots *s, int value, int64_t first, int64_t n); // of n samples side by side

/* One sample, from host memory and to it; f->stage is that of the work. */
osh_status osh_slot_put(osh_ctx *cx, osh_slots *s, const osh_slot_file *f, int value, int64_t sample, const void *from);
osh_status osh_slot_get(osh_ctx *cx, osh_slots *s, const osh_slot_file *f, int value, int64_t sample, void *to);
/* Samples [first, first + n), rows of t on a device. */
osh_status osh_slots_put_rows(osh_ctx *cx, osh_slots *s, const osh_slot_file *f, int value, int64_t first,
                              const osh_tensor *t);
osh_status osh_slots_get_rows(osh_ctx *cx, osh_slots *s, osh_slot_file *f, int value, int64_t first, osh_tensor *t);
#endif
