/* stream_impl.h - the state of a stream, which stream.c and stream_worker.c share. */
#ifndef OSH_STREAM_IMPL_H
#define OSH_STREAM_IMPL_H
#include "base/thread.h"
#include "output/emit_impl.h"
#include "output/held.h"
#include "output/stream.h"
#include "output/stream_item.h"
#include "output/turns.h"

typedef struct osh_stream osh_stream;
typedef struct osh_stream_worker {
    osh_stream *s;      // view
    osh_thread thread;  // own
    osh_file *source; // own: open shard of the source; closed when a band of another shard is read
    int64_t shard;      // index of the open shard
    uint8_t *in, *out;  // views: buffers in stream.blocks for the input and the output of a band
    void *codes;        // own
    double *sums;       // own
} osh_stream_worker;

struct osh_stream {
    osh_emitter *e;     // view
    osh_mem_class class; // class in which the stream's memory is counted
    /* Indices of output tensors. The index of a Linear's first tensor stands for the Linear. */
    const int64_t *ids; // view [n]
    /* n: number of `ids`.
     * next: index in `ids` of the first tensor from which no worker has taken a band. */
    int64_t n, next;
    pthread_mutex_t lock;
    pthread_cond_t may_compute, changed;
    /* Tensor whose bands are being taken. After its last band is taken, it belongs to the
     * workers. */
    osh_item *now;
    osh_item *first, *last;    // own: list of finished tensors, which the caller's thread frees
    osh_held *held;        // own: Linears whose largest magnitude must be found first; NULL: none
    /* Signalled when a band was searched, or when a slot or other memory became free. */
    pthread_cond_t may_take;
    /* stays: number of bytes that unfinished Linears keep in memory.
     * stays_most: largest allowed value. */
    int64_t stays, stays_most;
    int64_t largest;    // number of bytes that the largest Linear keeps in memory
    osh_turns turns; // makes the workers add bands to checksums in order; one ticket for each band
    bool last_one;         // true if this is the last stream of the run
    int computing, n_computing, n_running;
    osh_status rc;         // status of the first failed band, in the order of the bands
    int64_t failed_ticket;
    const osh_stream_worker *failed;  // worker of the failed band; NULL: no band failed
    /* Buffers of all workers, in one allocation. The system can map it with pages of 2 MiB. A
     * request to the disk then has few pages, and reads from a virtual disk are 2.4 times as
     * fast. */
    void *blocks;                     // own
    osh_stream_worker *workers;       // own
    int n_workers;
};

/* stream_worker.c: the function of a worker's thread; `user` is the worker. */
void *osh_stream_work(void *user);
/* Records a failed band, unless a band with a lower ticket (number in the order of the bands)
 * failed. The caller holds the lock. */
void osh_stream_fail(osh_stream *s, const osh_stream_worker *w, int64_t ticket, osh_status rc);
#endif
