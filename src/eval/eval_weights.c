/* eval_weights.c - loads the weights of an evaluation to the GPU, step by step (a step is a
 * subgraph, or the heads). A reader (base/ahead.h) reads the weights of the next step while the
 * GPU works on the current one. The new weights overwrite the weights of the previous step. This is
 * safe: the reader begins when the current step begins. At that time, all work of the previous step
 * is in the GPU's queue, and the copies of the new weights run after the queued work. */
#include "eval/eval_weights.h"

#include "base/ahead.h"
#include "gpu/gpu.h"
#include "ops/device_ops.h"

typedef struct placed { // a weight of a step, and its address in GPU memory
    const osh_forward *f; // view
    int weight;
    osh_tensor t;         // view of the block of all weights on the GPU
    /* True if cuFile has read the weight, and the weight is not checked for NaN and infinities
     * yet. */
    bool by_gpu;
} placed;

typedef struct step {
    int first, n; // the weights of a step: elements [first, first + n) of `placed`
    int64_t bytes;
} step;

struct osh_eval_weights {
    placed *placed; // own
    step *steps;    // own
    int n_placed, n_steps, at; // at: index of the step that osh_eval_weights_next begins next
    /* largest: bytes of the largest step.
     * pair: largest sum of bytes of two successive steps. */
    int64_t largest, pair;
    osh_device *device; // view
    char *block;        // view
    /* ahead: true if a thread prefetches the next step. direct: true if cuFile reads files to the
     * GPU. */
    bool ahead, direct;
    const osh_container *shard; // view: shard whose file is open; NULL: none
    osh_file *file;      // own
    osh_device_file *gpu_file; // own: `file`, opened for cuFile
    osh_read_ahead *reader; // own: reader of the steps; NULL: no step was read yet
};

static const osh_entry *placed_entry(const placed *p)
{
    return osh_weight_entry(p->f->graph, osh_source_checkpoint(p->f->source), p->weight);
}

static int64_t placed_stored_bytes(const placed *p)
{
    const osh_entry *e = placed_entry(p);
    return e->end - e->begin;
}

static int64_t placed_gross_bytes(const placed *p)
{
    return (int64_t)osh_arena_gross((size_t)placed_stored_bytes(p));
}

/* ---- steps ---- */

static void step_add_weight(osh_eval_weights *e, const osh_forward *f, int weight)
{
    step *s = &e->steps[e->n_steps];
    placed *p = &e->placed[e->n_placed++];
    *p = (placed){.f = f, .weight = weight};
    s->n++, s->bytes += placed_gross_bytes(p);
}

static void step_end(osh_eval_weights *e)
{
    const step *s = &e->steps[e->n_steps];
    int64_t pair = s->bytes + (e->n_steps ? s[-1].bytes : 0);
    e->largest = s->bytes > e->largest ? s->bytes : e->largest;
    e->pair = pair > e->pair ? pair : e->pair;
    e->steps[++e->n_steps].first = e->n_placed;
}

static osh_status step_add_part(osh_ctx *cx, void *user, osh_forward_part *p)
{
    osh_eval_weights *e = user;
    osh_weight_set s = osh_forward_weights(p);
    (void)cx;
    for (int i = s.first; i < s.end; i++)
        if (s.want[i]) step_add_weight(e, p->f, i);
    step_end(e);
    return OSH_OK;
}

static osh_status steps_add_model(osh_ctx *cx, osh_eval_weights *e, const osh_forward *f)
{
    return osh_forward_walk(cx, f, &(osh_forward_visitor){step_add_part, e, false});
}

/* Returns an upper bound for the number of weights of a model, including the head. */
static int forward_n_weights(const osh_forward *f)
{
    int n = 1;
    for (int i = 0; i < f->graph->n_nodes; i++) n += f->graph->nodes[i].op->n_weights;
    return n;
}

static void step_add_head(osh_eval_weights *e, const osh_forward *f)
{
    const osh_weight *bias = osh_graph_head_bias(f->graph);
    step_add_weight(e, f, (int)(osh_graph_head(f->graph) - f->graph->weights));
    if (bias) step_add_weight(e, f, (int)(bias - f->graph->weights));
}

