/* emit_impl.h - the inside of the emitter, for emit.c (tensors), stream.c (tensors in bands), records.c and resume.c
 * (the journal) and seal.c (the end). */
#ifndef OSH_EMIT_IMPL_H
#define OSH_EMIT_IMPL_H
#include <pthread.h>

#include "base/file.h"
#include "base/xxh3.h"
#include "io/edges.h"
#include "io/journal.h"
#include "output/early.h"
#include "output/tuned.h"
#include "plan/identity.h"

enum { OSH_EMIT_CHUNK = 2 << 20 }; // bytes
#define OSH_MARK_NAME "oneshot-report.json" // a directory that holds it was made here
#define OSH_MANIFEST_NAME "oneshot-manifest.json"
#define OSH_JOURNAL_NAME "oneshot-journal"

enum { // records; docs/resume.md draws them. Where one changes OSH_IDENTITY_JOURNAL does
    OSH_REC_IDENTITY = 1, // JSON object
    OSH_REC_LINEAR,       // u32 linear, u32 n, f64 nmse, f64 objective, f64 nearest, u64 sums[n], u64 sum of
                          // the weight, text fallback ("": none), u32 m, f64 losses[m], f64 loss of all
    OSH_REC_COPY,         // u64 output tensor, u64 sum
    OSH_REC_VOID,         // u64 output tensor: what the disk holds is not what was written
    OSH_REC_SUBGRAPH,     // u32 subgraph, u64 generation of its activations on disk (~0: none)
    OSH_REC_BARRIER,      // everything recorded before it is on the disk
    OSH_REC_SEALED,       // the directory is complete and lacks its name only
    OSH_REC_RUN,          // u64 drawn by chance: what this run leaves elsewhere is known by it
    OSH_REC_SOURCES,      // u64 tensor of the source, u64 its sum; and so on: read, and of no record above
    OSH_REC_STAMPS,       // JSON object: of the shards of the source, from here on
    OSH_REC_REPLACED,     // u64 sum of the manifest of the output that is called OUT.oneshot-replaced now
    OSH_REC_DISCARDED,    // what stands before it counts for nothing; the files that it speaks of are being removed
    OSH_REC_FOLDS,        // u32 fold, u32 n, u32 bits of its factors[n]; and so on: all of one visit
    OSH_REC_CHANGED,      // u64 output tensor, u64 sum, u64 sum of its source: a copy with factors folded in
    OSH_REC_TUNED,        // what was learned, and OSH_REC_APPLIED: the output has it; tuned.c draws them
    OSH_REC_APPLIED
};

typedef enum {
    OSH_EMIT_LINEAR,
    OSH_EMIT_VIEW,
    OSH_EMIT_WRITTEN, // a Linear, or where index is -1 a copy: only the record is missing
    OSH_EMIT_FOLDS,
    OSH_EMIT_SUBGRAPH
} osh_emit_kind;
typedef struct osh_emit_job {
    struct osh_emit_job *next;
    osh_emit_kind kind;
    int index;                     // Linear or subgraph
    int n;                         // subgraphs, of folds
    osh_linear_job result;         // own: codes and params, of a Linear
    osh_tensor *in_scale, *in_zero; // own
    void *packed[OSH_FORMAT_MAX_TENSORS]; // own: room for its tensors; whoever waits for memory waits before, not here
    int64_t out;                   // of a copy
    const void *view;              // the caller's: all bytes of a tensor
    int64_t generation;            // of a subgraph
} osh_emit_job;

typedef osh_status osh_emit_work(osh_ctx *cx, osh_emitter *e, const osh_emit_job *j);

typedef struct osh_emit_queue { // what the emitter's thread has before it
    osh_ctx *cx; // own: of the thread
    osh_emit_work *work;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t more, less;   // something came; something is done
    osh_emit_job *first, *last;  // own
    int n, n_views;              // not done yet, the one at work included
    int64_t n_done;
    bool made, running, stop;
    osh_status rc;               // of the first that failed; those behind it are dropped
} osh_emit_queue;

struct osh_emitter {
    osh_emit_queue queue;
    osh_early *early;            // own; NULL: all is read again at the seal
    bool *taken;                 // own: by output tensor: written, or handed over
    const osh_plan *plan;  // view
    char *final, *partial; // own: directories
    char *replaced;        // own: the name of the one that is replaced, from before the rename until it is removed
    osh_identity *id;      // own
    uint64_t run;          // of OSH_REC_RUN; 0: none yet
    osh_globals *globals;  // own; NULL: none
    osh_journal *journal;  // own
    osh_file **shards;     // own
    osh_file *dir;         // own: the partial directory; held
    osh_file *old;         // own: the directory that is replaced; held, NULL: there is none
    osh_edges *edges;      // own: of shards that are written in pieces
    uint64_t *sums;        // own: by output tensor
    bool *written;         // own
    bool *dirty;           // own: by shard: written since the last barrier
    osh_stamp *stamps;     // own: of the source's shards, when they held what was read
    bool *told;            // own: by tensor of the source: the journal has its sum
    int64_t n_looked;      // tensors of the source that were looked at for told, in the order in which they were read
    char **fallbacks;      // own: texts of results from the journal
    size_t n_fallbacks;
    int64_t unsynced;      // bytes since the last barrier
    double synced_at;      // osh_now
    int boundary;          // -1: none
    int64_t generation;
    bool ours;             // the partial directory is this run's, and nothing is known to be done in it
    bool looked;           // of a survey: a Linear is recorded
    bool discard;          // whatever is done in it
    osh_tuned tuned;       // of OSH_REC_TUNED
    bool applied;          // OSH_REC_APPLIED
    int64_t tuned_bytes;   // of the file, and its sum
    uint64_t tuned_sum;
    uint64_t replaced_sum; // of OSH_REC_REPLACED; 0: none
    bool sealed, replaces, resumed, complete; // complete: only the name is missing
};

