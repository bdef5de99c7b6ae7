/* stream.h - the work of a stream (output/stream.h). A stream is a group of threads that read,
 * round and write tensors in bands of rows. For example, a Linear of 4,096 x 4,096 in BF16 has rows
 * of 8 KiB. Its bands have 128 rows, and the tensor has 32 bands. */
#ifndef OSH_SCHEDULE_STREAM_H
#define OSH_SCHEDULE_STREAM_H
#include "schedule/schedule.h"

enum { OSH_BAND_BYTES = 1 << 20 };  // approximate bytes of a band, as stored in the source

/* True if a stream rounds the Linear in bands; false if it is rounded as a whole. */
bool osh_stream_takes(const osh_schedule *p, int linear);
/* True if a stream does all work of the run. The run then visits no subgraph. */
bool osh_streams_all(const osh_schedule *p);
/* True if the stream itself finds the largest magnitude of the weights that share the Linear's
 * global scale. The stream then reads all bands of these weights before it rounds the first band.
 * It keeps as many bands in memory as fit, and reads the other bands a second time.
 * If the result is false, osh_globals_find must find the magnitude before the stream. */
bool osh_stream_looks(const osh_schedule *p, int linear);

/* Returns the number of rows that must be rounded together: the rows of one block scale, or 1. */
int64_t osh_band_unit(const osh_linear *l);
/* Returns the number of rows of a band, a multiple of `unit`. row_bytes: bytes of a row. */
int64_t osh_band_rows(int64_t n_rows, size_t row_bytes, int64_t unit);
/* Returns the number of rows of a band of the Linear. The last band may have fewer rows. */
int64_t osh_band_of_linear(const osh_linear *l);
int64_t osh_band_count(const osh_linear *l);
size_t osh_band_row_in(const osh_linear *l); // bytes of a row in the source
#endif
