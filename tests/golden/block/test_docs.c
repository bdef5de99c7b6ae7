/* test_docs.c - compares AdaRound and AdaQuant of each layer of examples/docs-llama-3m in F32 with
 * PyTorch (gen_docs.py) for the same inputs. The losses of 40 steps must agree within 1 %. In every
 * 64th row, 99 % of the codes must be equal. */
#include "golden/models/tiny.h"
#include "learn/block.h"
#include "plain.h"
#include "text/json.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>
#include <cmocka.h>

enum { NUMBERS = 20261123, STEPS = 40, TAKE = 4, GROUP = 128, LINEARS = 7, ROWS = 64, WIDTH = 256,
       KINDS = 2 };
static const char source[] = OSH_SOURCE_DIR "/examples/docs-llama-3m",
                  golden[] = OSH_SOURCE_DIR "/tests/golden/block";

static const struct { const char *name; osh_ada_rule rule; } kinds[KINDS] = {
    {"round", {.kind = OSH_ADA_ROUND, .steps = STEPS, .rate = 0.1, .reg = 0.01, .from = 20, .to = 2,
               .warm = 0.2}},
    {"quant", {.kind = OSH_ADA_QUANT, .steps = STEPS, .rate = 5e-5, .scale_rate = 1e-3}},
};

typedef struct docs {
    osh_ctx *cx;
    char dir[32];
    osh_checkpoint *ck;
    osh_graph *g;
    osh_weights *w;          // own: all weights, in F32
    osh_partition *parts;
    int first, n, in, out;   // current layer: its nodes [first, first + n), its input value, its
                             // output value
    osh_dataset data;
    int32_t *ids;            // own
    int64_t *offsets;        // own
    /* Own [tokens, WIDTH]: input of the quantized layer, input of the original layer, output of the
     * original layer. */
    float *x, *x0, *y0;
    osh_tensor *dense[LINEARS]; // own
    float *scale[LINEARS];      // own
    int8_t *codes[LINEARS];     // own
    osh_block_weight learns[LINEARS];
    double curve[STEPS];
} docs;

static void write_text(osh_ctx *cx, const char *dir, const char *name, const char *text)
{
    char *path = osh_path_join(cx, dir, name);
    tiny_check(cx, osh_file_write_all(cx, path, text, strlen(text)));
    osh_free(cx, path);
}

/* Opens the model with the dtype "float32" in its config. */
static void model_open(docs *m)
{
    char path[512], *text = NULL, *at, config[4096];
    size_t n;
    snprintf(m->dir, sizeof m->dir, "docs-XXXXXX");
    assert_non_null(mkdtemp(m->dir));
    snprintf(path, sizeof path, "%s/config.json", source);
    tiny_check(m->cx, osh_file_read_all(m->cx, &text, &n, path, sizeof config / 2));
    assert_non_null(at = strstr(text, "\"bfloat16\""));
    snprintf(config, sizeof config, "%.*s\"float32\"%s", (int)(at - text), text,
             at + strlen("\"bfloat16\""));
    write_text(m->cx, m->dir, "config.json", config);
    osh_free(m->cx, text);
    char *link = osh_path_join(m->cx, m->dir, "model.safetensors");
    snprintf(path, sizeof path, "%s/model.safetensors", source);
    assert_int_equal(symlink(path, link), 0);
    osh_free(m->cx, link);
    tiny_check(m->cx, osh_checkpoint_open(m->cx, &m->ck, m->dir));
    tiny_check(m->cx, osh_graph_new(m->cx, &m->g, m->ck, NULL));
    assert_int_equal(m->g->dtype, OSH_F32);
    tiny_check(m->cx, osh_weights_new(m->cx, &m->w, m->g));
    tiny_check(m->cx, osh_weights_load(m->cx, m->w, m->g, m->ck, 0, m->g->head));
    for (int i = 0; i < m->g->n_weights; i++) {
        osh_tensor *t = m->w->w[i], *wide = NULL;
        if (!t || t->dtype == OSH_F32) continue;
        tiny_check(m->cx, osh_tensor_new(m->cx, &wide, OSH_F32, t->ndim, t->shape));
        osh_to_f32(wide->data, t->data, t->dtype, osh_tensor_numel(t));
        osh_tensor_free(m->cx, t), m->w->w[i] = wide;
    }
    tiny_check(m->cx, osh_partition_new(m->cx, &m->parts, m->g, NULL, 0, 1));
}

static void samples_open(docs *m, const cJSON *ids)
{
    int64_t n = cJSON_GetArraySize(ids), at = 0;
    m->ids = calloc((size_t)(n * 1024), sizeof *m->ids),
    m->offsets = calloc((size_t)(n + 1), sizeof *m->offsets);
    for (const cJSON *s = ids->child; s; s = s->next) {
        for (const cJSON *id = s->child; id; id = id->next) m->ids[at++] = (int32_t)id->valuedouble;
        m->offsets[++m->data.n] = at;
    }
    m->data.ids = m->ids, m->data.offsets = m->offsets;
    for (float **x[3] = {&m->x, &m->x0, &m->y0}, ***p = x; p < x + 3; p++)
        **p = calloc((size_t)(at * WIDTH), 4);
}

