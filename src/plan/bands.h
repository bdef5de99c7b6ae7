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
/* Host memory of a stream of n_workers, Linears' or any other's; device: the part of Linears. */
int64_t osh_stream_bytes(const osh_plan *p, int n_workers, int n_threads, int64_t *device);

int64_t osh_band_unit(const osh_linear *l); // rows that belong together
int64_t osh_band_rows(int64_t n_rows, size_t row_bytes, int64_t unit); // of a band
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

int64_t osh_check_chunk(const osh_plan *p); // bytes of a chunk
size_t osh_check_blocks(const osh_plan *p, int n_threads); // buffers of all of them
#endif
