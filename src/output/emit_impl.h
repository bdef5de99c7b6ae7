/* emit_impl.h - the emitter's internals, for emit.c (tensors), stream.c (tensors in bands),
 * records.c and resume.c (the journal) and seal.c (the end). */
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
/* File name of the report. If a directory has it, this program made the directory. */
#define OSH_MARK_NAME "oneshot-report.json"
#define OSH_MANIFEST_NAME "oneshot-manifest.json"
#define OSH_JOURNAL_NAME "oneshot-journal"

/* Record types of the journal; docs/how-to/resume.md has the layouts. If a layout changes,
 * OSH_IDENTITY_JOURNAL must change, too. */
enum {
    OSH_REC_IDENTITY = 1, // JSON object: fields of the identity of the run
    /* u32 index of the Linear, u32 number n of tensors, f64 nmse, f64 objective, f64 nearest,
     * u64 checksums[n] of the tensors, u64 checksum of the weight, text fallback ("": none), u32
     * number m of losses, f64 losses[m], f64 loss of all. */
    OSH_REC_LINEAR,
    OSH_REC_COPY,         // u64 output tensor, u64 its checksum: a copied tensor is written
    /* u64 output tensor: the bytes on the disk differ from the bytes that were written, so earlier
     * records do not count. */
    OSH_REC_VOID,
    /* u32 subgraph, u64 generation: number of the visit that stored its activations on the disk
     * (~0: none). */
    OSH_REC_SUBGRAPH,
    OSH_REC_BARRIER, // all earlier records, and the bytes that they describe, are on the disk
    OSH_REC_SEALED,       // the directory is complete and needs only its final name
    OSH_REC_RUN, // u64 random number that identifies files of this run in other directories
    /* (u64 tensor of the source, u64 checksum)*: tensors that were read and have no earlier
     * record. */
    OSH_REC_SOURCES,
    /* JSON object: stamps (size, inode, times) of the source's shards; replaces earlier stamps. */
    OSH_REC_STAMPS,
    /* u64 checksum of the manifest of the old output, which is renamed to OUT.oneshot-replaced. */
    OSH_REC_REPLACED,
    OSH_REC_DISCARDED,    // earlier records do not count, because their files are being removed
    OSH_REC_FOLDS,        // (u32 fold, u32 n, u32 bits of factors[n])*: all folds of one visit
    /* A changed copy: u64 output tensor, u64 checksum, u64 checksum of the source tensor. */
    OSH_REC_CHANGED,
    OSH_REC_TUNED,        // result of tuning; tuned.c describes the record
    OSH_REC_APPLIED,      // the tuned tensors are in the output; tuned.c describes the record
    OSH_REC_RESUMED       // a process that continues the run writes its records after this one
};

typedef enum {
    OSH_EMIT_LINEAR,
    OSH_EMIT_VIEW,
    /* A Linear (or a copy, if index is -1) whose bytes are written but not recorded. */
    OSH_EMIT_WRITTEN,
    OSH_EMIT_FOLDS,
    OSH_EMIT_SUBGRAPH,
    OSH_EMIT_REMOTE // records of tensors that another rank has written (share.h)
} osh_emit_kind;
typedef struct osh_emit_job {
    struct osh_emit_job *next;
    osh_emit_kind kind;
    int index;                     // index of the Linear or subgraph
    int n;                         // for OSH_EMIT_FOLDS: number of subgraphs
    /* For OSH_EMIT_FOLDS: schedule of the traversal that computes the factors. */
    const osh_schedule *schedule;  // view
    osh_linear_job result;         // own: codes, scales and zero points of a Linear
    osh_tensor *in_scale, *in_zero; // own
    /* Buffers for the tensors of the Linear, allocated by the caller. */
    void *packed[OSH_FORMAT_MAX_TENSORS]; // own
    int64_t out;                   // for a copy: index of the output tensor
    const void *view;              // view: for OSH_EMIT_VIEW: all bytes of the tensor
    /* For OSH_EMIT_SUBGRAPH: number of the visit that stored the subgraph's activations on the
     * disk, or -1. */
    int64_t generation;
    void *bytes;                   // own: for OSH_EMIT_REMOTE: the message
    size_t n_bytes;
} osh_emit_job;

typedef osh_status osh_emit_work(osh_ctx *cx, osh_emitter *e, const osh_emit_job *j);

typedef struct osh_emit_queue { // jobs that wait for the emitter's thread
    osh_thread thread; // own
    osh_emit_work *work;
    pthread_mutex_t lock;
    /* more: signalled when a job is added.
     * less: signalled when a job is done. */
    pthread_cond_t more, less;
    osh_emit_job *first, *last;  // own
    /* n: number of jobs that are not done, including the current job.
     * n_views: number of these jobs with a view. */
    int n, n_views;
    int64_t n_done;
    bool made, stop;
    osh_status rc;               // status of the first failed job; later jobs are dropped
} osh_emit_queue;