/* Copies the data `from` to value number v, and runs the nodes [first, first + n). Then copies
 * value number `out` to the memory `to`. */
static void run(docs *m, int first, int n, int v, const float *from, int out, float *to)
{
    osh_batch *b = NULL;
    bool *keep = calloc((size_t)m->g->n_values, 1);
    keep[out] = true;
    tiny_check(m->cx, osh_batch_new(m->cx, &b, m->g, m->ids, m->offsets, m->data.n));
    if (from) {
        tiny_check(m->cx, osh_tensor_new(m->cx, &b->values[v], OSH_F32, 2,
                                         (int64_t[]){b->n_tokens, WIDTH}));
        memcpy(b->values[v]->data, from, osh_tensor_bytes(b->values[v]));
    }
    tiny_check(m->cx, osh_exec_run(m->cx, &(osh_exec_span){m->g, first, n, NULL, keep}, m->w, b,
                                   NULL, true));
    memcpy(to, b->values[out]->data, osh_tensor_bytes(b->values[out]));
    osh_batch_free(m->cx, b);
    free(keep);
}

/* Sets the members for layer l. The layer has as many nodes as the first layer. (The subgraph of
 * the last layer has more nodes, because it also contains the head.) */
static void layer_at(docs *m, int l)
{
    const osh_subgraph *s = &m->parts->parts[1 + l];
    assert_int_equal(s->n_live_in, 1);
    m->first = s->first, m->n = m->parts->parts[1].n_nodes, m->in = s->live_in[0];
    m->out = m->g->nodes[m->first + m->n - 1].out[0];
}

static void run_layer(docs *m, const float *from, float *to)
{
    run(m, m->first, m->n, m->in, from, m->out, to);
}

static osh_status rows(osh_ctx *cx, void *user, int k, int64_t sample, osh_tensor *to)
{
    const docs *m = user;
    (void)cx;
    memcpy(to->data, (k ? m->y0 : m->x) + m->offsets[sample] * WIDTH, osh_tensor_bytes(to));
    return OSH_OK;
}

/* Sets scales and codes by rounding the original weights to nearest. */
static void round_layer(docs *m)
{
    int n = 0;
    for (int i = m->first; i < m->first + m->n; i++) {
        if (!osh_node_is(&m->g->nodes[i], OSH_OP_LINEAR)) continue;
        const osh_tensor *t = m->w->w[m->g->nodes[i].w[0]];
        const float *w = t->data;
        int64_t all = osh_tensor_numel(t);
        tiny_check(m->cx, osh_tensor_new(m->cx, &m->dense[n], OSH_F32, 2, t->shape));
        memcpy(m->dense[n]->data, w, osh_tensor_bytes(t));
        m->learns[n] = (osh_block_weight){.weight = m->g->nodes[i].w[0]};
        m->scale[n] = calloc((size_t)(all / GROUP), sizeof(float)),
        m->codes[n] = calloc((size_t)all, 1);
        for (int64_t k = 0; k < all; k++)
            m->scale[n][k / GROUP] = fmaxf(m->scale[n][k / GROUP], fabsf(w[k]) / 7.5f);
        for (int64_t k = 0; k < all; k++)
            m->codes[n][k] = (int8_t)fmaxf(-8, fminf(7, nearbyintf(w[k] / m->scale[n][k / GROUP])));
        n++;
    }
    assert_int_equal(n, LINEARS);
}

static void layer_free(docs *m)
{
    for (int k = 0; k < LINEARS; k++) {
        osh_tensor_free(m->cx, m->dense[k]), m->dense[k] = NULL;
        free(m->scale[k]), free(m->codes[k]);
    }
}

static void learn(docs *m, const osh_ada_rule *rule)
{
    bool *run_all = calloc((size_t)m->n, 1);
    int values[2] = {m->in, m->out};
    memset(run_all, true, (size_t)m->n);
    layer_free(m);
    round_layer(m);
    for (int k = 0; k < LINEARS; k++)
        m->learns[k].args = (osh_ada_args){.rule = *rule, .w = m->dense[k], .codes = m->codes[k],
                                           .scale = m->scale[k],
                                           .O = m->dense[k]->shape[0], .I = m->dense[k]->shape[1],
                                           .group = GROUP,
                                           .row_block = 1,
                                           .scales = {.grid = osh_grid_of(4, false),
                                                      .dtype = OSH_F32}};
    osh_block b = {.g = m->g, .data = &m->data, .w = m->w, .first = m->first, .n = m->n,
                   .run = run_all,
                   .in = values, .out = values + 1, .n_in = 1, .n_out = 1, .rows = rows, .user = m,
                   .rule = {.steps = STEPS, .samples = TAKE, .period = 1, .seed = NUMBERS,
                            .kind = rule->kind,
                            .sum = true, .share = 1},
                   .learns = m->learns, .n_learns = LINEARS, .curve = m->curve};
    tiny_check(m->cx, osh_block_learn(m->cx, &b));
    for (int k = 0; k < LINEARS; k++) // the original weights replace the learned weights
        memcpy(m->w->w[m->learns[k].weight]->data, m->dense[k]->data,
               osh_tensor_bytes(m->dense[k]));
    free(run_all);
}

