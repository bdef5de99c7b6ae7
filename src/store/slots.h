/* slots.h - stores values on the disk: each value has a file, and in the file each sample has a
 * slot at a fixed offset.
 *
 *   | u64 bytes of data | u64 XXH3 of data | data, plain or zstd frame | hole if data is shorter |
 *
 * The layout with blocks is used with a GPU and without compression. The data of each sample begins
 * at a block of the file, so that the GPU itself can read the data. The checksum is that of
 * ops/wordsum.h, which a GPU can compute in parallel. The headers of all samples are at the
 * beginning of the file:
 *
 *   | u64 bytes of data | u64 checksum | next header ... | pad to a block | data | pad | data ...
 *
 * The checksum is seeded with a hash of the run, the stage (osh_acts_stage), the value, the sample,
 * the sample's offset and its size. Thus the check fails if the slot is of another run or stage, or
 * was written at another offset. */
#ifndef OSH_SLOTS_H
#define OSH_SLOTS_H
#include "base/file.h"
#include "graph/exec.h"
#include "data/dataset.h"

typedef struct osh_slot_file { // the file of one value
    osh_file *file;      // own: the open file; NULL: not yet created
    osh_device_file *gpu; // own: handle by which the GPU reads the file; NULL: not yet opened
    uint64_t stage;      // number of the stage in which the value was stored (osh_acts_stage)
} osh_slot_file;

typedef struct osh_slots {
    const osh_graph *g;   // view
    const osh_dataset *d; // view
    /* Device into whose memory files are read. NULL: there is none, and files do not have the
     * layout with blocks. */
    osh_device *device;   // view
    bool f16;             // true if samples are stored as F16 instead of the value's dtype
    /* zstd: true if samples are compressed.
     * by_gpu: true if the GPU itself reads files. */
    bool zstd, by_gpu;
    uint64_t run;
    void *frame;          // own: [frame_room] buffer for zstd
    size_t frame_room;
    void *transit;        // own: [transit_room] buffer for a sample between a device and the disk
    size_t transit_room;
} osh_slots;
void osh_slots_deinit(osh_ctx *cx, osh_slots *s);
void osh_slots_close(osh_ctx *cx, const osh_slots *s, osh_slot_file *f);
/* Returns the bytes of a value's file. If in_blocks is true, the file has all samples in the layout
 * with blocks. If not, the file has the samples from `first` on in the other layout, without
 * compression. */
int64_t osh_slots_bytes(const osh_graph *g, const osh_dataset *d, int value, int64_t first,
                        bool in_blocks);
osh_dtype osh_slots_dtype(const osh_slots *s, int value); // returns the dtype of the stored samples
/* Returns the bytes of the rows of one sample. */
size_t osh_slot_bytes(const osh_slots *s, int value, int64_t sample);
/* Returns the bytes of the rows of samples [first, first + n). */
size_t osh_slots_rows_bytes(const osh_slots *s, int value, int64_t first, int64_t n);

/* osh_slot_put writes one sample from host memory to the file, and osh_slot_get reads one sample to
 * host memory. The caller must have set f->stage. osh_slot_get returns OSH_E_IO if the checksum of
 * the slot is wrong. */
osh_status osh_slot_put(osh_ctx *cx, osh_slots *s, const osh_slot_file *f, int value,
                        int64_t sample, const void *from);
osh_status osh_slot_get(osh_ctx *cx, osh_slots *s, const osh_slot_file *f, int value,
                        int64_t sample, void *to);
/* t is in device memory and contains the rows of consecutive samples, beginning with sample
 * `first`. osh_slots_put_rows writes these samples to the file, osh_slots_get_rows reads them from
 * the file. */
osh_status osh_slots_put_rows(osh_ctx *cx, osh_slots *s, const osh_slot_file *f, int value,
                              int64_t first, const osh_tensor *t);
osh_status osh_slots_get_rows(osh_ctx *cx, osh_slots *s, osh_slot_file *f, int value, int64_t first,
                              osh_tensor *t);
#endif
