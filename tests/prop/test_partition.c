/* test_partition.c - checks partitions of graphs for every kind of target, with 1 to 5 targets per
 * subgraph.
 *
 * Every node must be in exactly one subgraph, and the subgraphs must be in the order of the nodes.
 * Linears that share an input must be in one subgraph. live_in and live_out must equal the sets
 * that a simple search finds. */
#include "golden/models/tiny.h"
#include "graph/exec.h"

#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>
#include <cmocka.h>

static bool part_reads(const osh_graph *g, const osh_subgraph *s, int value)
{
    for (int i = s->first; i < s->first + s->n_nodes; i++)
        for (int k = 0; k < OSH_OP_MAX_IN; k++)
            if (g->nodes[i].in[k] == value) return true;
    return false;
}

static bool part_makes(const osh_graph *g, const osh_subgraph *s, int value)
{
    for (int i = s->first; i < s->first + s->n_nodes; i++)
        for (int k = 0; k < OSH_OP_MAX_OUT; k++)
            if (g->nodes[i].out[k] == value) return true;
    return false;
}

static bool listed(const int *list, int n, int value)
{
    int count = 0;
    for (int i = 0; i < n; i++) count += list[i] == value;
    assert_true(count <= 1);
    return count == 1;
}

static void check_live(const osh_graph *g, const osh_partition *p)
{
    for (int s = 0; s < p->n; s++)
        for (int v = 0; v < g->n_values; v++) {
            const osh_subgraph *part = &p->parts[s];
            bool before = v == g->input_ids, later = false;
            for (int t = 0; t < s; t++) before |= part_makes(g, &p->parts[t], v);
            for (int t = s + 1; t < p->n; t++) later |= part_reads(g, &p->parts[t], v);
            assert_int_equal(listed(part->live_in, part->n_live_in, v),
                             before && part_reads(g, part, v));
            assert_int_equal(listed(part->live_out, part->n_live_out, v),
                             later && (before || part_makes(g, part, v)));
        }
}

static void check_cover(const osh_graph *g, const osh_partition *p, int64_t per)
{
    int next = 0;
    for (int s = 0; s < p->n; s++) {
        assert_int_equal(p->parts[s].first, next);
        assert_true(p->parts[s].n_nodes > 0);
        assert_true(p->parts[s].n_targets <= per);
        assert_true(s == 0 || p->parts[s].n_targets > 0);
        assert_true(p->parts[s].n_targets == per || s == 0 || s == p->n - 1);
        assert_true(osh_graph_module(g, p->parts[s].name) >= 0);
        next += p->parts[s].n_nodes;
    }
    assert_int_equal(next, g->n_nodes);
}

static bool is_expert(const osh_graph *g, const osh_node *n) // true if `n` is a Linear of an expert
{
    int parent = g->modules[n->module].parent;
    return parent >= 0 && !strcmp(g->modules[parent].cls, "ExpertMLPWithGate");
}

static void check_siblings(const osh_graph *g, const osh_partition *p)
{
    for (int s = 0; s < p->n; s++)
        for (int i = p->parts[s].first; i < p->parts[s].first + p->parts[s].n_nodes; i++)
            for (int k = 0; k < g->n_nodes; k++) {
                const osh_node *a = &g->nodes[i], *b = &g->nodes[k];
                if (strcmp(a->op->name, "linear") || a->op != b->op || a->in[0] != b->in[0])
                    continue;
                // one of the two nodes is a Linear of an expert, the other is the router
                if (is_expert(g, a) != is_expert(g, b)) continue;
                bool beside = g->modules[a->module].parent == g->modules[b->module].parent;
                if (is_expert(g, a) && !beside) continue;
                assert_in_range(k, p->parts[s].first, p->parts[s].first + p->parts[s].n_nodes - 1);
            }
}

static int total_targets(const osh_partition *p)
{
    int n = 0;
    for (int s = 0; s < p->n; s++) n += p->parts[s].n_targets;
    return n;
}

typedef struct target_row {
    const char *targets[2];
    size_t n;
    int want;
} target_row;
static const target_row rows[] = {
    // `want`: number of targets in a model of 2 layers
    {{NULL}, 0, 2},
    {{"Linear"}, 1, 2 * 4 + 1}, // each layer has four targets: (q, k, v), o, (gate, up), down; the
                                // head is one more target
    {{"LlamaDecoderLayer"}, 1, 2},
    {{"LlamaAttention"}, 1, 2},
    {{"LlamaMLP", "LlamaAttention"}, 2, 4},
    {{"LlamaDecoderLayer", "Linear"},
     2,
     3}, // two layers, and the head; Linears inside of layers are no targets of their own
    {{"re:.*layers\\.1\\..*_proj$"}, 1, 4},
    {{"re:.*k_proj$"}, 1, 2}, // q and v are in the subgraph of k
    {{"re:.*"}, 1, 2},        // the targets are the modules "model" and "lm_head"
    {{"LlamaRMSNorm"}, 1, 5},
    {{"Embedding"}, 1, 1},
    {{"lm_head"}, 1, 1},
    {{"model.layers.1"}, 1, 1},
    {{"model.layers.0.mlp.down_proj", "model.norm"}, 2, 2},
};