struct osh_emitter {
    osh_emit_queue queue;
    /* Thread that reads written tensors again (early.h); NULL: the seal reads all tensors. */
    osh_early *early;            // own
    /* True if the tensor is written, or is queued for the emitter's thread. */
    bool *taken;                 // own [n_out]
    const osh_plan *plan;  // view
    char *final, *partial; // own: paths of directories
    char *replaced;        // own: path of the replaced output between its rename and its removal
    osh_identity *id;      // own
    uint64_t run;          // value of OSH_REC_RUN; 0: none yet
    osh_globals *globals;  // own: global scales; NULL: no Linear has one
    osh_journal *journal;  // own
    osh_file **shards;     // own
    osh_file *dir;         // own: partial directory, opened
    osh_file *old;         // own: directory that is replaced, opened; NULL: none
    /* Blocks of the shards' files that are partly written. Later writes complete them. */
    osh_edges *edges;      // own
    uint64_t *sums;        // own [n_out]: checksums of the output tensors
    bool *written;         // own [n_out]: true if the tensor is written and recorded
    /* true for a copy with a NaN or an infinity (osh_emit_look) */
    atomic_bool *nonfinite; // own [n_out]
    bool *dirty;           // own [n_shards]: true if the shard was written since the last barrier
    /* Stamps (size, inode, times) of the source's shards. A shard that still has its stamp is not
     * read again. */
    osh_stamp *stamps;     // own [shards of the source]
    bool *told; // own [tensors of the source]: true if the journal has the checksum of the tensor
    /* Number of source tensors for which `told` was checked, in the order in which the tensors were
     * read. */
    int64_t n_looked;
    char **fallbacks;      // own: names of fallbacks that were read from the journal
    size_t n_fallbacks;
    int64_t unsynced;      // number of bytes written since the last barrier
    double synced_at;      // time of the last barrier (osh_now)
    int boundary;          // index of the last subgraph whose activations are on the disk; -1: none
    int64_t generation;
    bool ours; // true if the partial directory belongs to this run, which may then remove it
    /* True if a Linear without output tensors was recorded, as in a survey, which only measures
     * errors. */
    bool looked;
    bool discard;          // true if osh_emitter_discard was called
    osh_tuned tuned;       // value of OSH_REC_TUNED
    bool applied;          // true if the journal has OSH_REC_APPLIED
    int n_resumed;         // number of records OSH_REC_RESUMED
    int64_t tuned_bytes;   // size of the file OSH_TUNED_NAME in bytes
    uint64_t tuned_sum;    // checksum of the file OSH_TUNED_NAME
    uint64_t replaced_sum; // value of OSH_REC_REPLACED; 0: none
    osh_result *results;   // view [linears]
    /* The next members are for an output that several ranks write (share.h). Otherwise all are 0 or
     * NULL. */
    osh_ranks *ranks;      // view
    int *writer; // own [n_shards]: rank that writes each file; NULL: this process writes all files
    int n_ended;           // number of other ranks that have sent all records
    bool remote;           // true on ranks other than 0, which have no journal
    /* Records that are not sent yet. The bytes of the tensors in `ready` are on the disk.
     * queue.lock protects `ready`. */
    osh_buf outbox, ready; // own
    /* sealed: true if the output has its final name.
     * replaces: true if an old output is replaced.
     * resumed: true if an earlier run is continued.
     * complete: true if only the rename is missing. */
    bool sealed, replaces, resumed, complete;
};

/* records.c: computes the checksum of an output tensor from the bytes on the disk. */
osh_status osh_emit_sum(osh_ctx *cx, uint64_t *sum, const osh_emitter *e, int64_t out);
/* Searches `bytes`, n bytes of an output tensor that begin with an element, for NaN and
 * infinities. */
void osh_emit_look(const osh_emitter *e, int64_t out, const void *bytes, size_t n);
/* Syncs the shards, then writes a barrier: a record which says that all results recorded so far are
 * on the disk. */
osh_status osh_emit_barrier(osh_ctx *cx, osh_emitter *e);
/* Records that earlier records of an output tensor no longer count. */
osh_status osh_emit_void(osh_ctx *cx, osh_emitter *e, int64_t out);


/* emit.c: writes n bytes to the file of output tensor `out`, at offset `at` (osh_edges_write). Any
 * thread may call it. */
osh_status osh_emit_piece(osh_ctx *cx, osh_emitter *e, int64_t out, const void *from, size_t n,
                          int64_t at);
/* osh_emit_written_linear records a Linear whose tensors were written; `sums` has one checksum for
 * each tensor of the Linear. osh_emit_written_copy records a copied tensor that was written. */
osh_status osh_emit_written_linear(osh_ctx *cx, osh_emitter *e, int linear, double nmse,
                                   const uint64_t *sums);
osh_status osh_emit_written_copy(osh_ctx *cx, osh_emitter *e, int64_t out, uint64_t sum);


/* The next functions are in claim.c. They change no files, except osh_emit_got_name.
 * osh_claim_partial fails unless the partial directory is absent, is empty, or has a journal. */
