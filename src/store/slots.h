/* slots.h - values on the disk: a file for each value, a slot at a fixed offset for each sample.
 *
 *   | bytes kept 8 | XXH3 of them 8 | data, plain or a zstd frame ... | hole if it is shorter |
 *
 * With a GPU and without compression the data of a sample begins with a block of the file, so that
 * the GPU can read it itself, and has a checksum that a GPU can compute (ops/wordsum.h):
 *
 *   | bytes kept 8 | checksum 8 | of the next sample ... | pad to a block | data | pad | data ...
 *
 * The checksum is seeded with a hash of the run, the stage, the value, the sample, its offset and
 * its size: a slot of another run, pass or offset does not pass the check. */
#ifndef OSH_SLOTS_H
#define OSH_SLOTS_H
#include "base/file.h"
#include "graph/exec.h"
#include "gpu/gpu.h"
#include "data/dataset.h"

typedef struct osh_slot_file { // the file of a value
    osh_file *file;      // own; NULL: none
    osh_cuda_file *card; // own: for reads by the GPU; NULL: not opened yet
    uint64_t stage;      // stage that stored the value
} osh_slot_file;

typedef struct osh_slots {
    const osh_graph *g;   // view
    const osh_dataset *d; // view
    osh_device *device;   // view: files are read to it in blocks; NULL: as without a GPU
    bool f16;             // samples are kept as F16 instead of the value's dtype
    bool zstd, by_card;   // by_card: the device has a stage for files
    uint64_t run;
    void *frame;          // own: [frame_room], for zstd
    size_t frame_room;
    void *transit;        // own: [transit_room], a sample between a device and the disk
    size_t transit_room;
} osh_slots;
void osh_slots_deinit(osh_ctx *cx, osh_slots *s);
void osh_slots_close(osh_ctx *cx, osh_slot_file *f);
bool osh_slots_in_blocks(const osh_slots *s); // true: data begins with a block of the file
/* Bytes of the file of a value. Not in blocks: without compression, and of samples [first, all). */
int64_t osh_slots_bytes(const osh_graph *g, const osh_dataset *d, int value, int64_t first,
                        bool in_blocks);
osh_dtype osh_slots_dtype(const osh_slots *s, int value); // dtype of the kept samples
size_t osh_slot_bytes(const osh_slots *s, int value, int64_t sample); // rows of one sample
/* Bytes of the rows of samples [first, first + n). */
size_t osh_slots_rows_bytes(const osh_slots *s, int value, int64_t first, int64_t n);

/* Write one sample from host memory, and read one to it; f->stage is the stage of the work.
 * osh_slot_get returns OSH_E_IO if the slot has other bytes than were written. */
osh_status osh_slot_put(osh_ctx *cx, osh_slots *s, const osh_slot_file *f, int value,
                        int64_t sample, const void *from);
osh_status osh_slot_get(osh_ctx *cx, osh_slots *s, const osh_slot_file *f, int value,
                        int64_t sample, void *to);
/* Write and read the samples from `first` on that fill t, whose rows are on a device. */
osh_status osh_slots_put_rows(osh_ctx *cx, osh_slots *s, const osh_slot_file *f, int value,
                              int64_t first, const osh_tensor *t);
osh_status osh_slots_get_rows(osh_ctx *cx, osh_slots *s, osh_slot_file *f, int value, int64_t first,
                              osh_tensor *t);
#endif