/* Targets for qwen3_moe. The model has 3 layers; the second layer has an MLP instead of experts. */
static const target_row moe_rows[] = {
    {{NULL}, 0, 3},
    {{"Linear"}, 1, 3 * 2 + 2 * 12 + 2 + 1}, // each of 3 layers has (q, k, v) and o; each of 12
                                             // experts and the MLP has (gate, up) and down; plus
                                             // the head
    {{"Qwen3MoeSparseMoeBlock"}, 1, 2},
    {{"ExpertMLPWithGate"}, 1, 2 * 6},
    {{"re:.*experts\\.3\\.down_proj$"}, 1, 2},
    {{"Qwen3MoeTopKRouter", "Linear"}, 2, 3 * 2 + 2 * 13 + 2 + 1},
    {{"re:.*layers\\.0\\..*_proj$"}, 1, 2 + 12},
};

typedef struct model {
    osh_ctx *cx;
    osh_checkpoint *ck;
    osh_graph *g;
} model;

static void open_model(model *m, const char *name)
{
    char dir[] = "partition-XXXXXX";
    tiny_case t;
    assert_int_equal(osh_ctx_new(&m->cx, 1), OSH_OK);
    assert_non_null(mkdtemp(dir));
    tiny_open(m->cx, &t, name);
    tiny_write(m->cx, &t, dir, OSH_F32);
    tiny_check(m->cx, osh_checkpoint_open(m->cx, &m->ck, dir));
    tiny_check(m->cx, osh_graph_new(m->cx, &m->g, m->ck, NULL));
    tiny_check(m->cx, osh_dir_remove(m->cx, dir));
    tiny_close(&t);
}

static void close_model(model *m)
{
    osh_graph_free(m->cx, m->g);
    osh_checkpoint_close(m->cx, m->ck);
    assert_int_equal(osh_mem_live(m->cx), 0);
    osh_ctx_free(m->cx);
}

static int set_up(void **state)
{
    static model m;
    open_model(&m, "llama_default");
    *state = &m;
    return 0;
}

static int tear_down(void **state)
{
    close_model(*state);
    return 0;
}

static void check_row(const model *m, const target_row *row)
{
    for (int64_t per = 1; per <= 5; per++) {
        osh_partition *p = NULL;
        tiny_check(m->cx, osh_partition_new(m->cx, &p, m->g, row->targets, row->n, per));
        if (total_targets(p) != row->want)
            fail_msg("%s, %lld per subgraph: %d targets, want %d",
                     row->n ? row->targets[0] : "layers", (long long)per, total_targets(p),
                     row->want);
        check_cover(m->g, p, per);
        check_siblings(m->g, p);
        check_live(m->g, p);
        osh_partition_free(m->cx, p);
    }
}

static void every_node_once(void **state)
{
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) check_row(*state, &rows[r]);
}

/* All experts of a layer read one value. Gate and up of an expert are one target, and down is
 * another target. */
static void experts_are_cut(void **state)
{
    (void)state;
    model m;
    osh_partition *p = NULL;
    const char *linear = "Linear";
    open_model(&m, "qwen3_moe");
    for (size_t r = 0; r < sizeof moe_rows / sizeof *moe_rows; r++) check_row(&m, &moe_rows[r]);
    tiny_check(m.cx, osh_partition_new(m.cx, &p, m.g, &linear, 1, 1));
    // the first subgraph of an expert; parts 0 to 2 are: the embedding; q, k and v; o and the
    // router
    const osh_subgraph *s = &p->parts[3];
    assert_string_equal(s->name, "model.layers.0.mlp.experts.0.gate_proj");
    assert_int_equal(s->n_nodes, 3); // the nodes are gate, up, and the product of their outputs
    assert_string_equal(s[1].name, "model.layers.0.mlp.experts.0.down_proj");
    assert_int_equal(s[1].n_nodes, 2);
    assert_string_equal(s[11].name, "model.layers.0.mlp.experts.5.down_proj");
    osh_partition_free(m.cx, p);
    close_model(&m);
}

/* Adds the nodes of the original model to the graph, as if all Linears were quantized. If `only` is
 * not negative, only node `only` counts as quantized. Returns the new position of each node (own;
 * free() frees it). */