osh_status osh_claim_partial(osh_ctx *cx, const osh_emitter *e);
/* Fails with `code` if the partial directory contains a file that this program did not make. */
osh_status osh_claim_files(osh_ctx *cx, const osh_emitter *e, osh_status code);
/* Fails with `code` if the output to replace contains a file that this program did not make. */
osh_status osh_claim_output(osh_ctx *cx, const osh_emitter *e, osh_status code);
/* Fails with `code` if e->replaced exists and is not the replaced output that the journal names. */
osh_status osh_claim_replaced(osh_ctx *cx, const osh_emitter *e, osh_status code);
/* Fails unless the path is a journal: a regular file with one link that begins like a journal. */
osh_status osh_claim_journal(osh_ctx *cx, const char *path);
/* Sets *is to true if e->replaced is the old output that the journal names, complete or partly
 * deleted. */
osh_status osh_is_replaced(osh_ctx *cx, bool *is, const osh_emitter *e);
/* Computes the checksum of the manifest in `dir`; 0 if `dir` has no manifest. */
osh_status osh_sum_of_manifest(osh_ctx *cx, uint64_t *sum, const char *dir);
/* Fails if the path of an open file of the output now names another file. */
osh_status osh_emit_still_held(osh_ctx *cx, const osh_emitter *e);
/* Fails if the path of the open directory e->old now names another directory. */
osh_status osh_emit_old_still_held(osh_ctx *cx, const osh_emitter *e);
/* Called after the rename. Fails if the directory with the final name is not the directory that
 * this run wrote. */
osh_status osh_emit_got_name(osh_ctx *cx, const osh_emitter *e);

/* check.c: computes checksums [n_out] from the bytes on the disk. Copies the checksums of tensors
 * that early.h has checked. */
osh_status osh_emit_sums(osh_ctx *cx, const osh_emitter *e, uint64_t *sums);


/* emit_queue.c: starts the emitter's thread, which calls `work` for each job. */
osh_status osh_emit_queue_start(osh_ctx *cx, osh_emitter *e, osh_emit_work *work);
/* Lets the thread finish the queued jobs, then stops it. */
void osh_emit_queue_stop(osh_ctx *cx, osh_emitter *e);
/* Appends a copy of j to the queue. Takes ownership of the members of j, also after a failure.
 * Waits while the queue is not empty and more host memory is in use than planned. */
osh_status osh_emit_push(osh_ctx *cx, osh_emitter *e, const osh_emit_job *j);


/* seal.c: deletes the replaced output. */
osh_status osh_emit_remove_replaced(osh_ctx *cx, const osh_emitter *e);


/* origin.c: begins to record checksums of the tensors that are read from the source. */
osh_status osh_origin_open(osh_ctx *cx, osh_emitter *e);
/* Fails if the source differs from the source that the journal names. The checksums in the journal
 * must be read before the call. */
osh_status osh_origin_resume(osh_ctx *cx, osh_emitter *e);
/* Fails if config.json or another side file of the source changed. */
osh_status osh_origin_check_files(osh_ctx *cx, const osh_emitter *e);
/* Compares the source with the source in the manifest of e->final. Sets *diff (own) to a text that
 * describes a difference, or to NULL if there is none. read_from has the stamps in the manifest. */
osh_status osh_origin_of_output(osh_ctx *cx, char **diff, osh_emitter *e, const cJSON *read_from);

/* tuned.c: reads a record OSH_REC_TUNED or OSH_REC_APPLIED. */
osh_status osh_tuned_take(osh_ctx *cx, osh_emitter *e, uint32_t type, osh_reader *in,
                          osh_result *results);


/* records.c: appends a record to the journal, or, on a rank other than 0, to the records for rank
 * 0. */
osh_status osh_emit_record(osh_ctx *cx, osh_emitter *e, uint32_t type, const void *data, size_t n);
/* replay.c: applies the records of e->journal. Checks the bytes on the disk for records after the
 * last barrier, and adds void records for tensors whose bytes were lost. */
osh_status osh_emit_replay(osh_ctx *cx, osh_emitter *e, osh_result *results);
/* replay.c: adds the records of another rank to the journal of rank 0, and applies them to the
 * emitter and the results. */
osh_status osh_emit_do_remote(osh_ctx *cx, osh_emitter *e, const osh_emit_job *j);
/* emit.c: starts the emitter's thread. */
osh_status osh_emit_start(osh_ctx *cx, osh_emitter *e);
/* resume.c: opens a file of the output that rank 0 has made, and checks its size and header. */
osh_status osh_emit_open_shard(osh_ctx *cx, osh_emitter *e, int s);


/* resume.c: continues with the partial directory, or begins a new one. */
osh_status osh_emit_begin(osh_ctx *cx, osh_emitter *e, osh_result *results);
/* Sets *finished to true if e->final is the output of this run. Completes a rename that was
 * interrupted. */
osh_status osh_emit_is_finished(osh_ctx *cx, osh_emitter *e, bool *finished);
#endif
