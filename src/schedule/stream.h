/* stream.h - describes the work of a stream (output/stream.h). A stream is a group of threads that
 * read, round and write tensors in bands of rows. For example, a Linear of 4,096 x 4,096 in BF16
 * has rows of 8 KiB. Its bands have 128 rows, and its weight has 32 bands. */
#ifndef OSH_SCHEDULE_STREAM_H
#define OSH_SCHEDULE_STREAM_H
#include "schedule/schedule.h"

enum { OSH_BAND_BYTES = 1 << 20 };  // approximate bytes of a band in the source

/* True if a stream rounds the Linear in bands. False if the Linear is rounded as a whole. */
bool osh_stream_takes(const osh_schedule *p, int linear);
/* True if a stream can do all work of the run, so that no subgraph is visited. */
bool osh_streams_all(const osh_schedule *p);
/* True if the stream itself finds the largest magnitude in the weights that share the Linear's
 * global scale. For this, it reads all bands of these weights before it rounds the first band. It
 * keeps as many bands as fit in memory, and reads the others a second time.
 * If the result is false, osh_globals_find must find the magnitude before the stream begins. */
bool osh_stream_looks(const osh_schedule *p, int linear);

/* Returns the number of rows of the weight that must be rounded together. If blocks have scales,
 * this is the number of rows of a block. Otherwise it is 1. */
int64_t osh_band_unit(const osh_linear *l);
/* A tensor with n_rows rows is processed in bands. Returns the number of rows of a band, which is a
 * multiple of `unit`. row_bytes: bytes of one row. */
int64_t osh_band_rows(int64_t n_rows, size_t row_bytes, int64_t unit);
/* Returns the number of rows that a band of the Linear's weight has. The last band may have fewer
 * rows. */
int64_t osh_band_of_linear(const osh_linear *l);
/* Returns the number of bands of the Linear's weight. */
int64_t osh_band_count(const osh_linear *l);
size_t osh_band_row_in(const osh_linear *l); // bytes that a row of the weight has in the source
#endif
