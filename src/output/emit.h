/* emit.h - writes the planned files. Each tensor is written once, at its planned offset, in a
 * partial directory next to the final directory. The partial directory gets the final name after
 * all its bytes were read again and compared.
 *
 * A journal in the partial directory records the finished work. A run that finds a journal with its
 * own identity continues from there. docs/how-to/resume.md lists the records. */
#ifndef OSH_EMIT_H
#define OSH_EMIT_H
#include "match/globals.h"
#include "plan/plan.h"

typedef struct osh_result { // results of one Linear
    double nmse, objective, nearest; // results of the solve, described at osh_linear_job
    osh_losses losses;
    /* view: which method was used instead of the modifier's, and why; NULL: none. */
    const char *fallback;
    bool done;
    /* True if an earlier run has solved the Linear. Its codes are then only in the output, while
     * memory has the weight of the source. */
    bool earlier;
} osh_result;

#define OSH_LOG_NAME "oneshot.log" // name of the log file in the partial directory
typedef struct osh_emitter osh_emitter;
/* Sets *final to the path of the output directory, with links resolved. Sets *partial to the path
 * of the partial directory, in which the output is built. The caller owns both paths, also after a
 * failure. */
osh_status osh_output_dirs(osh_ctx *cx, char **final, char **partial, const char *output);
/* Fails if an input is inside a directory that a run with this output replaces or deletes. Inputs
 * are the model, recipe, data, template, log, profile and scratch directory of the options. Must be
 * called before anything is written. */
osh_status osh_output_claim(osh_ctx *cx, const osh_options *o);
/* Continues with the partial directory of an earlier run with the same identity, or begins a new
 * one. Sets results [linears] from the journal. If the final directory already is the output of
 * this run, sets *finished to true and *out to NULL.
 *
 * Fails in these cases:
 *   - the partial directory has another identity, and the option restart is not set
 *   - another process writes the partial directory
 *   - the output directory has files, and this program did not make it
 *   - this program made the output directory, and the option overwrite is not set
 *   - the disk does not have enough space */
osh_status osh_emitter_new(osh_ctx *cx, osh_emitter **out, const osh_plan *p, osh_result *results,
                           bool *finished);
/* Stops the emitter's thread and frees the emitter. An output that is not sealed remains for the
 * next run. But the partial directory is removed if it has no finished work, or if
 * osh_emitter_discard was called. */
void osh_emitter_free(osh_ctx *cx, osh_emitter *e);
/* Returns the global scales of all Linears (view), or NULL if no Linear has a global scale. */
osh_globals *osh_emit_globals(osh_emitter *e);
void osh_emitter_discard(osh_emitter *e); // makes osh_emitter_free remove the partial directory
/* True if this process continues an earlier run. */
bool osh_emitter_resumed(const osh_emitter *e);
int osh_emitter_n_resumed(const osh_emitter *e); // number of processes that continued this run
bool osh_emitter_holds_work(const osh_emitter *e); // true if the journal has finished work

/* The next functions give jobs to the emitter's thread, which packs, writes and records them in
 * order while the caller continues. Only one thread at a time may call these functions. After the
 * thread has failed, the next call fails.
 * Waiting jobs are in host memory. An allocation that would exceed the plan's peak waits until a
 * job is written. */

/* Emits the tensors of one Linear. Takes ownership of the codes and params of the job. Also takes
 * ownership of the scale *in_scale and the zero point *in_zero of a static input; both may be
 * NULL. */
osh_status osh_emit_linear(osh_ctx *cx, osh_emitter *e, int linear, osh_linear_job *job,
                           osh_tensor **in_scale, osh_tensor **in_zero);
/* Waits until all jobs are written and recorded. */
osh_status osh_emit_wait(osh_ctx *cx, osh_emitter *e);
/* True if the output tensor is a copy that contains a NaN or an infinity. Called after
 * osh_emit_check. Always false if an earlier process has checked the output. */
bool osh_emit_not_finite(const osh_emitter *e, int64_t out);
/* Waits until the emitter's thread no longer reads memory that was passed to osh_emit_copy_from. */
void osh_emit_let_go(osh_emitter *e);
/* Reads the emitted codes of a Linear from the output and decodes them to w [O, I], which is then
 * equal to the weight that the modifier made. Sets `bias` to the bias that was learned together
 * with the weight; `bias` may be NULL. If several ranks share the job, all call this function
 * together, and rank 0 reads for all. */
osh_status osh_emit_reload(osh_ctx *cx, osh_emitter *e, int linear, osh_tensor *w,
                           osh_tensor *bias);

/* Sets *out to a copy of text t, for the member `fallback` of a job. The copy is a view that lives
 * as long as the emitter. */
osh_status osh_emit_keep_text(osh_ctx *cx, osh_emitter *e, const char **out, const char *text);

/* Writes one record with the factors of the folds in the given subgraphs. Leaves out folds whose
 * factors the traversal with schedule s does not compute. Called before results that depend on
 * these factors are emitted. */
osh_status osh_emit_folds(osh_ctx *cx, osh_emitter *e, const osh_schedule *s, int first_subgraph,
                          int n_subgraphs);
/* Records that a subgraph is complete. generation: number of the visit that stored and synced the
 * subgraph's activations in the disk tier, or -1 if no visit did. If `generation` is not -1, the
 * record is on the disk when this function returns. */
osh_status osh_emit_subgraph(osh_ctx *cx, osh_emitter *e, int subgraph, int64_t generation);
/* Fails if the bytes of a shard of the source have changed. Reads a shard again only if its stamp
 * (size, inode, times) has changed. If `last` is true, also reads it again if its stamp is too
 * recent to be trusted. */
osh_status osh_emit_check_source(osh_ctx *cx, osh_emitter *e, bool last);
/* Returns the index of the last subgraph whose activations an earlier run stored on the disk, or -1
 * if there is none. Sets *generation to the number of the visit that stored them. */
int osh_emit_boundary(const osh_emitter *e, int64_t *generation);

/* Emits an output tensor that is an unchanged copy. `data` has all its bytes, and must stay valid
 * until osh_emit_let_go. Does nothing if the tensor was already emitted. */
osh_status osh_emit_copy_from(osh_ctx *cx, osh_emitter *e, int64_t out, const void *data);
/* Syncs the files of the output. Reads every tensor that early.h did not check, and compares its
 * checksum with that of the written bytes. */
osh_status osh_emit_check(osh_ctx *cx, osh_emitter *e);
typedef struct osh_seal_report {
    const char *html;                                         // view
    const char *readme;                                       // view: the text of README.md
    osh_status (*json)(osh_ctx *cx, void *user, osh_file *f); // writes the JSON report to f
    void *user;
} osh_seal_report;
/* Writes side files, config.json, recipe.yaml, index, manifest and reports. Then gives the
 * directory its final name. Called after osh_emit_check. */
osh_status osh_emit_seal(osh_ctx *cx, osh_emitter *e, const osh_result *results,
                         const osh_seal_report *report);
/* Returns the random number of the run (OSH_REC_RUN). A process that continues the run has the same
 * number. */
uint64_t osh_emit_run(const osh_emitter *e);
const char *osh_emit_dir(const osh_emitter *e); // view: path of the partial directory
#endif