osh_status osh_eval_weights_new(osh_ctx *cx, osh_eval_weights **out, const osh_forward *f,
                                const osh_forward *ref)
{
    osh_status rc = OSH_OK;
    osh_eval_weights *e = NULL; // own
    OSH_NEW(cx, e, 1);
    OSH_NEW(cx, e->placed, forward_n_weights(f) + (ref ? forward_n_weights(ref) : 0));
    OSH_NEW(cx, e->steps, f->parts->n + (ref ? ref->parts->n : 0) + 2);
    if (ref) OSH_TRY(steps_add_model(cx, e, ref));
    OSH_TRY(steps_add_model(cx, e, f));
    step_add_head(e, f);
    if (ref) step_add_head(e, ref);
    step_end(e);
    *out = e, e = NULL; // passes ownership
done:
    osh_eval_weights_free(cx, e);
    return rc;
}

int64_t osh_eval_weights_bytes(const osh_eval_weights *e, bool ahead)
{
    return ahead ? e->pair : e->largest;
}

int64_t osh_eval_weights_host_bytes(const osh_eval_weights *e)
{
    int64_t most = 0;
    for (int i = 0; i < e->n_placed; i++) {
        const placed *p = &e->placed[i];
        int64_t n = (int64_t)(osh_mem_gross((size_t)placed_stored_bytes(p)) +
                              osh_source_scratch(p->f->source));
        most = n > most ? n : most;
    }
    return most;
}

void osh_eval_weights_place(osh_eval_weights *e, osh_device *d, char *block, bool ahead)
{
    e->device = d, e->block = block, e->ahead = ahead;
    for (int s = 0; s < e->n_steps; s++) {
        int64_t at = ahead && s % 2 ? e->pair - e->steps[s].bytes : 0;
        for (int i = e->steps[s].first; i < e->steps[s].first + e->steps[s].n; i++) {
            placed *p = &e->placed[i];
            const osh_entry *from = placed_entry(p);
            p->t = osh_tensor_view(from->dtype, from->ndim, from->shape, block + at);
            p->t.device = d;
            at += placed_gross_bytes(p);
        }
    }
}

void osh_eval_weights_direct(osh_eval_weights *e) { e->direct = true; }
void osh_eval_weights_not_ahead(osh_eval_weights *e) { e->ahead = false; }
bool osh_eval_weights_ahead(const osh_eval_weights *e) { return e->ahead; }

/* ---- reading ---- */

static void shard_close(osh_ctx *cx, osh_eval_weights *e)
{
    if (e->gpu_file) e->device->type->files->close(cx, e->gpu_file);
    e->gpu_file = NULL;
    osh_file_close(cx, e->file), e->file = NULL;
    e->shard = NULL;
}

/* Opens the file of a shard if it is not open. One file is open at a time, because successive
 * weights are mostly in the same file. */
static osh_status shard_open(osh_ctx *cx, osh_eval_weights *e, const osh_container *shard)
{
    osh_status rc = OSH_OK;
    if (e->shard == shard) goto done;
    shard_close(cx, e);
    OSH_TRY(osh_container_reopen(cx, &e->file, shard));
    osh_file_use_direct(e->file);
    OSH_TRY(e->device->type->files->open(cx, &e->gpu_file, e->device, e->file));
    e->shard = shard;
done:
    if (rc) shard_close(cx, e);
    return rc;
}

static osh_status placed_read(osh_ctx *cx, osh_eval_weights *e, placed *p)
{
    osh_status rc = OSH_OK;
    osh_tensor *h = NULL; // own
    const osh_device_type *type = e->device->type;
    const osh_entry *from = NULL;
    const osh_container *shard =
        !e->direct
            ? NULL
            : osh_weight_stored(&from, p->f->graph, osh_source_checkpoint(p->f->source), p->weight);
    if (shard) {
        OSH_TRY(shard_open(cx, e, shard));
        OSH_TRY(type->files->read(cx, e->gpu_file, p->t.data, osh_tensor_bytes(&p->t),
                                   from->begin, e->ahead));
        p->by_gpu = true;
        goto done;
    }
    OSH_TRY(osh_weight_load(cx, &h, p->f->graph, osh_source_checkpoint(p->f->source), p->weight));
    if (e->ahead) OSH_TRY(type->follow(cx, e->device));
    OSH_TRY((e->ahead ? type->put_ahead : type->put)(cx, e->device, p->t.data, h->data,
                                                  osh_tensor_bytes(h)));
done:
    osh_tensor_free(cx, h);
    return rc;
}

