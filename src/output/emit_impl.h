/* emit_impl.h - declares the emitter's internals. These files share them: emit.c (tensors),
 * stream.c (tensors in bands), records.c and resume.c (journal), seal.c (end of a run). */
#ifndef OSH_EMIT_IMPL_H
#define OSH_EMIT_IMPL_H
#include <stdatomic.h>

#include "base/file.h"
#include "base/thread.h"
#include "base/xxh3.h"
#include "io/edges.h"
#include "io/journal.h"
#include "output/early.h"
#include "output/tuned.h"
#include "plan/identity.h"
#include "ranks/ranks.h"

enum { OSH_EMIT_CHUNK = 2 << 20 }; // number of bytes that `oneshot verify` reads at once
/* File name of the report. A directory with this file was made by this program. */
#define OSH_MARK_NAME "oneshot-report.json"
#define OSH_MANIFEST_NAME "oneshot-manifest.json"
#define OSH_JOURNAL_NAME "oneshot-journal"

/* Types of records in the journal. docs/how-to/resume.md has their layouts. If a layout changes,
 * OSH_IDENTITY_JOURNAL must change, too. */
enum {
    OSH_REC_IDENTITY = 1, // JSON object: the identity of the run
    /* A Linear is written. The fields are: u32 index of the Linear, u32 number n of its tensors,
     * f64 nmse, f64 objective, f64 nearest, u64 checksums[n] of the tensors, u64 checksum of the
     * weight, text fallback ("": none), u32 number m of losses, f64 losses[m], f64 loss if all
     * weights were 0. */
    OSH_REC_LINEAR,
    OSH_REC_COPY,         // An unchanged copy is written: u64 output tensor, u64 its checksum.
    /* An output tensor was lost: u64 output tensor. Its bytes on the disk differ from the bytes
     * that were written, so its earlier records do not count. */
    OSH_REC_VOID,
    /* A subgraph is complete: u32 subgraph, u64 number of the visit that stored its activations on
     * the disk (~0: none). */
    OSH_REC_SUBGRAPH,
    OSH_REC_BARRIER, // All earlier records, and the bytes that they describe, are on the disk.
    OSH_REC_SEALED,       // The partial directory is complete and only needs its final name.
    OSH_REC_RUN, // u64 random number, which also marks files of this run in other directories
    /* Source tensors were read: (u64 tensor, u64 checksum)*. Only tensors without an earlier record
     * are listed. */
    OSH_REC_SOURCES,
    /* JSON object: stamps (size, inode, times) of the shards of the source. It replaces earlier
     * stamps. */
    OSH_REC_STAMPS,
    /* The old output is renamed to OUT.oneshot-replaced: u64 checksum of its manifest. */
    OSH_REC_REPLACED,
    OSH_REC_DISCARDED,    // Earlier records do not count, because their files are being removed.
    OSH_REC_FOLDS,        // All folds of one visit: (u32 fold, u32 n, u32 bits of factors[n])*.
    /* A changed copy is written: u64 output tensor, u64 its checksum, u64 checksum of its source
     * tensor. */
    OSH_REC_CHANGED,
    OSH_REC_TUNED,        // the result of tuning; tuned.c describes the layout
    OSH_REC_APPLIED,      // the tuned tensors are in the output; tuned.c describes the layout
    OSH_REC_RESUMED // The records after this one are from another process, which continues the run.
};

