/* test_back.c - tests gradients through whole tiny models. Gradients must agree with finite
 * differences of the loss. The gradients must not depend on the number of ranges of nodes. A batch
 * must
 * give the same gradients as its samples one by one. The predicted bytes must be enough; on a GPU
 * the arena has exactly the predicted bytes. For an op without a gradient, a message must name the
 * op. */
#include "graph/back.h"
#include "math/pairs.h"
#include "plain.h"
#include "tiny_model.h"
#include "kernels/on_gpu.h"

typedef struct model {
    tiny_model at;
    osh_tensor **dw; // own [weights]: sums of the gradients that the hook gets; NULL: no gradient
                     // yet
    bool *wants;     // own [weights]: true if the gradient of the weight is wanted
    bool places;     // true if the caller of osh_back provides the storage of the gradients
} model;

static void model_open(model *m, const char *name, osh_dtype dt, int n_threads)
{
    tiny_model_open(&m->at, name, dt, n_threads);
    m->places = false;
    tiny_check(m->at.cx,
               osh_weights_load(m->at.cx, m->at.w, m->at.g, m->at.ck, 0, m->at.g->n_nodes));
    m->dw = calloc((size_t)m->at.g->n_weights, sizeof(osh_tensor *));
    m->wants = calloc((size_t)m->at.g->n_weights, sizeof *m->wants);
    // requests the gradients of all weights except the embedding and the head
    for (int i = 0; i < m->at.g->n_nodes; i++) {
        const osh_node *n = &m->at.g->nodes[i];
        for (int k = 0; i != m->at.g->head && n->op->grad.run[OSH_REF] && k < n->op->n_weights; k++)
            if (n->w[k] >= 0) m->wants[n->w[k]] = true;
    }
}

static void model_close(model *m)
{
    for (int i = 0; i < m->at.g->n_weights; i++) osh_tensor_free(m->at.cx, m->dw[i]);
    free(m->dw);
    free(m->wants);
    tiny_model_close(&m->at);
}

static float probe(int64_t row, int64_t i) { return osh_rng_sym(3, (uint64_t)row, (uint64_t)i); }

/* Returns the loss: the sum of probe * hidden over all samples. */
static double loss(model *m)
{
    osh_batch *b = NULL;
    double sum = 0;
    tiny_check(m->at.cx, osh_batch_new(m->at.cx, &b, m->at.g, m->at.t.ids, m->at.t.offsets,
                                       m->at.t.n_samples));
    tiny_check(m->at.cx,
               osh_exec_run(m->at.cx, &(osh_exec_span){m->at.g, 0, m->at.g->head, NULL, NULL},
                            m->at.w, b, NULL, true));
    const osh_tensor *h = b->values[m->at.g->hidden];
    for (int64_t i = 0; i < osh_tensor_numel(h); i++)
        sum += (double)((float *)h->data)[i] * probe(i / h->shape[1], i % h->shape[1]);
    osh_batch_free(m->at.cx, b);
    return sum;
}

static osh_status add_weight(osh_ctx *cx, void *user, int weight, const osh_tensor *dw)
{
    osh_status rc = OSH_OK;
    model *m = user;
    if (m->dw[weight] == dw) return OSH_OK;
    if (!m->dw[weight]) {
        OSH_TRY(osh_tensor_new(cx, &m->dw[weight], OSH_F32, dw->ndim, dw->shape));
        memset(m->dw[weight]->data, 0, osh_tensor_bytes(dw));
    }
    for (int64_t i = 0; i < osh_tensor_numel(dw); i++)
        ((float *)m->dw[weight]->data)[i] += ((const float *)dw->data)[i];
done:
    return rc;
}

/* Returns storage for the gradient of a weight. The storage is filled with NaNs, and the gradient
 * must overwrite them. Returns NULL if the weight already has a sum of gradients. */
