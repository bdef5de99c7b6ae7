/* emit.h - writes the planned files. Each tensor is written once, at its planned offset, in a
 * partial directory next to the final one. The partial directory gets the final name after all its
 * bytes were read again and compared.
 *
 * A journal in the partial directory records the finished work. A run that finds a journal with the
 * same identity goes on from there. docs/how-to/resume.md lists the records. */
#ifndef OSH_EMIT_H
#define OSH_EMIT_H
#include "match/globals.h"
#include "plan/plan.h"

typedef struct osh_result { // result of a Linear
    double nmse, objective, nearest; // members of osh_linear_job
    osh_losses losses;
    const char *fallback; // view: static, or of the emitter; NULL: none
    bool done;
    bool earlier; // an earlier run did it: the output has its codes, memory has the source's weight
} osh_result;

#define OSH_LOG_NAME "oneshot.log" // file in the partial directory
typedef struct osh_emitter osh_emitter;
/* Returns the paths of the final directory, with links resolved, and of the partial directory, in
 * which the output is built. Both are own, also after a failure. */
osh_status osh_output_dirs(osh_ctx *cx, char **final, char **partial, const char *output);
/* Fails if the model, recipe, data, template, log, profile or scratch directory is inside a
 * directory that a run with this output replaces or deletes. Call it before anything is written. */
osh_status osh_output_claim(osh_ctx *cx, const osh_options *o);
/* Takes up the partial directory of an earlier run with the same identity, or begins a new one.
 * Fills results [linears] from the journal. Sets *finished, with *out NULL, if the final directory
 * is the output of this run already.
 *
 * Fails if the partial directory has another identity (unless restart is set) or another process
 * writes it; if the output directory is not empty and was not made by this program, or was made by
 * it and overwrite is not set; and if the disk has no room. */
osh_status osh_emitter_new(osh_ctx *cx, osh_emitter **out, const osh_plan *p, osh_result *results,
                           bool *finished);
/* Stops the thread of the emitter. Removes the partial directory of an unsealed output if it holds
 * no finished work or osh_emitter_discard was called. */
void osh_emitter_free(osh_ctx *cx, osh_emitter *e);
osh_globals *osh_emit_globals(osh_emitter *e); // view; NULL: no Linear has a global scale
void osh_emitter_discard(osh_emitter *e); // osh_emitter_free removes the partial directory
bool osh_emitter_resumed(const osh_emitter *e);
bool osh_emitter_holds_work(const osh_emitter *e); // something is finished

/* The functions below hand jobs over to a thread of the emitter. The thread packs, writes and
 * records them in their order while the caller goes on. After a failure of the thread the next call
 * fails. Jobs that wait are in host memory. An allocation that would go above the plan's peak waits
 * until a job is written. Only one thread at a time may call these functions. */

/* Emits the tensors of one Linear. Takes codes and params of the job, and *in_scale and *in_zero
 * (those of a static input, or NULL). */
osh_status osh_emit_linear(osh_ctx *cx, osh_emitter *e, int linear, osh_linear_job *job,
                           osh_tensor **in_scale, osh_tensor **in_zero);
/* Waits until everything is written and recorded. */
osh_status osh_emit_wait(osh_ctx *cx, osh_emitter *e);
/* Waits until the thread no longer reads memory that osh_emit_copy_from got. */
void osh_emit_let_go(osh_emitter *e);
/* Reads the emitted codes of a Linear from the output and decodes them to w [O, I]: bit for bit the
 * weight that the modifier made. bias: receives the bias that learned with it, or NULL. */
osh_status osh_emit_reload(osh_ctx *cx, osh_emitter *e, int linear, osh_tensor *w,
                           osh_tensor *bias);

/* Records the factors of these subgraphs in one record. Call it before results of weights that have
 * the factors folded in are emitted. */
osh_status osh_emit_folds(osh_ctx *cx, osh_emitter *e, int first_subgraph, int n_subgraphs);
/* Records that a subgraph is complete. generation >= 0: number of its activations in the disk tier,
 * which are synced already; then the record is on the disk, too, when this function returns. */
osh_status osh_emit_subgraph(osh_ctx *cx, osh_emitter *e, int subgraph, int64_t generation);
/* Fails if a shard of the source changed. A shard with another stamp is read again. last: reads a
 * shard again, too, if its stamp is too fresh to be trusted. */
osh_status osh_emit_check_source(osh_ctx *cx, osh_emitter *e, bool last);
/* Returns the last subgraph that an earlier run recorded with a generation of activations; -1:
 * none. */
int osh_emit_boundary(const osh_emitter *e, int64_t *generation);

/* Emits an output tensor that is a bitwise copy. data: all its bytes, which must stay valid until
 * osh_emit_let_go. Does nothing if the tensor was emitted already. */
osh_status osh_emit_copy_from(osh_ctx *cx, osh_emitter *e, int64_t out, const void *data);
/* Syncs the files. Reads every tensor that early.h did not check, and compares its checksum. */
osh_status osh_emit_check(osh_ctx *cx, osh_emitter *e);
typedef struct osh_seal_report {
    const char *html;                                         // view
    osh_status (*json)(osh_ctx *cx, void *user, osh_file *f); // writes the JSON report
    void *user;
} osh_seal_report;
/* Writes side files, config.json, recipe.yaml, index, manifest and reports, and gives the directory
 * its final name. Call it after osh_emit_check. */
osh_status osh_emit_seal(osh_ctx *cx, osh_emitter *e, const osh_result *results,
                         const osh_seal_report *report);
/* Returns a random number that identifies the run which began the partial directory. */
uint64_t osh_emit_run(const osh_emitter *e);
const char *osh_emit_dir(const osh_emitter *e); // view: path of the partial directory
#endif
