/* bands.h - sizes of the bands of rows in which tensors pass through memory (output/stream.h), and
 * of the chunks in which the output is read back (output/check.c). For example, a Linear of 4,096 x
 * 4,096 in BF16 has rows of 8 KiB: a band has 128 rows, the tensor 32 bands. */
#ifndef OSH_BANDS_H
#define OSH_BANDS_H
#include "budget/budget.h"

enum { OSH_BAND_BYTES = 1 << 20 };  // bytes of a band in the source
enum { OSH_BAND_ITEM_BYTES = 4608 }; // upper bound of the bookkeeping of a tensor in the stream

/* Returns the number of threads of a stream: n_threads may compute, and some more wait for the
 * disk. */
int osh_stream_most(const osh_budget *p, int n_threads);
int osh_stream_workers(int most, int64_t n_bytes); // n_bytes: bytes of the data; the result is at
                                                   // most the number of bands
bool osh_stream_takes(const osh_budget *p, int linear); // true if the Linear is rounded in bands;
                                                        // false if in one piece
bool osh_streams_all(const osh_budget *p); // true if the run has only a stream and no visits
/* True if the stream itself finds the largest magnitude of the weights that share the Linear's
 * global scale. For that it first reads all bands of these weights and keeps them in memory; a band
 * that does not fit is read again for the rounding. If false, osh_globals_find runs before the
 * stream. */
bool osh_stream_looks(const osh_budget *p, int linear);
/* Returns the host memory that osh_globals_find needs besides osh_globals_bytes. */
int64_t osh_globals_scan_bytes(const osh_budget *p, int n_threads);
/* osh_stream_stays returns the bytes that a Linear keeps until it is written. osh_stream_stays_most
 * returns the limit of these bytes over all Linears: a Linear that would exceed the limit waits
 * until others are written. `largest` is the largest result of osh_stream_stays. */
int64_t osh_stream_stays(const osh_budget *p, int linear);
int64_t osh_stream_stays_most(int64_t largest, int n_workers);
int osh_held_most(const osh_budget *p); // number of bands of the largest group of Linears whose
                                        // bands are kept (osh_stream_looks); 0: no bands are kept
size_t osh_held_slot_bytes(const osh_budget *p); // bytes of memory for one kept band
enum { OSH_HELD_SLOT = 24 }; // upper bound of the bookkeeping of a kept band
int64_t osh_held_reread(const osh_budget *p); // bytes of the source that are read twice
/* Returns the host memory of a stream of n_workers that keeps p->memory.n_held bands. *device: the
 * part of this memory that belongs to Linears. */
int64_t osh_stream_bytes(const osh_budget *p, int n_workers, int n_threads, int64_t *device);

int64_t osh_band_unit(const osh_linear *l); // number of rows that must be rounded together
int64_t osh_band_rows(int64_t n_rows, size_t row_bytes, int64_t unit); // rows of a band
int64_t osh_band_of_linear(const osh_linear *l); // largest number of rows of a band; may be more
                                                 // than O
int64_t osh_band_count(const osh_linear *l);
size_t osh_band_row_in(const osh_linear *l); // bytes of a row in the source
/* Returns the size of a row of a copied tensor: one byte; one element if the tensor is changed; the
 * bytes of *columns elements if it is dequantized. */
size_t osh_band_row_copy(const osh_budget *p, int64_t out, int64_t *columns);
size_t osh_band_row_out(const osh_budget *p, const osh_linear *l); // bytes of a row in the output

typedef struct osh_band_room { // sizes of a worker's buffers in bytes
    size_t in, out, codes, sums;
} osh_band_room;
/* Increases the sizes in r to the sizes that the Linear needs. */
void osh_band_room_linear(osh_band_room *r, const osh_budget *p, int linear);
void osh_band_room_copy(osh_band_room *r, const osh_budget *p, int64_t out);
/* Returns the bytes of the source that are changed together. */
size_t osh_band_unit_bytes(const osh_budget *p, int64_t tensor);
size_t osh_band_room_blocks(const osh_band_room *r); // bytes of the input and output buffers of one
                                                     // worker

/* Some output tensors are large enough to be checked during the run by reading them back.
 * osh_early_takes is true for such a tensor. osh_early_count returns the number of such tensors,
 * and osh_early_bytes the memory for reading them. */
bool osh_early_takes(const osh_budget *p, int64_t out);
int64_t osh_early_count(const osh_budget *p);
int64_t osh_early_bytes(const osh_budget *p);
int64_t osh_check_chunk(const osh_budget *p); // bytes of a chunk
size_t osh_check_blocks(const osh_budget *p, int n_threads); // buffers of all threads
#endif