/* records.c */
osh_status osh_emit_sum(osh_ctx *cx, uint64_t *sum, const osh_emitter *e, int64_t out); // of what the disk holds
osh_status osh_emit_barrier(osh_ctx *cx, osh_emitter *e);
osh_status osh_emit_void(osh_ctx *cx, osh_emitter *e, int64_t out); // its record no longer counts
/* emit.c */
/* From any thread: n bytes to offset at of the file of an output tensor, as osh_edges_write wants them; and when all
 * tensors of a Linear, or one that is copied, are there, their sums. */
osh_status osh_emit_piece(osh_ctx *cx, osh_emitter *e, int64_t out, const void *from, size_t n, int64_t at);
osh_status osh_emit_written_linear(osh_ctx *cx, osh_emitter *e, int linear, double nmse, const uint64_t *sums);
osh_status osh_emit_written_copy(osh_ctx *cx, osh_emitter *e, int64_t out, uint64_t sum);
/* claim.c: none of them changes anything */
osh_status osh_claim_partial(osh_ctx *cx, const osh_emitter *e); // absent, empty, or with a journal
osh_status osh_claim_files(osh_ctx *cx, const osh_emitter *e, osh_status code); // all in it are known
osh_status osh_claim_output(osh_ctx *cx, const osh_emitter *e, osh_status code); // what is to be replaced was made here
/* Nothing lies at that name, but what the journal says. */
osh_status osh_claim_replaced(osh_ctx *cx, const osh_emitter *e, osh_status code);
osh_status osh_claim_journal(osh_ctx *cx, const char *path); // a file of its own that begins as one
/* At that name lies what the journal says, or what is left of it. */
osh_status osh_is_replaced(osh_ctx *cx, bool *is, const osh_emitter *e);
osh_status osh_sum_of_manifest(osh_ctx *cx, uint64_t *sum, const char *dir); // 0: it has none
osh_status osh_emit_still_held(osh_ctx *cx, const osh_emitter *e); // the files at its paths are those that it has open
osh_status osh_emit_old_still_held(osh_ctx *cx, const osh_emitter *e); // so is the directory that it replaces
osh_status osh_emit_got_name(osh_ctx *cx, const osh_emitter *e); // it is this run's directory that has the final name
/* check.c */
osh_status osh_emit_sums(osh_ctx *cx, const osh_emitter *e, uint64_t *sums); // [n_out], of what the disk holds
/* emit_queue.c */
osh_status osh_emit_queue_start(osh_ctx *cx, osh_emitter *e, osh_emit_work *work); // which its thread does of each job
void osh_emit_queue_stop(osh_ctx *cx, osh_emitter *e); // behind what was handed over
/* j, own also where this fails, to the end of the queue: when what is in use is within the plan, or nothing waits. */
osh_status osh_emit_push(osh_ctx *cx, osh_emitter *e, const osh_emit_job *j);
/* seal.c */
osh_status osh_emit_remove_replaced(osh_ctx *cx, const osh_emitter *e);
osh_status osh_emit_take_name(osh_ctx *cx, osh_emitter *e);
/* origin.c */
osh_status osh_origin_open(osh_ctx *cx, osh_emitter *e); // from here on sums of what is read are taken
osh_status osh_origin_resume(osh_ctx *cx, osh_emitter *e); // when the journal's sums were taken up
osh_status osh_origin_check_files(osh_ctx *cx, const osh_emitter *e); // config.json and what is carried along
/* *diff, own: in what the source is not the one that the manifest of e->final names, whose stamps are read_from; NULL:
 * in nothing. */
osh_status osh_origin_of_output(osh_ctx *cx, char **diff, osh_emitter *e, const cJSON *read_from);
/* tuned.c: a record of its two types is taken up. */
osh_status osh_tuned_take(osh_ctx *cx, osh_emitter *e, uint32_t type, osh_reader *in, osh_result *results);
/* resume.c */
osh_status osh_emit_begin(osh_ctx *cx, osh_emitter *e, osh_result *results);
osh_status osh_emit_is_finished(osh_ctx *cx, osh_emitter *e, bool *finished);
#endif