static int *add_original(const model *m, int only)
{
    int *moved = calloc((size_t)m->g->n_nodes, sizeof *moved);
    bool *changed = calloc((size_t)m->g->n_nodes, sizeof *changed);
    for (int i = 0; i < m->g->n_nodes; i++)
        changed[i] = only < 0 ? !strcmp(m->g->nodes[i].op->name, "linear") : i == only;
    tiny_check(m->cx, osh_graph_add_original(m->cx, m->g, changed, moved));
    free(changed);
    return moved;
}

/* A graph with the nodes of the original model must be cut at the same nodes. Each node of the
 * original model must be in the subgraph of its counterpart. */
static void cut_with_the_original(void **state)
{
    const char *const names[] = {"llama_default", "qwen3_moe"};
    (void)state;
    for (int k = 0; k < 4; k++) {
        model m, two;
        open_model(&m, names[k / 2]), open_model(&two, names[k / 2]);
        int only = k % 2
                       ? m.g->modules[osh_graph_module(m.g, "model.layers.1.self_attn.k_proj")].node
                       : -1;
        int *moved = add_original(&two, only);
        assert_true(two.g->n_nodes > m.g->n_nodes + 1);
        const target_row *r = k / 2 ? moe_rows : rows;
        for (size_t i = 0; i < (k / 2 ? sizeof moe_rows : sizeof rows) / sizeof *rows; i++)
            for (int64_t per = 1; per <= 3; per++) {
                osh_partition *p = NULL, *q = NULL;
                tiny_check(m.cx, osh_partition_new(m.cx, &p, m.g, r[i].targets, r[i].n, per));
                tiny_check(two.cx, osh_partition_new(two.cx, &q, two.g, r[i].targets, r[i].n, per));
                assert_int_equal(p->n, q->n);
                check_cover(two.g, q, per);
                check_live(two.g, q);
                for (int s = 0; s < p->n; s++) {
                    const osh_subgraph *a = &p->parts[s], *b = &q->parts[s];
                    int first = moved[a->first], last = moved[a->first + a->n_nodes - 1];
                    assert_string_equal(a->name, b->name);
                    assert_int_equal(b->first,
                                     first - (first > 0 && two.g->nodes[first - 1].original));
                    assert_int_equal(b->first + b->n_nodes - 1, last);
                }
                osh_partition_free(m.cx, p), osh_partition_free(two.cx, q);
            }
        free(moved);
        close_model(&m), close_model(&two);
    }
}

static void decoder_layers(void **state)
{
    model *m = *state;
    osh_partition *p = NULL;
    tiny_check(m->cx, osh_partition_new(m->cx, &p, m->g, NULL, 0, 1));
    assert_int_equal(p->n, 3);
    assert_string_equal(p->parts[0].name, "model.embed_tokens");
    assert_int_equal(p->parts[0].n_nodes, 1);
    assert_int_equal(p->parts[0].n_targets, 0);
    assert_string_equal(p->parts[1].name, "model.layers.0");
    assert_string_equal(p->parts[2].name, "model.layers.1");
    assert_int_equal(p->parts[1].n_live_in, 1); // layer 0 reads only one value, the residual stream
    assert_int_equal(p->parts[1].n_live_out, 1);
    assert_int_equal(p->parts[2].n_live_out, 0);
    osh_partition_free(m->cx, p);

    const char *linear = "Linear";
    tiny_check(m->cx, osh_partition_new(m->cx, &p, m->g, &linear, 1, 1));
    assert_int_equal(p->n, 10);
    // the first norm is in the subgraph of the embedding
    assert_string_equal(p->parts[0].name, "model.embed_tokens");
    assert_string_equal(p->parts[1].name, "model.layers.0.self_attn.q_proj");
    assert_string_equal(p->parts[9].name, "lm_head");
    osh_partition_free(m->cx, p);
}

static void refused(void **state)
{
    model *m = *state;
    osh_partition *p = NULL;
    const char *none[] = {"Linear", "MixtralDecoderLayer"};
    assert_int_equal(osh_partition_new(m->cx, &p, m->g, none, 2, 1), OSH_E_USAGE);
    assert_non_null(strstr(osh_error_text(m->cx), "MixtralDecoderLayer"));
    osh_error_clear(m->cx);
    assert_int_equal(osh_partition_new(m->cx, &p, m->g, NULL, 0, 0), OSH_E_USAGE);
    osh_error_clear(m->cx);
    assert_null(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_node_once),
        cmocka_unit_test(cut_with_the_original),
        cmocka_unit_test(experts_are_cut),
        cmocka_unit_test(decoder_layers),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
