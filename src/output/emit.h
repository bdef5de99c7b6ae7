/* emit.h - writes the planned files: each tensor once, at its planned offset, in a directory beside
 * the final name, which gets that name when everything has been re-read and agrees.
 *
 * A journal in that directory says what is done. A run that finds one of the same identity goes on from there;
 * docs/resume.md has the records. */
#ifndef OSH_EMIT_H
#define OSH_EMIT_H
#include "plan/globals.h"

typedef struct osh_result { // of a Linear
    double nmse, objective, nearest; // as of osh_linear_job
    osh_losses losses;
    const char *fallback; // view: static, or of the emitter; NULL: none
    bool done;
    bool earlier; // an earlier run did it: its codes are in the output, the weight in memory is the source's
} osh_result;

#define OSH_LOG_NAME "oneshot.log" // in the directory where the output is built
typedef struct osh_emitter osh_emitter;
/* The directory that gets the output's name, links followed, and the one beside it where it is built; both own, also
 * where this fails. */
osh_status osh_output_dirs(osh_ctx *cx, char **final, char **partial, const char *output);
/* Before anything is written: no model, recipe, data, template, log, profile or scratch directory lies where a run into
 * this output replaces or deletes. */
osh_status osh_output_claim(osh_ctx *cx, const osh_options *o);
/* Takes up the partial directory of an earlier run of the same identity, or begins one; refuses one of another identity
 * (unless restart is set), one that another process writes, an output directory that is neither empty nor made by this
 * program (that one only with overwrite), and a disk without room. Fills what the journal knows into results
 * [linears]. *finished: the final directory is this run's output already; *out is NULL. */
osh_status osh_emitter_new(osh_ctx *cx, osh_emitter **out, const osh_plan *p, osh_result *results, bool *finished);
/* Not sealed: the partial directory stays if something in it is done. */
void osh_emitter_free(osh_ctx *cx, osh_emitter *e);
osh_globals *osh_emit_globals(osh_emitter *e); // view; NULL: no Linear has a global scale
void osh_emitter_discard(osh_emitter *e); // what is done is not worth to go on from: nothing stays
bool osh_emitter_resumed(const osh_emitter *e);
bool osh_emitter_holds_work(const osh_emitter *e); // something is done: worth to go on from

/* What is to be written is handed over: a thread of the emitter packs, writes and records it, in this order, while the
 * caller goes on. A failure of that thread is the next call's. What waits is host memory; where an allocation would go
 * above the plan's peak it waits until something of it has been written. One thread at a time calls. */

/* What replaces one Linear. Takes codes and params of the job, *in_scale and *in_zero (of a static input, or NULL). */
osh_status osh_emit_linear(osh_ctx *cx, osh_emitter *e, int linear, osh_linear_job *job, osh_tensor **in_scale,
                           osh_tensor **in_zero);
osh_status osh_emit_wait(osh_ctx *cx, osh_emitter *e); // until everything is written and recorded
void osh_emit_let_go(osh_emitter *e); // until nothing that osh_emit_copy_from was given is read any more
/* The weight [O, I] that the emitted codes stand for, read from the output: bit for bit what the modifier left. bias:
 * the one that learned with it, or NULL. */
osh_status osh_emit_reload(osh_ctx *cx, osh_emitter *e, int linear, osh_tensor *w, osh_tensor *bias);

/* The factors of these subgraphs are known: one record of all of them, before what is made of weights that have them
 * folded in. */
osh_status osh_emit_folds(osh_ctx *cx, osh_emitter *e, int first_subgraph, int n_subgraphs);
/* A subgraph is complete. generation >= 0: that of the activations behind it in the disk tier, which are on the disk:
 * the record is, too, when this returns. */
osh_status osh_emit_subgraph(osh_ctx *cx, osh_emitter *e, int subgraph, int64_t generation);
/* Every shard of the source is the one that was read, or has the same bytes; last: also where its time alone cannot
 * tell. */
osh_status osh_emit_check_source(osh_ctx *cx, osh_emitter *e, bool last);
/* The last subgraph that an earlier run recorded with the generation of its activations; -1: none. */
int osh_emit_boundary(const osh_emitter *e, int64_t *generation);

/* An output tensor that is copied bit for bit, from memory that has its bytes and stays until osh_emit_let_go; nothing
 * where it is written already. */
osh_status osh_emit_copy_from(osh_ctx *cx, osh_emitter *e, int64_t out, const void *data);
osh_status osh_emit_check(osh_ctx *cx, osh_emitter *e);  // fsync; what early.h has not is read again and compared
typedef struct osh_seal_report {
    const char *html;                                         // view
    osh_status (*json)(osh_ctx *cx, void *user, osh_file *f); // writes it
    void *user;
} osh_seal_report;
/* After osh_emit_check: side files, config.json, recipe.yaml, index, manifest, reports; rename. */
osh_status osh_emit_seal(osh_ctx *cx, osh_emitter *e, const osh_result *results, const osh_seal_report *report);
uint64_t osh_emit_run(const osh_emitter *e); // drawn when the partial directory was begun; no other one has it
const char *osh_emit_dir(const osh_emitter *e); // view: where the output is being built
#endif
