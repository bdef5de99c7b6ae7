/* slots.h - stores values on the disk: a file for each value, and in it a slot at a fixed offset
 * for each sample.
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
    osh_file *file;      // own; NULL: no file yet
    osh_cuda_file *card; // own: handle for reads by the GPU; NULL: not yet opened
    uint64_t stage;      // stage that stored the value
} osh_slot_file;

typedef struct osh_slots {
    const osh_graph *g;   // view
    const osh_dataset *d; // view
    osh_device *device;   // view: device to which files are read in blocks; NULL: as without a GPU
    bool f16;             // samples are stored as F16 instead of the value's dtype
    bool zstd, by_card;   // by_card: the GPU itself reads files (its device has a stage)
    uint64_t run;
    void *frame;          // own: [frame_room] buffer for zstd
    size_t frame_room;
    void *transit;        // own: [transit_room] buffer for a sample between a device and the disk
    size_t transit_room;
} osh_slots;
void osh_slots_deinit(osh_ctx *cx, osh_slots *s);
void osh_slots_close(osh_ctx *cx, osh_slot_file *f);
/* Returns the bytes of the file of a value. If in_blocks is false: the bytes of samples [first,
 * all) without compression. */
int64_t osh_slots_bytes(const osh_graph *g, const osh_dataset *d, int value, int64_t first,
                        bool in_blocks);
osh_dtype osh_slots_dtype(const osh_slots *s, int value); // dtype of the stored samples
size_t osh_slot_bytes(const osh_slots *s, int value, int64_t sample); // bytes of the rows of one
                                                                      // sample
/* Returns the bytes of the rows of samples [first, first + n). */
size_t osh_slots_rows_bytes(const osh_slots *s, int value, int64_t first, int64_t n);

/* Write one sample from host memory, and read one to host memory. f->stage is the stage of the
 * work. osh_slot_get returns OSH_E_IO if the slot has other bytes than were written. */
osh_status osh_slot_put(osh_ctx *cx, osh_slots *s, const osh_slot_file *f, int value,
                        int64_t sample, const void *from);
osh_status osh_slot_get(osh_ctx *cx, osh_slots *s, const osh_slot_file *f, int value,
                        int64_t sample, void *to);
/* Write and read the samples from `first` on whose rows are those of t, on a device. */
osh_status osh_slots_put_rows(osh_ctx *cx, osh_slots *s, const osh_slot_file *f, int value,
                              int64_t first, const osh_tensor *t);
osh_status osh_slots_get_rows(osh_ctx *cx, osh_slots *s, osh_slot_file *f, int value, int64_t first,
                              osh_tensor *t);
#endif