static osh_tensor *place_of(void *user, int weight)
{
    model *m = user;
    const osh_weight *w = &m->at.g->weights[weight];
    if (m->dw[weight]) return NULL;
    tiny_check(m->at.cx, osh_tensor_new(m->at.cx, &m->dw[weight], OSH_F32, w->ndim, w->shape));
    memset(m->dw[weight]->data, 0xff, osh_tensor_bytes(m->dw[weight]));
    return m->dw[weight];
}

/* Runs the forward and the backward pass over samples [first, first + n). If `cut` is not 0, the
 * nodes run as two ranges, and node `cut` is the first node of the second range. The values that
 * the second range reads from the first are then copied, like values that go through the activation
 * store. */
static osh_status go_back(osh_ctx *cx, model *m, int first, int n, int cut)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = m->at.g;
    osh_batch *b = NULL;                                                          // own
    bool *in = NULL;                                                              // own
    osh_tensor **dv = NULL;                                                       // own
    osh_back k = {.g = g, .weights = m->wants, .weight = add_weight, .user = m};
    OSH_NEW(cx, in, g->n_values);
    OSH_NEW(cx, dv, g->n_values);
    k.in = in;
    if (m->places) k.placed = m->wants, k.place = place_of;
    OSH_TRY(osh_batch_new(cx, &b, g, m->at.t.ids, m->at.t.offsets + first, n));
    OSH_TRY(osh_exec_run(cx, &(osh_exec_span){g, 0, g->head, NULL, NULL}, m->at.w, b, NULL, true));
    OSH_TRY(osh_tensor_new(cx, &dv[g->hidden], OSH_F32, 2, b->values[g->hidden]->shape));
    for (int64_t i = 0, D = g->values[g->hidden].width; i < b->n_tokens * D; i++)
        ((float *)dv[g->hidden]->data)[i] = probe(m->at.t.offsets[first] + i / D, i % D);
    for (int part = cut ? 1 : 0; part >= 0; part--) {
        k.first = part ? cut : 0, k.n = (part || !cut ? g->head : cut) - k.first;
        for (int v = 0; v < g->n_values; v++)
            in[v] = part && g->values[v].producer < cut && v != g->input_ids;
        OSH_TRY(osh_back_check(cx, &k));
        OSH_TRY(osh_back_run(cx, &k, m->at.w, b, dv));
    }
    for (int v = 0; v < g->n_values; v++) assert_true(!dv[v]);
done:
    for (int v = 0; dv && v < g->n_values; v++) osh_tensor_free(cx, dv[v]);
    osh_free(cx, dv);
    osh_free(cx, in);
    osh_batch_free(cx, b);
    return rc;
}

/* Compares `got` with the finite difference of the loss when the weight moves by `step` along the
 * direction `way`. The F32 loss has errors of about 1e-6. */
static bool gradient_agrees(model *m, int weight, const float *way, double got, double step,
                            double *want)
{
    float *x = m->at.w->w[weight]->data;
    int64_t n = osh_tensor_numel(m->at.w->w[weight]);
    float *old = malloc((size_t)n * sizeof *old);
    double at[2];
    memcpy(old, x, (size_t)n * sizeof *old);
    for (int side = 0; side < 2; side++) {
        for (int64_t i = 0; i < n; i++) x[i] = old[i] + (float)(side ? -step : step) * way[i];
        at[side] = loss(m);
    }
    memcpy(x, old, (size_t)n * sizeof *old);
    free(old);
    *want = (at[0] - at[1]) / (2 * step);
    return fabs(got - *want) <= 0.01 * fabs(got) + 2e-5 / step;
}

/* Checks the gradient dw of a weight along dw / |dw|, or along the sign of dw. Along the sign,
 * small elements count as much as large elements. Several step lengths are tried, because a long
 * step may make a router choose other experts, which a gradient does not predict. */
