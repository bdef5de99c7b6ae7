/* stream_impl.h - declares the state of a stream, which stream.c and stream_worker.c share. */
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
    /* Own: open shard of the source. It is closed when a band of another shard is read. */
    osh_file *source;
    int64_t shard;      // index of the shard that is open
    uint8_t *in, *out;  // views of stream.blocks: buffers for the input and the output of a band
    void *codes;        // own
    double *sums;       // own
} osh_stream_worker;

struct osh_stream {
    osh_emitter *e;     // view
    osh_mem_class class; // memory class to which the stream's allocations belong
    /* Output tensors that the stream writes. The index of a Linear's first tensor stands for all
     * tensors of the Linear. */
    const int64_t *ids; // view [n]
    /* n: number of elements of `ids`.
     * next: index in `ids` of the first tensor from which no worker has taken a band yet. */
    int64_t n, next;
    pthread_mutex_t lock;
    pthread_cond_t may_compute, changed;
    /* Tensor from which workers take bands. When its last band is taken, the workers become its
     * owners. */
    osh_item *now;
    osh_item *first, *last;    // own: list of finished tensors, which the caller's thread frees
    /* Own: search for the largest magnitudes of Linears with a global scale. NULL: there are no
     * such Linears. */
    osh_held *held;
    /* Signalled when a band was searched, when a slot became free, or when memory became free. */
    pthread_cond_t may_take;
    /* stays: number of bytes that unfinished Linears keep in memory.
     * stays_most: largest allowed value of `stays`. */
    int64_t stays, stays_most;
    int64_t largest;    // number of bytes that the largest Linear keeps in memory
    /* Makes the workers add bands to checksums in order. The ticket of a band is its number in this
     * order. */
    osh_turns turns;
    bool last_one;         // true if this is the last stream of the run
    int computing, n_computing, n_running;
    osh_status rc;         // status of the first failed band, in the order of the bands
    int64_t failed_ticket;
    const osh_stream_worker *failed;  // worker of the first failed band; NULL: no band failed
    /* Buffers of all workers in one allocation. The system can map this allocation with pages of
     * 2 MiB. A request to the disk then has few pages, and reads from a virtual disk are 2.4 times
     * as fast. */
    void *blocks;                     // own
    osh_stream_worker *workers;       // own
    int n_workers;
};

/* stream_worker.c: the function of a worker thread; `user` is its osh_stream_worker. */
void *osh_stream_work(void *user);
/* Stores the failure of a band, unless an earlier band has failed. `ticket`: number of the band in
 * the order of the bands. The caller holds the lock. */
void osh_stream_fail(osh_stream *s, const osh_stream_worker *w, int64_t ticket, osh_status rc);
#endif
