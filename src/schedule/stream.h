/* stream.h - the work of a stream: threads that read, round and write tensors in bands of rows
 * (output/stream.h). For example, a Linear of 4,096 x 4,096 in BF16 has rows of 8 KiB: a band has
 * 128 rows, the tensor 32 bands. */
#ifndef OSH_SCHEDULE_STREAM_H
#define OSH_SCHEDULE_STREAM_H
#include "schedule/schedule.h"

enum { OSH_BAND_BYTES = 1 << 20 };  // approximate size in bytes of a band, as stored in the source

/* True if a stream rounds the Linear in bands; false if it is rounded as a whole. */
bool osh_stream_takes(const osh_schedule *p, int linear);
/* True if a stream does all work of the run, so that no subgraph is run. */
bool osh_streams_all(const osh_schedule *p);
/* True if the stream itself finds the largest magnitude of the weights that share the Linear's
 * global scale. The stream then reads all bands of these weights before it rounds a band. The
 * stream keeps as many bands in memory as fit, and reads the other bands a second time for the
 * rounding. If false, osh_globals_find runs before the stream. */
bool osh_stream_looks(const osh_schedule *p, int linear);

/* Number of rows that must be rounded together: rows that share a block scale, else 1. */
int64_t osh_band_unit(const osh_linear *l);
/* Returns the number of rows of a band. */
int64_t osh_band_rows(int64_t n_rows, size_t row_bytes, int64_t unit);
/* Returns the largest number of rows of a band; may exceed the O rows of the Linear. */
int64_t osh_band_of_linear(const osh_linear *l);
int64_t osh_band_count(const osh_linear *l);
size_t osh_band_row_in(const osh_linear *l); // bytes of a row in the source
#endif