static void check_weight(model *m, int weight, bool sign)
{
    const osh_tensor *d = m->dw[weight];
    int64_t n = osh_tensor_numel(d);
    float *way = malloc((size_t)n * sizeof *way);
    double size = 0, want[3], got = 0;
    for (int64_t i = 0; i < n; i++) size += (double)((float *)d->data)[i] * ((float *)d->data)[i];
    for (int64_t i = 0; i < n; i++) {
        float g = ((float *)d->data)[i];
        way[i] = sign || size == 0 ? (g > 0 ? 1 : -1) / sqrtf((float)n) : g / (float)sqrt(size);
        got += (double)g * way[i];
    }
    bool good = gradient_agrees(m, weight, way, got, 1e-3, &want[0]) ||
                gradient_agrees(m, weight, way, got, 2e-4, &want[1]) ||
                gradient_agrees(m, weight, way, got, 5e-5, &want[2]);
    if (!good)
        fail_msg("%s: gradient %g, differences %g, %g, %g", m->at.g->weights[weight].name, got,
                 want[0], want[1], want[2]);
    free(way);
}

static const char *const names[] = {"llama_dynamic", "qwen3_layer_types",
                                    "gemma2", "gpt_neox", "olmo2", "granite",
                                    "opt", "phi3", "gemma3", "falcon",
                                    "glm4", "qwen3_moe", "qwen2_moe", "mixtral",
                                    "gpt_oss",       "qwen3_next",
                                    "mamba2", "granite_hybrid_moe", "deepseek_v3"};
enum { N_NAMES = sizeof names / sizeof *names };

static void gradients_are_differences(void **state)
{
    (void)state;
    if (gpu_alone()) return;
    for (int k = 0; k < N_NAMES; k++) {
        model m;
        int n = 0;
        model_open(&m, names[k], OSH_F32, 2);
        tiny_check(m.at.cx, go_back(m.at.cx, &m, 0, m.at.t.n_samples, 0));
        for (int i = 0; i < m.at.g->n_weights; i++) {
            if (!m.wants[i]) continue;
            assert_non_null(m.dw[i]);
            /* Each difference takes a forward pass, so a build with sanitizers checks only some
             * weights. */
            if (!SANITIZED || n % 8 == 0) check_weight(&m, i, n % 2);
            n++;
        }
        assert_true(n > 8);
        model_close(&m);
    }
}

/* The model has BF16 values, which are rounded as in a run. */
static void parts_threads_and_samples_do_not_matter(void **state)
{
    (void)state;
    if (gpu_alone()) return;
    for (int k = 0; k < 4; k++) {
        model a, b, c;
        model_open(&a, names[k], OSH_BF16, 2);
        model_open(&b, names[k], OSH_BF16, 1);
        model_open(&c, names[k], OSH_BF16, 3);
        int cut = a.at.g->head / 2 + 1;
        tiny_check(a.at.cx, go_back(a.at.cx, &a, 0, a.at.t.n_samples, 0));
        tiny_check(b.at.cx, go_back(b.at.cx, &b, 0, b.at.t.n_samples, cut));
        for (int s = 0; s < c.at.t.n_samples; s++)
            tiny_check(c.at.cx, go_back(c.at.cx, &c, s, 1, s % 2 ? cut : 3));
        for (int i = 0; i < a.at.g->n_weights; i++) {
            if (!a.wants[i]) continue;
            assert_memory_equal(a.dw[i]->data, b.dw[i]->data, osh_tensor_bytes(a.dw[i]));
            double error = 0, square = 1e-30; // in c the gradient of each sample is rounded to f32
                                              // before it is added, so a and c differ slightly
            for (int64_t e = 0; e < osh_tensor_numel(a.dw[i]); e++) {
                double x = ((float *)a.dw[i]->data)[e], y = ((float *)c.dw[i]->data)[e];
                error += (x - y) * (x - y), square += y * y;
            }
            assert_true(error <= 1e-11 * square);
        }
        model_close(&a);
        model_close(&b);
        model_close(&c);
    }
}