/* Compares the losses and codes of a layer. `want` has the codes of PyTorch, two per byte. Returns
 * the position in `want` after this layer. */
static const uint8_t *check(const docs *m, const char *kind, int layer, const cJSON *curve,
                            const uint8_t *want)
{
    int64_t same = 0, n = 0;
    for (int t = 0; t < STEPS; t++) {
        double x = cJSON_GetArrayItem(curve, t)->valuedouble;
        if (!(fabs(m->curve[t] - x) <= 0.01 * x))
            fail_msg("%s, layer %d, step %d: loss %.6g, PyTorch has %.6g", kind, layer, t,
                     m->curve[t], x);
    }
    for (int k = 0; k < LINEARS; k++)
        for (int64_t o = 0; o < m->dense[k]->shape[0]; o += ROWS)
            for (int64_t i = 0; i < m->dense[k]->shape[1]; i++, n++)
                same += m->codes[k][o * m->dense[k]->shape[1] + i] + 8 ==
                        (want[n / 2] >> n % 2 * 4 & 15);
    print_message("%s, layer %d: %ld of %ld codes\n", kind, layer, (long)same, (long)n);
    if (same * 100 < n * 99)
        fail_msg("%s, layer %d: %ld of %ld codes", kind, layer, (long)same, (long)n);
    return want + n / 2;
}

/* Computes the inputs of the next layer: x from the rounded layers, x0 from the original layers. */
static void advance(docs *m, int64_t n)
{
    layer_free(m);
    round_layer(m);
    for (int k = 0; k < LINEARS; k++) {
        float *w = m->w->w[m->learns[k].weight]->data;
        for (int64_t i = 0; i < osh_tensor_numel(m->dense[k]); i++)
            w[i] = m->codes[k][i] * m->scale[k][i / GROUP];
    }
    run_layer(m, m->x, m->x);
    memcpy(m->x0, m->y0, (size_t)(n * WIDTH) * sizeof(float));
}

static void test_docs(void **state)
{
    docs m = {0};
    cJSON *json = NULL;
    char path[512], *file = NULL;
    size_t n = 0;
    (void)state;
    assert_int_equal(osh_ctx_new(&m.cx, 2), OSH_OK);
    snprintf(path, sizeof path, "%s/docs.json", golden);
    tiny_check(m.cx, osh_json_read(m.cx, &json, path, 1 << 20, 0));
    snprintf(path, sizeof path, "%s/docs.bin", golden);
    tiny_check(m.cx, osh_file_read_all(m.cx, &file, &n, path, 1 << 20));
    model_open(&m);
    samples_open(&m, cJSON_GetObjectItemCaseSensitive(json, "ids"));
    const cJSON *layers = cJSON_GetObjectItemCaseSensitive(json, "layers");
    const uint8_t *want = (const uint8_t *)file;
    layer_at(&m, 0);
    run(&m, 0, m.first, -1, NULL, m.in, m.x0);
    int64_t tokens = m.offsets[m.data.n];
    memcpy(m.x, m.x0, (size_t)(tokens * WIDTH) * sizeof(float));
    // all layers run the same code, so one layer is enough with sanitizers
    int n_layers = SANITIZED ? 1 : m.g->n_layers;
    for (int l = 0; l < n_layers; l++) {
        layer_at(&m, l);
        run_layer(&m, m.x0, m.y0);
        for (int k = 0; k < KINDS; k++) {
            learn(&m, &kinds[k].rule);
            const cJSON *of = cJSON_GetArrayItem(layers, l);
            want = check(&m, kinds[k].name, l, cJSON_GetObjectItemCaseSensitive(of, kinds[k].name),
                         want);
        }
        advance(&m, tokens);
    }
    assert_true(SANITIZED || (const char *)want == file + n);
    layer_free(&m);
    free(m.x), free(m.x0), free(m.y0), free(m.ids), free(m.offsets);
    osh_partition_free(m.cx, m.parts);
    osh_weights_free(m.cx, m.w);
    osh_graph_free(m.cx, m.g);
    osh_checkpoint_close(m.cx, m.ck);
    tiny_check(m.cx, osh_dir_remove(m.cx, m.dir));
    cJSON_Delete(json);
    osh_free(m.cx, file);
    assert_int_equal(osh_mem_live(m.cx), 0);
    osh_ctx_free(m.cx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_docs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
