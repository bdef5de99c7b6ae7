/* bands.h - computes the sizes of pieces in which tensors are processed. Tensors pass through
 * memory in bands of rows (schedule/stream.h). The output is read back in chunks
 * (output/check.c). */
#ifndef OSH_BANDS_H
#define OSH_BANDS_H
#include "budget/budget.h"
#include "schedule/stream.h"

/* Upper bound of the bytes of state that a stream keeps for each tensor that it now processes. */
enum { OSH_BAND_ITEM_BYTES = 4608 };

/* Returns the largest number of threads of a stream (output/stream.h): at most n_threads that
 * compute, and further threads that wait for the disk. */
int osh_stream_most(const osh_budget *p, int n_threads);
/* Returns the number of threads with which a stream processes n_bytes of data. It is at most
 * `most`, and at most the number of bands. */
int osh_stream_workers(int most, int64_t n_bytes);
/* Returns the number of host bytes that osh_globals_find needs, without those of
 * osh_globals_bytes. */
int64_t osh_globals_scan_bytes(const osh_budget *p, int n_threads);
/* osh_stream_stays returns the number of bytes that a Linear keeps in memory until all its tensors
 * are written. osh_stream_stays_most returns the limit for the sum of these bytes over all Linears
 * that are now in memory. A Linear that would exceed the limit waits until other Linears are
 * written. largest: largest result of osh_stream_stays. */
int64_t osh_stream_stays(const osh_budget *p, int linear);
int64_t osh_stream_copy_stays(void); // like osh_stream_stays, for a copied tensor
int64_t osh_stream_stays_most(int64_t largest, int n_workers);
/* Returns the largest number of bands that a stream can keep in memory between its two passes. The
 * result is at most the number of bands of the largest set of Linears that share a global scale.
 * Returns 0 if no Linears share a global scale. */
int osh_held_most(const osh_budget *p);
size_t osh_held_slot_bytes(const osh_budget *p); // bytes of memory for one kept band
enum { OSH_HELD_SLOT = 24 }; // upper bound of the bytes of the struct that describes a kept band
/* returns the number of bytes of the source that are read a second time */
int64_t osh_held_reread(const osh_budget *p);
/* Returns the number of host bytes of a stream. The stream has n_workers threads, and keeps
 * p->memory.n_held bands in memory. *device: set to the part of these bytes that counts as device
 * memory. */
int64_t osh_stream_bytes(const osh_budget *p, int n_workers, int n_threads, int64_t *device);

/* Returns the number of bytes of one row of a copied tensor. If the tensor is copied unchanged, a
 * row is one byte. If it is changed or dequantized, a row has *columns elements. */
size_t osh_band_row_copy(const osh_budget *p, int64_t out, int64_t *columns);
/* Returns the number of bytes of a row of the Linear's first output tensor. */
size_t osh_band_row_out(const osh_budget *p, const osh_linear *l);

typedef struct osh_band_room { // sizes in bytes of the buffers that a thread of a stream has
    size_t in, out, codes, sums;
} osh_band_room;
/* Each of these functions raises the sizes in *r, so that the buffers have room for a band of the
 * Linear, or of the copied tensor `out`. */
void osh_band_room_linear(osh_band_room *r, const osh_budget *p, int linear);
void osh_band_room_copy(osh_band_room *r, const osh_budget *p, int64_t out);
/* Returns the number of bytes of the input buffer and the output buffer of one thread. */
size_t osh_band_room_blocks(const osh_band_room *r);

/* Early check: a large output tensor is read back and checked during the run, and not when the
 * output is sealed.
 * osh_early_takes returns true if the output tensor `out` is checked early.
 * osh_early_count returns the number of output tensors that are checked early.
 * osh_early_bytes returns the number of host bytes that early checks need. */
bool osh_early_takes(const osh_budget *p, int64_t out);
int64_t osh_early_count(const osh_budget *p);
int64_t osh_early_bytes(const osh_budget *p);
/* Returns the number of bytes of the chunks in which output/check.c reads the output. */
int64_t osh_check_chunk(const osh_budget *p);
/* Returns the number of bytes of all buffers of output/check.c with n_threads threads. */
size_t osh_check_blocks(const osh_budget *p, int n_threads);
#endif