/* Compares gradients in the caller's storage with gradients in the storage of osh_back, batch by
 * batch. */
static void places_do_not_matter(void **state)
{
    (void)state;
    if (gpu_alone()) return;
    for (int k = 0; k < N_NAMES; k++) {
        model a, b;
        model_open(&a, names[k], OSH_BF16, 2);
        model_open(&b, names[k], OSH_BF16, 2);
        b.places = true;
        for (int part = 0; part < 2; part++) {
            int first = part ? 1 : 0, n = part ? a.at.t.n_samples - 1 : 1;
            tiny_check(a.at.cx, go_back(a.at.cx, &a, first, n, 0));
            tiny_check(b.at.cx, go_back(b.at.cx, &b, first, n, 0));
        }
        for (int i = 0; i < a.at.g->n_weights; i++)
            for (int64_t e = 0; a.wants[i] && e < osh_tensor_numel(a.dw[i]); e++)
                if (((float *)a.dw[i]->data)[e] != ((float *)b.dw[i]->data)[e])
                    fail_msg("%s, %s: element %d is another one", names[k], a.at.g->weights[i].name,
                             (int)e);
        model_close(&a);
        model_close(&b);
    }
}

/* Checks that the values and gradients of the longest sample take no more bytes than predicted,
 * with exact and with rough matrix products. The prediction is for the kind of products that needs
 * more scratch. On a CPU with instructions for pairs of BF16 numbers, exact products often need
 * less scratch than rough products. */
static void the_peak_is_kept(void **state)
{
    (void)state;
    if (gpu_alone()) return;
    for (int k = 0; k < 2 * N_NAMES; k++) {
        const char *name = names[k / 2];
        bool rough = k % 2;
        double most = !rough && osh_pairs_used() ? 1.5 : 1.05;
        model m;
        model_open(&m, name, OSH_BF16, 2);
        const osh_graph *g = m.at.g;
        osh_batch *b = NULL;
        size_t said = 0;
        bool *in = calloc((size_t)g->n_values, 1), *leaves = calloc((size_t)g->n_values, 1);
        osh_tensor **dv = calloc((size_t)g->n_values, sizeof *dv);
        leaves[g->hidden] = true;
        // allocates the sums of gradients before the measurement, because the prediction does not
        // count tensors of the hook
        for (int i = 0; i < g->n_weights; i++)
            if (m.wants[i]) {
                const osh_weight *w = &g->weights[i];
                tiny_check(m.at.cx, osh_tensor_new(m.at.cx, &m.dw[i], OSH_F32, w->ndim, w->shape));
                memset(m.dw[i]->data, 0, osh_tensor_bytes(m.dw[i]));
            }
        osh_back way = {.g = g, .n = g->head, .weights = m.wants, .in = in, .weight = add_weight,
                        .user = &m,
                        .rough = rough};
        const int64_t *at = m.at.t.offsets;
        int longest = 0;
        for (int s = 1; s < m.at.t.n_samples; s++)
            if (at[s + 1] - at[s] > at[longest + 1] - at[longest]) longest = s;
        size_t base = osh_mem_used(m.at.cx, OSH_MEM_HOST);
        tiny_check(m.at.cx, osh_batch_new(m.at.cx, &b, g, m.at.t.ids, at + longest, 1));
        tiny_check(m.at.cx, osh_exec_run(m.at.cx, &(osh_exec_span){g, 0, g->head, NULL, NULL},
                                         m.at.w, b, NULL, true));
        tiny_check(m.at.cx, osh_tensor_new(m.at.cx, &dv[g->hidden], OSH_F32, 2,
                                           b->values[g->hidden]->shape));
        memset(dv[g->hidden]->data, 0, osh_tensor_bytes(dv[g->hidden]));
        tiny_check(m.at.cx, osh_back_peak(m.at.cx, &said, &way, leaves, b->n_tokens, 2));
        // peak of the forward pass, which depends on the instruction set
        size_t forward = osh_mem_used_peak(m.at.cx, OSH_MEM_HOST);
        osh_mem_limit(m.at.cx, OSH_MEM_HOST, base + said);
        tiny_check(m.at.cx, osh_back_run(m.at.cx, &way, m.at.w, b, dv));
        osh_mem_limit(m.at.cx, OSH_MEM_HOST, 0);
        size_t took = osh_mem_used_peak(m.at.cx, OSH_MEM_HOST);
        if (took > forward && (double)said > most * (double)(took - base))
            fail_msg("%s takes %zu, said %zu", name, took - base, said);
        osh_batch_free(m.at.cx, b);
        free(dv);
        free(leaves);
        free(in);
        model_close(&m);
    }
}

