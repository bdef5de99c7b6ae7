/* slots.h - stores values on the disk. Each value has a file, in which each sample has a slot at a
 * fixed offset. A slot has these parts:
 *
 *   | u64 bytes of data | u64 XXH3 of data | data, plain or zstd frame | hole if data is shorter |
 *
 * A second layout, the layout with blocks, is used with a GPU if samples are not compressed. The
 * data of each sample then begin at a block of the file, so that the GPU itself can read them. The
 * checksum is that of ops/wordsum.h, which a GPU can compute in parallel. The headers of all
 * samples are at the beginning of the file:
 *
 *   | u64 bytes of data | u64 checksum | next header ... | pad to a block | data | pad | data ...
 *
 * The checksum is seeded with a hash of the run, the stage (osh_acts_stage), the value, the sample,
 * the sample's offset and its size. So the check fails if the slot is of another run or stage, or
 * was written at another offset. */
#ifndef OSH_SLOTS_H
#define OSH_SLOTS_H
#include "base/file.h"
#include "graph/exec.h"
#include "data/dataset.h"

typedef struct osh_slot_file { // the file of one value
    osh_file *file;      // own: the open file; NULL: it is not created yet
    /* own: handle with which the GPU reads the file; NULL: it is not opened yet */
    osh_device_file *gpu;
    uint64_t stage;      // stage in which the value was stored (osh_acts_stage)
} osh_slot_file;

typedef struct osh_slots {
    const osh_graph *g;   // view
    const osh_dataset *d; // view
    /* Device to whose memory files are read. NULL: there is none, and files do not have the layout
     * with blocks. */
    osh_device *device;   // view
    bool f16;             // true if samples are stored as F16, and not in the dtype of the value
    /* zstd: true if samples are compressed.
     * by_gpu: true if the GPU itself reads files. */
    bool zstd, by_gpu;
    uint64_t run;
    void *frame;          // own: [frame_room] buffer for zstd
    size_t frame_room;
    void *transit;        // own [transit_room]: buffer for a sample between a device and the disk
    size_t transit_room;
} osh_slots;
/* Frees the buffers. */
void osh_slots_deinit(osh_ctx *cx, osh_slots *s);
/* Closes the file of a value on the host and on the GPU. */
void osh_slots_close(osh_ctx *cx, const osh_slots *s, osh_slot_file *f);
/* Returns how many bytes the file of a value has. If in_blocks is true, the file has all samples in
 * the layout with blocks. Otherwise the file has the uncompressed samples from `first` on, in the
 * layout without blocks. */
int64_t osh_slots_bytes(const osh_graph *g, const osh_dataset *d, int value, int64_t first,
                        bool in_blocks);
/* returns the dtype in which samples of the value are stored */
osh_dtype osh_slots_dtype(const osh_slots *s, int value);
/* Returns how many bytes the uncompressed rows of one sample have. */
size_t osh_slot_bytes(const osh_slots *s, int value, int64_t sample);
/* Returns the number of bytes of the rows of the samples [first, first + n), without
 * compression. */
size_t osh_slots_rows_bytes(const osh_slots *s, int value, int64_t first, int64_t n);

/* osh_slot_put writes one sample from host memory to the file f, and osh_slot_get reads one sample
 * from f to host memory. The caller must have set f->stage. osh_slot_get returns OSH_E_IO if the
 * checksum of the slot is wrong. */
osh_status osh_slot_put(osh_ctx *cx, osh_slots *s, const osh_slot_file *f, int value,
                        int64_t sample, const void *from);
osh_status osh_slot_get(osh_ctx *cx, osh_slots *s, const osh_slot_file *f, int value,
                        int64_t sample, void *to);
/* t is in device memory, and has the rows of consecutive samples from sample `first` on.
 * osh_slots_put_rows writes these samples to the file f, and osh_slots_get_rows reads them from
 * f. */
osh_status osh_slots_put_rows(osh_ctx *cx, osh_slots *s, const osh_slot_file *f, int value,
                              int64_t first, const osh_tensor *t);
osh_status osh_slots_get_rows(osh_ctx *cx, osh_slots *s, osh_slot_file *f, int value, int64_t first,
                              osh_tensor *t);
#endif
