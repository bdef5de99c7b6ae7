/* bands.h - tensors that go through memory in bands of rows (output/stream.h), and the output that is read again in
 * chunks (output/check.c): how large a band is, what its buffers take.
 *
 * A Linear of 4,096 x 4,096 in BF16 has rows of 8 KiB, so a band has 128 rows and there are 32 of them. */
#ifndef OSH_BANDS_H
#define OSH_BANDS_H
#include "plan/plan.h"

enum { OSH_BAND_BYTES = 1 << 20 };  // of the source
enum { OSH_BAND_ITEM_BYTES = 4608 }; // at most, of what is known of a tensor on its way

/* Threads of a stream: some wait for the disk while as many as the program may use compute. */
int osh_stream_most(const osh_plan *p, int n_threads);
int osh_stream_workers(int most, int64_t n_bytes); // for so much data: no more than there are bands
bool osh_stream_takes(const osh_plan *p, int linear); // else it is rounded in one piece
bool osh_streams_all(const osh_plan *p); // nothing but a stream runs
/* The largest weight of those that share its global scale is found by the stream that rounds it: bands are looked at
 * and held until all of them are, and those that find no room are read again. Else osh_globals_find does it before. */
bool osh_stream_looks(const osh_plan *p, int linear);
/* What a Linear keeps until it is written, and how much all that are on their way may: the next one waits for it. */
int64_t osh_stream_stays(const osh_plan *p, int linear);
int64_t osh_stream_stays_most(int64_t largest, int n_workers);
int osh_held_most(const osh_plan *p); // bands of the largest of those groups; 0: none
size_t osh_held_slot_bytes(const osh_plan *p); // whole blocks of one that is held
enum { OSH_HELD_SLOT = 24 }; // at most, of what is known of one
int64_t osh_held_reread(const osh_plan *p); // bytes of the source that are read twice
/* Host memory of a stream of n_workers that holds p->memory.n_held bands, Linears' or any other's; device: the part of
 * Linears. */
int64_t osh_stream_bytes(const osh_plan *p, int n_workers, int n_threads, int64_t *device);

int64_t osh_band_unit(const osh_linear *l); // rows that belong together
int64_t osh_band_rows(int64_t n_rows, size_t row_bytes, int64_t unit); // of a band
int64_t osh_band_of_linear(const osh_linear *l); // rows, which may be more than it has
int64_t osh_band_count(const osh_linear *l);
size_t osh_band_row_in(const osh_linear *l);
/* Of a copy: a byte; an element where it is changed; columns of them where it is dequantized. */
size_t osh_band_row_copy(const osh_plan *p, int64_t out, int64_t *columns);
size_t osh_band_row_out(const osh_plan *p, const osh_linear *l);

typedef struct osh_band_room { // bytes of a worker's buffers
    size_t in, out, codes, sums;
} osh_band_room;
void osh_band_room_linear(osh_band_room *r, const osh_plan *p, int linear); // grows to what it needs
void osh_band_room_copy(osh_band_room *r, const osh_plan *p, int64_t out);
size_t osh_band_unit_bytes(const osh_plan *p, int64_t tensor); // of the source: what is changed together
size_t osh_band_room_blocks(const osh_band_room *r); // of one worker: in and out

/* Output tensors that are large enough to be read again beside the run, and what that takes. */
bool osh_early_takes(const osh_plan *p, int64_t out);
int64_t osh_early_count(const osh_plan *p);
int64_t osh_early_bytes(const osh_plan *p);
int64_t osh_check_chunk(const osh_plan *p); // bytes of a chunk
size_t osh_check_blocks(const osh_plan *p, int n_threads); // buffers of all of them
#endif