static void what_has_no_gradient_is_refused(void **state)
{
    (void)state;
    model m;
    model_open(&m, "llama_tied", OSH_BF16, 1);
    for (int i = 0; i < m.at.g->n_nodes; i++)
        if (!strcmp(m.at.g->nodes[i].op->name, "embedding")) m.wants[m.at.g->nodes[i].w[0]] = true;
    assert_int_equal(go_back(m.at.cx, &m, 0, 1, 0), OSH_E_UNSUPPORTED);
    if (!strstr(osh_error_text(m.at.cx), "model.embed_tokens: embedding has no gradient"))
        fail_msg("%s", osh_error_text(m.at.cx));
    model_close(&m);
}

static osh_status fetch_weight(osh_ctx *cx, void *user, int weight, const osh_tensor *dw)
{
    osh_status rc = OSH_OK;
    osh_tensor *t = NULL; // own
    OSH_TRY(osh_tensor_new(cx, &t, OSH_F32, dw->ndim, dw->shape));
    OSH_TRY(osh_tensor_copy(cx, t, dw));
    OSH_TRY(add_weight(cx, user, weight, t));
done:
    osh_tensor_free(cx, t);
    return rc;
}

/* Runs the forward and the backward pass on a GPU. The size of the GPU's arena is the size of the
 * weights plus the peak that osh_back_peak_on_device predicts. Returns false if there is no GPU. */
static bool back_on_gpu(model *m)
{
    osh_ctx *cx = m->at.cx;
    const osh_graph *g = m->at.g;
    const int64_t *offsets = m->at.t.offsets, N = offsets[m->at.t.n_samples];
    const int64_t shape[2] = {N, g->values[g->hidden].width};
    size_t said = 0;
    bool *in = calloc((size_t)g->n_values, 1), *leaves = calloc((size_t)g->n_values, 1);
    osh_tensor **dv = calloc((size_t)g->n_values, sizeof *dv), *seed = NULL;
    osh_batch *b = NULL;
    osh_back k = {.g = g, .n = g->head, .weights = m->wants, .in = in, .on_device = true,
                  .weight = fetch_weight,
                  .user = m};
    leaves[g->hidden] = true;
    tiny_check(cx, osh_back_check(cx, &k));
    tiny_check(cx, osh_back_peak_on_device(cx, &said, &k, leaves, N));
    for (int i = 0; i < g->n_weights; i++)
        said += m->at.w->w[i] ? osh_arena_gross(osh_tensor_bytes(m->at.w->w[i])) : 0;
    osh_device *d = gpu_open(cx, said);
    for (int i = 0; d && i < g->n_weights; i++) {
        osh_tensor *host = m->at.w->w[i];
        if (!host) continue;
        osh_where where = {d, OSH_LIFE_LONG};
        tiny_check(
            cx, osh_tensor_new_on(cx, &m->at.w->w[i], where, host->dtype, host->ndim, host->shape));
        tiny_check(cx, osh_tensor_copy(cx, m->at.w->w[i], host));
        osh_tensor_free(cx, host);
    }
    if (d) {
        tiny_check(cx,
                   osh_batch_new_on(cx, &b, d, g,
                                    &(osh_batch_rows){m->at.t.ids, offsets, m->at.t.n_samples}));
        tiny_check(cx, osh_exec_run(cx, &(osh_exec_span){g, 0, g->head, NULL, NULL}, m->at.w, b,
                                    NULL, true));
        tiny_check(cx, osh_tensor_new(cx, &seed, OSH_F32, 2, shape));
        for (int64_t i = 0; i < N * shape[1]; i++)
            ((float *)seed->data)[i] = probe(i / shape[1], i % shape[1]);
        tiny_check(cx, osh_tensor_new_on(cx, &dv[g->hidden], (osh_where){d, OSH_LIFE_SHORT},
                                         OSH_F32, 2, shape));
        tiny_check(cx, osh_tensor_copy(cx, dv[g->hidden], seed));
        tiny_check(cx, osh_back_run(cx, &k, m->at.w, b, dv));
        for (int v = 0; v < g->n_values; v++) assert_true(!dv[v]);
    }
    osh_tensor_free(cx, seed);
    osh_batch_free(cx, b);
    for (int i = 0; d && i < g->n_weights; i++)
        osh_tensor_free(cx, m->at.w->w[i]), m->at.w->w[i] = NULL;
    osh_device_close(cx, d);
    free(in), free(leaves), free(dv);
    return d != NULL;
}