typedef enum {
    OSH_EMIT_LINEAR,
    OSH_EMIT_VIEW,
    /* A tensor or Linear whose bytes are already written but not recorded. If `index` is -1, it is
     * a copied tensor. */
    OSH_EMIT_WRITTEN,
    OSH_EMIT_FOLDS,
    OSH_EMIT_SUBGRAPH,
    OSH_EMIT_REMOTE // records of tensors that another rank has written (share.h)
} osh_emit_kind;
typedef struct osh_emit_job {
    struct osh_emit_job *next;
    osh_emit_kind kind;
    int index;                     // index of the Linear or subgraph
    int n;                         // OSH_EMIT_FOLDS: number of subgraphs
    /* OSH_EMIT_FOLDS: schedule of the traversal that computes the factors. */
    const osh_schedule *schedule;  // view
    osh_linear_job result; // own: the solved job of a Linear, with codes, scales and zero points
    osh_tensor *in_scale, *in_zero; // own
    /* Memory for the output tensors of the Linear. osh_emit_linear allocates this memory. */
    void *packed[OSH_FORMAT_MAX_TENSORS]; // own
    int64_t out;                   // for a copy: index of the output tensor
    const void *view;              // OSH_EMIT_VIEW: view of all bytes of the tensor
    /* OSH_EMIT_SUBGRAPH: number of the visit that stored the subgraph's activations on the disk;
     * -1: no visit did. */
    int64_t generation;
    void *bytes;                   // own; OSH_EMIT_REMOTE: the message of the other rank
    size_t n_bytes;
} osh_emit_job;

typedef osh_status osh_emit_work(osh_ctx *cx, osh_emitter *e, const osh_emit_job *j);

typedef struct osh_emit_queue { // jobs that wait for the emitter's thread
    osh_thread thread; // own
    osh_emit_work *work;
    pthread_mutex_t lock;
    /* more: signalled when a job is added to the queue.
     * less: signalled when a job is done. */
    pthread_cond_t more, less;
    osh_emit_job *first, *last;  // own
    /* n: number of jobs that are not done, including the job on which the thread works.
     * n_views: number of these jobs that have a view. */
    int n, n_views;
    int64_t n_done;
    bool made, stop;
    osh_status rc;               // status of the first job that failed; later jobs are dropped
} osh_emit_queue;

struct osh_emitter {
    osh_emit_queue queue;
    /* Thread that reads written tensors again (early.h). NULL: the seal reads all tensors again. */
    osh_early *early;            // own
    /* For each output tensor: true if it is written, or is queued for the emitter's thread. */
    bool *taken;                 // own [n_out]
    const osh_plan *plan;  // view
    char *final, *partial; // own: paths of the output directory and of the partial directory
    char *replaced;        // Own: path of the old output between its rename and its removal.
    osh_identity *id;      // own
    uint64_t run;          // random number of the run (OSH_REC_RUN); 0: not chosen yet
    osh_globals *globals;  // own: global scales; NULL: no Linear has a global scale
    osh_journal *journal;  // own
    osh_file **shards;     // own
    osh_file *dir;         // own: the partial directory, opened
    osh_file *old;         // own: the old output directory, opened; NULL: there is none
    /* Partly written blocks of the shards. Later writes complete these blocks. */
    osh_edges *edges;      // own
    uint64_t *sums;        // own [n_out]: checksum of each output tensor
    bool *written;         // own [n_out]: true if the tensor is written and recorded
    /* For each output tensor: true if it is a copy that contains a NaN or an infinity
     * (osh_emit_look). */
    atomic_bool *nonfinite; // own [n_out]
    bool *dirty;           // own [n_shards]: true if the shard was written since the last barrier
    /* Stamps (size, inode, times) of the shards of the source. A shard that still has its stamp is
     * not read again. */
    osh_stamp *stamps;     // own [shards of the source]
    bool *told; // own [tensors of the source]: true if the tensor's checksum is in the journal
    /* Number of source tensors that emit_record_sources has looked at so far. It looks at them in
     * the order in which they were read. */
    int64_t n_looked;
    char **fallbacks;      // own [n_fallbacks]: texts for osh_result.fallback
    size_t n_fallbacks;
    int64_t unsynced;      // number of bytes written since the last barrier
    double synced_at;      // time of the last barrier (osh_now)
    int boundary; // index of the last subgraph whose activations are on the disk; -1: there is none
    int64_t generation;
    bool ours; // true if the partial directory belongs to this run, so that it may be removed
    /* True if the result of a Linear without output tensors was recorded, as in a survey. */
    bool looked;
    bool discard;          // true if osh_emitter_discard was called
    osh_tuned tuned;       // result of tuning (OSH_REC_TUNED)
    bool applied;          // true if the journal has OSH_REC_APPLIED
    int n_resumed;         // number of records OSH_REC_RESUMED
    int64_t tuned_bytes;   // size of the file OSH_TUNED_NAME in bytes
    uint64_t tuned_sum;    // checksum of the file OSH_TUNED_NAME
    /* Checksum of the manifest of the old output (OSH_REC_REPLACED); 0: there is none. */
    uint64_t replaced_sum;
    osh_result *results;   // view [linears]: result of each Linear
    /* The next members are only used if several ranks write the output (share.h). Otherwise they
     * are 0 or NULL. */
    osh_ranks *ranks;      // view
    /* Own [n_shards]: number of the rank that writes each shard. NULL: this process writes all
     * shards. */
    int *writer;
    int n_ended;           // number of other ranks that have sent their last record
    bool remote;           // true on ranks other than 0, which have no journal
    /* Records that are not sent yet. A record is in `ready` if the bytes of its tensors are on the
     * disk. queue.lock protects `ready`. */
    osh_buf outbox, ready; // own
    /* sealed: the output has its final name.
     * replaces: an old output will be replaced.
     * resumed: this process continues an earlier run.
     * complete: everything is done except the rename. */
    bool sealed, replaces, resumed, complete;
};