/* Checks that the weights that cuFile has read for the step are finite. If a weight is not finite,
 * the host loads this weight again: the load then fails, and its message has the position of the
 * value. */
static osh_status step_check(osh_ctx *cx, osh_eval_weights *e)
{
    osh_status rc = OSH_OK;
    const step *s = &e->steps[e->at];
    const osh_tensor **t = NULL; // own
    placed **of = NULL;          // own
    osh_tensor *h = NULL;        // own
    int n = 0, bad = 0;
    if (!e->direct) goto done;
    OSH_NEW(cx, t, s->n);
    OSH_NEW(cx, of, s->n);
    for (int i = s->first; i < s->first + s->n; i++)
        if (e->placed[i].by_gpu)
            of[n] = &e->placed[i], t[n++] = &e->placed[i].t, e->placed[i].by_gpu = false;
    OSH_TRY(osh_device_ops_of(e->device)->all_finite(cx, &bad, e->device, t, n));
    if (bad == n) goto done;
    const osh_forward *f = of[bad]->f;
    OSH_TRY(osh_weight_load(cx, &h, f->graph, osh_source_checkpoint(f->source), of[bad]->weight));
    OSH_FAIL(cx, OSH_E_IO,
             "tensor %s is finite in its file, but not after the GPU read it: with --use-gds false "
             "the host reads it",
             f->graph->weights[of[bad]->weight].name);
done:
    osh_tensor_free(cx, h);
    osh_free(cx, of);
    osh_free(cx, t);
    return rc;
}

/* Reads the weights of step `item`. Used as osh_read_items.read. */
static osh_status step_read(osh_ctx *cx, void *user, int item)
{
    osh_status rc = OSH_OK;
    osh_eval_weights *e = user;
    const step *s = &e->steps[item];
    for (int i = s->first; i < s->first + s->n; i++) {
        if (osh_read_ahead_stops(cx, e->reader)) OSH_FAIL(cx, OSH_E_INTERRUPTED, "interrupted");
        OSH_TRY(placed_read(cx, e, &e->placed[i]));
    }
done:
    return rc;
}

/* Waits until the weights of the current step are read. */
static osh_status step_arrive(osh_ctx *cx, osh_eval_weights *e)
{
    osh_status rc = OSH_OK;
    if (!e->reader)
        OSH_TRY(osh_read_ahead_start(
            cx, &e->reader, &(osh_read_items){step_read, e, e->n_steps, .ahead = e->ahead}));
    OSH_TRY(osh_read_ahead_wait(cx, e->reader));
    if (e->ahead) OSH_TRY(e->device->type->fence(cx, e->device));
done:
    return rc;
}

osh_status osh_eval_weights_next(osh_ctx *cx, osh_eval_weights *e, osh_weights *w)
{
    osh_status rc = OSH_OK;
    const step *s = &e->steps[e->at];
    OSH_TRY(step_arrive(cx, e));
    OSH_TRY(step_check(cx, e));
    for (int i = s->first; w && i < s->first + s->n; i++) {
        osh_tensor **to = &w->w[e->placed[i].weight];
        OSH_NEW(cx, *to, 1);
        **to = e->placed[i].t;
    }
    e->at++;
    osh_read_ahead_next(e->reader);
done:
    return rc;
}

const osh_tensor *osh_eval_weights_head(const osh_eval_weights *e, const osh_forward *f,
                                        const osh_weight *w)
{
    const step *last = &e->steps[e->n_steps - 1];
    for (const placed *p = e->placed + last->first; p < e->placed + last->first + last->n; p++)
        if (w && p->f == f && p->weight == w - f->graph->weights) return &p->t;
    return NULL;
}

void osh_eval_weights_free(osh_ctx *cx, osh_eval_weights *e)
{
    if (!e) return;
    osh_read_ahead_free(cx, e->reader);
    shard_close(cx, e);
    osh_free(cx, e->placed);
    osh_free(cx, e->steps);
    osh_free(cx, e);
}
