/* block_bytes.c - checks that a block can be learned, and computes the bytes of its learning. */
#include <string.h>

#include "learn/learning.h"

osh_status osh_block_check(osh_ctx *cx, const osh_block *b)
{
    osh_status rc = OSH_OK;
    osh_learning l = {.b = (osh_block *)b}; // own
    OSH_TRY(osh_learning_lists_new(cx, &l));
    osh_back k = osh_learning_back(&l);
    OSH_TRY(osh_back_check(cx, &k));
done:
    osh_learning_end(cx, &l);
    return rc;
}

/* Flags of the graph's values, for the predictions of passes. All arrays are own [values]. */
typedef struct block_marks { bool *leaves, *in, *all; } block_marks;

static void marks_deinit(osh_ctx *cx, block_marks *m)
{
    osh_free(cx, m->leaves);
    osh_free(cx, m->in);
    osh_free(cx, m->all);
}

static osh_status marks_init(osh_ctx *cx, block_marks *m, const osh_block *b)
{
    osh_status rc = OSH_OK;
    OSH_NEW(cx, m->leaves, b->g->n_values);
    OSH_NEW(cx, m->in, b->g->n_values);
    OSH_NEW(cx, m->all, b->g->n_values);
    memset(m->all, true, (size_t)b->g->n_values);
    for (int k = 0; k < b->n_in; k++) m->in[b->in[k]] = true;
    for (int k = 0; k < b->n_out; k++) m->leaves[b->out[k]] = true;
done:
    return rc;
}

/* Computes the bytes of the passes of a batch: in host memory, and in the arena of a device. */
static osh_status block_pass_bytes(osh_ctx *cx, size_t *host, size_t *device, const osh_learning *l,
                                   const block_marks *m)
{
    osh_status rc = OSH_OK;
    const osh_block *b = l->b;
    const osh_graph *g = b->g;
    int64_t tokens = osh_block_most_tokens(b);
    size_t back = 0, forth = 0, target = 0;
    osh_back k = osh_learning_back(l);
    if (b->on_device) {
        OSH_TRY(osh_back_peak_on_device(cx, device, &k, m->leaves, tokens));
        *device += osh_arena_gross(osh_block_target_bytes(b)) +
                   osh_arena_gross((size_t)tokens * sizeof(double)) +
                   (b->data->counted ? osh_arena_gross((size_t)tokens) : 0);
        *host = osh_mem_gross(sizeof(osh_batch)) + osh_batch_lists(g, tokens + 1) +
                2 * osh_mem_gross((size_t)g->n_values * sizeof(bool)) +
                2 * (size_t)(b->n + b->n_in + b->n_out) * osh_mem_gross(sizeof(osh_tensor));
        goto done;
    }
    for (int i = 0; i < b->n_out; i++) {
        size_t one = osh_value_gross(g, b->out[i], tokens);
        if (one > target) target = one;
    }
    OSH_TRY(osh_back_peak(cx, &back, &k, m->leaves, tokens, osh_threads(cx)));
    osh_exec_batch whole = {.n_tokens = tokens, .n_threads = osh_threads(cx)};
    OSH_TRY(osh_exec_peak(cx, &forth, NULL, &(osh_exec_span){g, b->first, b->n, b->run, m->all},
                          &(osh_exec_brought){.in = m->in}, &whole));
    forth += osh_batch_lists(g, tokens);
    *host = (back > forth ? back : forth) + target, *device = 0;
done:
    return rc;
}

/* Returns the host bytes of the lists of an osh_learning. */
static size_t block_list_bytes(const osh_block *b)
{
    const osh_graph *g = b->g;
    size_t tokens = (size_t)osh_block_most_tokens(b);
    return osh_mem_gross(tokens * sizeof(double)) + 2 * osh_mem_gross(tokens * sizeof(int32_t)) +
           osh_mem_gross(tokens) + 2 * osh_mem_gross((size_t)(b->data->n + 1) * sizeof(int64_t)) +
           osh_mem_gross((size_t)g->n_weights * sizeof(int)) +
           2 * osh_mem_gross((size_t)g->n_weights) +
           2 * osh_mem_gross((size_t)g->n_values * sizeof(void *)) +
           osh_mem_gross((size_t)b->n_learns * sizeof(void *)) +
           osh_mem_gross((size_t)b->n_learns * sizeof(osh_block_bias));
}

osh_status osh_block_bytes(osh_ctx *cx, size_t *host, size_t *device, const osh_block *b)
{
    osh_status rc = OSH_OK;
    osh_learning l = {.b = (osh_block *)b}; // own
    block_marks m = {0};                // own
    size_t making = 0;
    OSH_TRY(osh_learning_lists_new(cx, &l));
    OSH_TRY(marks_init(cx, &m, b));
    OSH_TRY(block_pass_bytes(cx, host, device, &l, &m));
    for (int i = 0; i < b->n_learns; i++) {
        const osh_block_weight *x = &b->learns[i];
        osh_ada_memory of =
            osh_ada_learner_bytes(&x->args, osh_threads(cx), b->on_device, x->dtype);
        *host += of.host, *device += of.device;
        if (of.making > making) making = of.making;
        if (x->bias_rate > 0)
            *host += osh_mem_gross(OSH_BIAS_ARRAYS * (size_t)x->args.O * sizeof(float));
    }
    *host += making + block_list_bytes(b);
done:
    marks_deinit(cx, &m);
    osh_learning_end(cx, &l);
    return rc;
}
