/* bands.h - computes sizes for work that is done in pieces. Tensors pass through memory in bands of
 * rows (schedule/stream.h). The output is read back in chunks (output/check.c). */
#ifndef OSH_BANDS_H
#define OSH_BANDS_H
#include "budget/budget.h"
#include "schedule/stream.h"

/* Upper bound of the bytes of the state that a stream keeps for one tensor. */
enum { OSH_BAND_ITEM_BYTES = 4608 };

/* Returns the number of threads of a stream (output/stream.h): at most n_threads that compute, and
 * additional threads that wait for the disk. */
int osh_stream_most(const osh_budget *p, int n_threads);
/* Returns the number of threads of a stream for n_bytes of data. It is at most `most`, and at most
 * the number of bands. */
int osh_stream_workers(int most, int64_t n_bytes);
/* Returns the host bytes that osh_globals_find needs in addition to osh_globals_bytes. */
int64_t osh_globals_scan_bytes(const osh_budget *p, int n_threads);
/* osh_stream_stays returns the bytes that a Linear keeps in memory until all its tensors are
 * written. osh_stream_stays_most returns the limit of these bytes, summed over the Linears in work.
 * A Linear that exceeds the limit waits until other Linears are written. largest: largest result of
 * osh_stream_stays. */
int64_t osh_stream_stays(const osh_budget *p, int linear);
int64_t osh_stream_copy_stays(void); // like osh_stream_stays, for a copied tensor
int64_t osh_stream_stays_most(int64_t largest, int n_workers);
/* Returns the largest number of bands that a stream can keep in memory from its first to its second
 * pass: at most all bands of the largest group of Linears that share a global scale. Returns 0 if
 * no Linears share a global scale. */
int osh_held_most(const osh_budget *p);
size_t osh_held_slot_bytes(const osh_budget *p); // bytes of memory for one kept band
enum { OSH_HELD_SLOT = 24 }; // upper bound of the bytes of the struct that describes a kept band
/* bytes of the source that a stream reads a second time */
int64_t osh_held_reread(const osh_budget *p);
/* Returns the host memory of a stream with n_workers threads that keeps p->memory.n_held bands.
 * *device: set to the part of this memory that counts against the device budget. */
int64_t osh_stream_bytes(const osh_budget *p, int n_workers, int n_threads, int64_t *device);

/* Returns the bytes of one row of a copied tensor. A tensor that is copied unchanged has rows of
 * one byte. A tensor that is changed or dequantized has rows of *columns elements. */
size_t osh_band_row_copy(const osh_budget *p, int64_t out, int64_t *columns);
/* returns the bytes of a row in the output */
size_t osh_band_row_out(const osh_budget *p, const osh_linear *l);

typedef struct osh_band_room { // sizes in bytes of the buffers of one thread of a stream
    size_t in, out, codes, sums;
} osh_band_room;
/* Raises the sizes in r so that the buffers have room for a band of the Linear, or of the copied
 * tensor. */
void osh_band_room_linear(osh_band_room *r, const osh_budget *p, int linear);
void osh_band_room_copy(osh_band_room *r, const osh_budget *p, int64_t out);
/* Returns the bytes of the smallest group of elements of a source tensor that can be changed
 * without reading other elements (osh_checkpoint_unit). */
size_t osh_band_unit_bytes(const osh_budget *p, int64_t tensor);
/* Returns the bytes of the input and output buffers of one thread. */
size_t osh_band_room_blocks(const osh_band_room *r);

/* Early check: a large output tensor is read back and checked during the run, not when the output
 * is sealed.
 * osh_early_takes returns true if the output tensor `out` is checked early.
 * osh_early_count returns the number of such tensors.
 * osh_early_bytes returns the host bytes that early checks need. */
bool osh_early_takes(const osh_budget *p, int64_t out);
int64_t osh_early_count(const osh_budget *p);
int64_t osh_early_bytes(const osh_budget *p);
/* Returns the bytes of a chunk in which check.c reads the output. */
int64_t osh_check_chunk(const osh_budget *p);
/* Returns the bytes of the buffers of all threads of check.c. */
size_t osh_check_blocks(const osh_budget *p, int n_threads);
#endif