/* records.c: computes the checksum of an output tensor from the bytes on the disk. */
osh_status osh_emit_sum(osh_ctx *cx, uint64_t *sum, const osh_emitter *e, int64_t out);
/* Searches a part of an output tensor for NaN and infinities. `bytes`: the n bytes of the part. The
 * first of these bytes is the first byte of an element. */
void osh_emit_look(const osh_emitter *e, int64_t out, const void *bytes, size_t n);
/* Syncs the shards, then writes a barrier: a record which says that all earlier records, and the
 * bytes that they describe, are on the disk. */
osh_status osh_emit_barrier(osh_ctx *cx, osh_emitter *e);
/* Writes a record which says that earlier records of an output tensor do not count. */
osh_status osh_emit_void(osh_ctx *cx, osh_emitter *e, int64_t out);


/* emit.c: writes n bytes to the shard of output tensor `out`, at offset `at` (osh_edges_write). Any
 * thread may call it. */
osh_status osh_emit_piece(osh_ctx *cx, osh_emitter *e, int64_t out, const void *from, size_t n,
                          int64_t at);
/* The next functions record tensors that were written. osh_emit_written_linear is for a Linear;
 * `sums` has one checksum for each of its tensors. osh_emit_written_copy is for a copied tensor. */
osh_status osh_emit_written_linear(osh_ctx *cx, osh_emitter *e, int linear, double nmse,
                                   const uint64_t *sums);
osh_status osh_emit_written_copy(osh_ctx *cx, osh_emitter *e, int64_t out, uint64_t sum);


/* The next functions are in claim.c. Only osh_emit_got_name changes files. osh_claim_partial fails
 * if the partial directory has files but no journal. */
osh_status osh_claim_partial(osh_ctx *cx, const osh_emitter *e);
/* Fails with `code` if the partial directory has a file that this program did not make. */
osh_status osh_claim_files(osh_ctx *cx, const osh_emitter *e, osh_status code);
/* The old output will be replaced. Fails with `code` if it has a file that this program did not
 * make. */
osh_status osh_claim_output(osh_ctx *cx, const osh_emitter *e, osh_status code);
/* Fails with `code` if e->replaced exists but is not the old output that the journal names. */
osh_status osh_claim_replaced(osh_ctx *cx, const osh_emitter *e, osh_status code);
/* Fails if `path` is not a journal. A journal is a regular file with one link, and has the first
 * bytes of a journal. */
osh_status osh_claim_journal(osh_ctx *cx, const char *path);
/* Finds out if e->replaced is the old output that the journal names, and stores the answer in *is.
 * The old output may be partly deleted. */