/* Compares gradients of a GPU with those of the host, in F32. The gradients differ a little,
 * because the GPU adds in another order. */
static void a_gpu_goes_back(void **state)
{
    static const char *const on[] = {"llama_default", "qwen3_layer_types", "olmo2", "granite",
                                     "phi3",          "gpt_neox"};
    (void)state;
    for (size_t c = 0; c < sizeof on / sizeof *on; c++) {
        model gpu, host;
        model_open(&gpu, on[c], OSH_F32, 1), model_open(&host, on[c], OSH_F32, 1);
        osh_back k = {
            .g = gpu.at.g, .n = gpu.at.g->head, .weights = gpu.wants, .on_device = true};
        bool *in = calloc((size_t)gpu.at.g->n_values, 1), has;
        k.in = in, has = osh_back_check(gpu.at.cx, &k) == OSH_OK;
        free(in);
        if (!has)
            print_message("%s: %s\n", on[c], osh_error_text(gpu.at.cx)),
                osh_error_clear(gpu.at.cx);
        if (has && back_on_gpu(&gpu)) {
            tiny_check(host.at.cx, go_back(host.at.cx, &host, 0, host.at.t.n_samples, 0));
            for (int i = 0; i < host.at.g->n_weights; i++) {
                if (!host.wants[i]) continue;
                double e = nmse(gpu.dw[i], host.dw[i]);
                if (!(e < 1e-8)) fail_msg("%s, %s: NMSE %g", on[c], host.at.g->weights[i].name, e);
            }
        }
        model_close(&gpu), model_close(&host);
    }
}

static void allocations_fail(void **state)
{
    (void)state;
    if (gpu_alone()) return;
    osh_status rc = OSH_E_NOMEM;
    // there are a few hundred allocations, so only every seventh fails
    for (int64_t nth = 1; rc; nth += 7) {
        model m;
        model_open(&m, "llama_tied", OSH_BF16, 1);
        osh_mem_fail_after(m.at.cx, nth);
        rc = go_back(m.at.cx, &m, 0, 1, 3);
        osh_mem_fail_after(m.at.cx, -1);
        assert_true(rc == OSH_OK || rc == OSH_E_NOMEM);
        model_close(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_differences),
        cmocka_unit_test(parts_threads_and_samples_do_not_matter),
        cmocka_unit_test(places_do_not_matter),
        cmocka_unit_test(the_peak_is_kept),
        cmocka_unit_test(what_has_no_gradient_is_refused),
        cmocka_unit_test(a_gpu_goes_back),
        cmocka_unit_test(allocations_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