osh_status osh_is_replaced(osh_ctx *cx, bool *is, const osh_emitter *e);
/* Sets *sum to the checksum of the manifest in `dir`, or to 0 if `dir` has no manifest. */
osh_status osh_sum_of_manifest(osh_ctx *cx, uint64_t *sum, const char *dir);
/* Fails if the path of an open file of the output now names another file. */
osh_status osh_emit_still_held(osh_ctx *cx, const osh_emitter *e);
/* Fails if the path of the open directory e->old now names another directory. */
osh_status osh_emit_old_still_held(osh_ctx *cx, const osh_emitter *e);
/* Called after the rename to the final name. Fails if the directory with this name is not the
 * directory that the run wrote. */
osh_status osh_emit_got_name(osh_ctx *cx, const osh_emitter *e);

/* check.c: computes the checksums [n_out] of the output tensors from the bytes on the disk. For
 * tensors that early.h has checked, copies the known checksums. */
osh_status osh_emit_sums(osh_ctx *cx, const osh_emitter *e, uint64_t *sums);


/* emit_queue.c: starts the emitter's thread, which calls `work` for each job. */
osh_status osh_emit_queue_start(osh_ctx *cx, osh_emitter *e, osh_emit_work *work);
/* Lets the thread do all queued jobs, and then stops it. */
void osh_emit_queue_stop(osh_ctx *cx, osh_emitter *e);
/* Appends a copy of j to the queue. Takes ownership of the members of j, also after a failure.
 * If more host memory is in use than planned, waits until enough of it is free or the queue is
 * empty. */
osh_status osh_emit_push(osh_ctx *cx, osh_emitter *e, const osh_emit_job *j);


/* seal.c: deletes the old output, which was renamed to e->replaced. */
osh_status osh_emit_remove_replaced(osh_ctx *cx, const osh_emitter *e);


/* origin.c: from now on, keeps the checksums of the tensors that are read from the source. */
osh_status osh_origin_open(osh_ctx *cx, osh_emitter *e);
/* Fails if the source is not the source that the journal names. The checksums in the journal must
 * already be read. */
osh_status osh_origin_resume(osh_ctx *cx, osh_emitter *e);
/* Fails if config.json or another side file of the source has changed. */
osh_status osh_origin_check_files(osh_ctx *cx, const osh_emitter *e);
/* The output e->final has a manifest with checksums of its source. Compares the current source with
 * them. Sets *diff (own) to a text that describes a difference, or to NULL if there is none.
 * read_from: the stamps in the manifest. */
osh_status osh_origin_of_output(osh_ctx *cx, char **diff, osh_emitter *e, const cJSON *read_from);

/* tuned.c: applies a record OSH_REC_TUNED or OSH_REC_APPLIED to the emitter and the results. */
osh_status osh_tuned_take(osh_ctx *cx, osh_emitter *e, uint32_t type, osh_reader *in,
                          osh_result *results);


/* records.c: appends a record to the journal. Only rank 0 has a journal. On another rank, appends
 * the record to the records that the rank will send to rank 0. */
osh_status osh_emit_record(osh_ctx *cx, osh_emitter *e, uint32_t type, const void *data, size_t n);
/* replay.c: applies the records of e->journal to the emitter and the results. For records after the
 * last barrier, checks the bytes on the disk. Writes void records for tensors whose bytes were
 * lost. */
osh_status osh_emit_replay(osh_ctx *cx, osh_emitter *e, osh_result *results);
/* replay.c: appends the records of another rank to the journal of rank 0, and applies them to the
 * emitter and the results. */
osh_status osh_emit_do_remote(osh_ctx *cx, osh_emitter *e, const osh_emit_job *j);
/* emit.c: starts the emitter's thread. */
osh_status osh_emit_start(osh_ctx *cx, osh_emitter *e);
/* resume.c: opens shard s, a file that rank 0 has made, and checks its size and header. */
osh_status osh_emit_open_shard(osh_ctx *cx, osh_emitter *e, int s);


/* resume.c: continues with the partial directory of an earlier run, or begins a new one. */
osh_status osh_emit_begin(osh_ctx *cx, osh_emitter *e, osh_result *results);
/* Sets *finished to true if e->final is already the output of this run. If its rename was
 * interrupted, completes the rename. */
osh_status osh_emit_is_finished(osh_ctx *cx, osh_emitter *e, bool *finished);
#endif
