/* test_op_gradients.c - tests the gradients of ops.
 *
 * The reference must agree with finite differences of the forward reference, in F32. The CPU and
 * CUDA kernels must agree with the reference. The gradients must not depend on batches or threads.
 * No op may use more memory than it predicts. Ops without a gradient must be refused. */
#include "on_gpu.h"
#include "ops/scan.h"

typedef struct grad_case {
    const char *op;
    /* n: number of tokens.
     * split: index of the first token of the second and of the third sample; 0: there is no such
     * sample. */
    int64_t n, split[2];
    /* {width, 0} for each input, then {rows, columns} for each weight. columns is 0 if the weight
     * has one dimension. */
    int64_t in[7][2];
    int64_t out;         // width of the output; 0: the output is [n]
    const void *attr;
    float amp;           // amplitude of the inputs; 0 means 1
    int n_out;           // number of outputs of the forward pass; 0 means 1
    unsigned fixed;      // bit k: in[k] gets no gradient
    unsigned ids;        // bit k: in[k] has the targets, I32 [n]
    /* True if the case has no finite differences, and runs on the GPU with fewer dtypes and in one
     * order of the threads. A smaller case tests the rest. */
    bool large;
} grad_case;

static char silu[] = "silu", gelu[] = "gelu", gelu_tanh[] = "gelu_pytorch_tanh", relu2[] = "relu2",
            relu[] = "relu";
static const osh_glu_attr g_silu = {silu}, g_gelu = {gelu}, g_tanh = {gelu_tanh},
                          g_clamped = {silu, 7, 1.702};
static const osh_act_attr f_relu2 = {relu2}, f_silu = {silu}, f_relu = {relu};
static const osh_rms_norm_attr rms = {.eps = 1e-2}, rms_heads = {.eps = 1e-6, .head_dim = 8},
                               gemma = {.eps = 1e-5, .offset = 1, .late = true};
static const osh_layer_norm_attr ln = {.eps = 1e-2}, ln_bias = {.eps = 1e-5, .bias = true};
static const osh_layer_norm_attr ln_plus = {.eps = 1e-5, .bias = true, .offset = 1},
                                 ln_heads = {.eps = 1e-5, .bias = true, .head_dim = 8},
                                 ln_plain = {.eps = 1e-2, .plain = true};
static const osh_clamp_attr within = {1};
static const osh_linear_attr lin = {0}, lin_bias = {.bias = true};
static const osh_scale_attr by3 = {0.3, false};
static const osh_slice_attr slice_row = {3, 5, 0}, slice_heads = {3, 3, 9},
                            slice_padded = {3, 3, 9, 2};
static const osh_rope_attr rope_halves = {
    .head_dim = 8, .rotary_dim = 6, .inv_freq = {1, 0.3f, 0.1f}, .attention_scaling = 1.2};
static const osh_rope_attr rope_pairs = {.head_dim = 8, .rotary_dim = 8,
                                         .inv_freq = {1, 0.3f, 0.1f, 0.03f}, .attention_scaling = 1,
                                         .interleaved = true, .position_beta = 0.5,
                                         .position_original = 4};
static const osh_attention_attr att = {6, 2, 7, 0, 0.9, 0}, att_window = {6, 2, 7, 3, 0, 0},
                                att_cap = {4, 1, 8, 0, 0.9, 1.5}, att_one = {1, 1, 1, 0, 0, 0},
                                att_cap_window = {2, 2, 64, 100, 0, 2};
static const osh_moe_router_attr top1s = {1, false, true}, top2 = {2, false}, top2n = {2, true},
                                 top2ns = {2, true, false, true};
static const osh_routed_scale_attr any_expert = {-1}, scale1 = {1};
static const osh_moe_combine_attr expert1 = {1}, expert1p = {1, true};
static const osh_position_scale_attr far4 = {0.5, 4};
static const osh_rms_norm_attr rms_plain = {.eps = 1e-2, .plain = true};
static const osh_attention_attr att_chunk = {6, 2, 7, 0, 0.9, 0, 5},
                                att_chunk64 = {2, 2, 64, 0, 0, 0, 100};
static const osh_rotate_attr turn7 = {.n = 7};
static const osh_positions_attr pos = {20, 2};
static const osh_join_attr join_each = {3, 2}, join_all = {4, 5};
static const osh_conv1d_attr conv = {4, true, true}, conv_plain = {3, false, false},
                             conv_long = {16, true, true};
static const osh_gated_norm_attr gated = {1e-2, 8, false}, gated_before = {1e-2, 24, true},
                                 gated_whole = {1e-2, 8, true, true, true};
static const osh_moe_sparsemixer_attr mixer = {{2}, 0.3};
static char greedy[] = "greedy", groups[] = "groups";
static const osh_moe_gate_attr gate_soft = {{2, false}, 6, 1, 1, 2.5, false, false, greedy},
                               gate_groups = {{3, true}, 8, 4, 2, 1.5, true, true, groups},
                               gate_40 = {{4, false}, 40, 1, 1, 2.5, false, false, greedy},
                               gate_64 = {{6, true}, 64, 8, 3, 1.5, true, true, groups};
static const osh_delta_rule_attr delta = {2, 4, 5, 7, 2}, delta_wide = {1, 1, 32, 24, 1},
                                 delta_many = {130, 130, 1, 1, 1};
static const osh_sigmoid_gate_attr half_gate = {false}, soft_gate = {true};
static const osh_mamba_scan_attr mamba5 = {5};
static const osh_alibi_attr alibi7 = {.head_dim = 7, .by = 2};
static const osh_ssm_scan_attr scan = {4, 5, 6, 2, 0.4, 0.9}, scan_wide = {10, 8, 16, 1, 0, 0},
                               scan_many = {40, 3, 4, 5, 0, 0};
static const osh_vocab_attr rules = {{{2, 3}, {0.5, 2}}};
static float head_bias[2101]; // bias for the ops nll and kl; main fills it
static const osh_tensor bias = {.dtype = OSH_F32, .ndim = 1, .shape = {200}, .data = head_bias},
                        bias_2101 = {.dtype = OSH_F32, .ndim = 1, .shape = {2101},
                                     .data = head_bias};
static const osh_vocab_attr biased = {{{2, 3}, {0, 2}}, {&bias, &bias}},
                            biased_2101 = {{{2, 3}, {0, 2}}, {&bias_2101, &bias_2101}};

static const grad_case cases[] = {
    {"add", 7, {3}, {{7, 0}, {7, 0}}, 7},
    {"add_f32", 7, {3}, {{7, 0}, {7, 0}}, 7},
    {"scale", 7, {3}, {{129, 0}}, 129, &by3},
    {"slice", 7, {3}, {{9, 0}}, 5, &slice_row},
    {"slice", 7, {3}, {{18, 0}}, 6, &slice_heads},
    {"slice", 7, {3}, {{18, 0}}, 10, &slice_padded},
    {"positions", 13, {5, 6}, {{9, 0}, {20, 9}}, 9, &pos},
    {"sigmoid_gate", 7, {3}, {{1, 0}, {129, 0}}, 129, &half_gate, 2},
    {"sigmoid_gate", 7, {3}, {{129, 0}, {129, 0}}, 129, &half_gate, 2},
    {"sigmoid_gate", 7, {3}, {{3, 0}, {129, 0}}, 129, &soft_gate, 2},
    {"product", 7, {3}, {{129, 0}, {129, 0}}, 129, NULL, 2},
    {"zeros", 7, {3}, {{9, 0}}, 9},
    {"moe_router", 7, {3}, {{8, 0}}, 8, &top2, 4},
    {"moe_router", 7, {3}, {{8, 0}}, 8, &top2n, 4},
    {"moe_router", 7, {3}, {{8, 0}}, 8, &top1s, 4},
    {"moe_router", 7, {3}, {{8, 0}, {8, 0}}, 8, &top2ns, 4},
    // a thread of the GPU has two or three experts
    {"moe_router", 7, {3}, {{40, 0}}, 40, &top2n, 4, .large = true},
    {"moe_router", 7, {3}, {{70, 0}, {70, 0}}, 70, &top2ns, 4, .large = true},
    {"routed_scale", 7, {3}, {{9, 0}, {3, 0}}, 9, &any_expert},
    {"routed_scale", 7, {3}, {{9, 0}, {3, 0}}, 9, &scale1},
    {"position_scale", 13, {5, 6}, {{9, 0}}, 9, &far4},
    {"gain", 13, {5, 6}, {{9, 0}, {1, 0}}, 9},
    {"routed_rows", 7, {3}, {{9, 0}, {3, 0}}, 9, &expert1},
    {"rotate", 7, {3}, {{21, 0}, {7, 7}}, 21, &turn7, .fixed = 2},
    {"moe_combine", 7, {3}, {{9, 0}, {9, 0}, {3, 0}}, 9, &expert1},
    {"moe_combine", 7, {3}, {{9, 0}, {9, 0}, {3, 0}}, 9, &expert1p},
    {"act", 7, {0}, {{129, 0}}, 129, &f_silu, 3},
    {"act", 7, {0}, {{129, 0}}, 129, &f_relu2, 3},
    {"act", 7, {0}, {{129, 0}}, 129, &f_relu, 3},
    {"clamp", 7, {3}, {{129, 0}}, 129, &within, 3},
    {"xielu", 7, {3}, {{129, 0}, {1, 0}, {1, 0}, {1, 0}, {1, 0}}, 129, NULL, 3, .fixed = 16},
    {"glu", 1, {0}, {{1, 0}, {1, 0}}, 1, &g_silu},
    {"glu", 7, {3}, {{129, 0}, {129, 0}}, 129, &g_silu, 4},
    {"glu", 7, {3}, {{129, 0}, {129, 0}}, 129, &g_gelu, 3},
    {"glu", 7, {3}, {{129, 0}, {129, 0}}, 129, &g_tanh, 3},
    {"glu", 7, {3}, {{129, 0}, {129, 0}}, 129, &g_clamped, 9},
    {"rms_norm", 1, {0}, {{1, 0}, {1, 0}}, 1, &rms},
    {"rms_norm", 13, {5, 6}, {{129, 0}, {129, 0}}, 129, &rms, 0.1f},
    {"rms_norm", 7, {2}, {{24, 0}, {8, 0}}, 24, &rms_heads},
    {"rms_norm", 7, {2}, {{24, 0}}, 24, &rms_plain},
    {"rms_norm", 7, {2}, {{24, 0}, {24, 0}}, 24, &gemma},
    {"layer_norm", 13, {5, 6}, {{129, 0}, {129, 0}}, 129, &ln, 0.1f},
    {"layer_norm", 7, {2}, {{24, 0}, {24, 0}, {24, 0}}, 24, &ln_bias},
    {"layer_norm", 7, {2}, {{24, 0}, {24, 0}, {24, 0}}, 24, &ln_plus},
    {"layer_norm", 7, {2}, {{24, 0}, {8, 0}, {8, 0}}, 24, &ln_heads},
    {"layer_norm", 7, {2}, {{24, 0}}, 24, &ln_plain},
    {"linear", 1, {0}, {{1, 0}, {1, 1}}, 1, &lin},
    {"linear", 13, {5, 6}, {{7, 0}, {9, 7}, {9, 0}}, 9, &lin_bias},
    {"linear", 515, {257}, {{65, 0}, {200, 65}}, 200, &lin},
    {"linear", 7, {2}, {{200, 0}, {5, 200}, {5, 0}}, 5, &lin_bias},
    /* The sizes are multiples of the kernel's block sizes; out_features is processed in two
     * ranges. */
    {"linear", 320, {64, 192}, {{224, 0}, {544, 224}}, 544, &lin},
    /* 2101 tokens are more than the kernel packs at once. */
    {"linear", 2101, {1040, 1070}, {{33, 0}, {17, 33}}, 17, &lin},
    {"rope", 7, {3}, {{24, 0}}, 24, &rope_halves},
    {"rope", 13, {3}, {{24, 0}}, 24, &rope_pairs},
    {"attention", 1, {0}, {{1, 0}, {1, 0}, {1, 0}}, 1, &att_one},
    {"attention", 13, {5, 6}, {{42, 0}, {14, 0}, {14, 0}}, 42, &att, 1.5f},
    {"attention", 13, {5, 6}, {{42, 0}, {14, 0}, {14, 0}}, 42, &att_window, 1.5f},
    {"attention", 13, {5}, {{32, 0}, {8, 0}, {8, 0}}, 32, &att_cap, 1.5f},
    {"attention", 13, {1}, {{42, 0}, {14, 0}, {14, 0}}, 42, &att_chunk, 1.5f},
    {"attention", 300, {129}, {{128, 0}, {128, 0}, {128, 0}}, 128, &att_chunk64, 1.5f},
    /* 300 tokens need more than one tile. */
    {"attention", 300, {129}, {{128, 0}, {128, 0}, {128, 0}}, 128, &att_cap_window, 1.5f},
    {"attention_sinks", 1, {0}, {{1, 0}, {1, 0}, {1, 0}, {1, 0}}, 1, &att_one},
    {"attention_sinks", 13, {5, 6}, {{42, 0}, {14, 0}, {14, 0}, {6, 0}}, 42, &att_window, 1.5f},
    {"attention_sinks", 13, {5}, {{32, 0}, {8, 0}, {8, 0}, {4, 0}}, 32, &att_cap, 1.5f},
    {"attention_sinks", 300, {129}, {{128, 0}, {128, 0}, {128, 0}, {2, 0}}, 128, &att_chunk64,
     1.5f},
    {"join", 7, {3}, {{9, 0}, {6, 0}}, 15, &join_each},
    {"join", 7, {3}, {{8, 0}, {5, 0}}, 18, &join_all},
    {"conv1d", 13, {5, 6}, {{35, 0}, {35, 4}, {35, 0}}, 35, &conv, 2},
    {"conv1d", 7, {2}, {{3, 0}, {3, 3}}, 3, &conv_plain},
    {"conv1d", 13, {1}, {{3, 0}, {3, 16}, {3, 0}}, 3, &conv_long}, // the kernel of the convolution
                                                                   // is longer than a sample
    {"gated_norm", 35, {5, 6}, {{24, 0}, {24, 0}, {8, 0}}, 24, &gated, 2},
    {"gated_norm", 35, {5, 6}, {{24, 0}, {24, 0}, {24, 0}}, 24, &gated_before, 2},
    {"gated_norm", 35, {5, 6}, {{24, 0}, {24, 0}, {24, 0}}, 24, &gated_whole, 2},
    {"moe_sparsemixer", 7, {3}, {{8, 0}}, 8, &mixer, 2},
    {"moe_gate", 7, {3}, {{9, 0}, {6, 9}}, 6, &gate_soft, 2},
    {"moe_gate", 7, {3}, {{9, 0}, {8, 9}, {8, 0}}, 8, &gate_groups, 2},
    {"moe_gate", 7, {3}, {{70, 0}, {40, 70}}, 40, &gate_40, .large = true},
    {"moe_gate", 7, {3}, {{9, 0}, {64, 9}, {64, 0}}, 64, &gate_64, .large = true},
    {"delta_rule", 13, {5, 6}, {{48, 0}, {4, 0}, {4, 0}, {4, 0}, {4, 0}}, 28, &delta, 2},
    {"delta_rule", 70, {20}, {{88, 0}, {1, 0}, {1, 0}, {1, 0}, {1, 0}}, 24, &delta_wide},
    // a block of the GPU has several heads
    {"delta_rule", 3, {1, 2}, {{390, 0}, {130, 0}, {130, 0}, {130, 0}, {130, 0}}, 130, &delta_many,
     .large = true},
    {"ssm_scan", 13, {5, 6}, {{44, 0}, {4, 0}, {4, 0}, {4, 0}, {4, 0}}, 20, &scan},
    {"ssm_scan", 70, {20}, {{112, 0}, {10, 0}, {10, 0}, {10, 0}, {10, 0}}, 80, &scan_wide},
    // the GPU has two waves of heads
    {"ssm_scan", 13, {5, 6}, {{160, 0}, {40, 0}, {40, 0}, {40, 0}, {40, 0}}, 120, &scan_many,
     .large = true},
    {"mamba_scan", 13, {5, 6}, {{7, 0}, {7, 0}, {5, 0}, {5, 0}, {7, 5}, {7, 0}, {7, 0}}, 7,
     &mamba5},
    {"alibi", 13, {5, 6}, {{42, 0}}, 54, &alibi7},
    {"kl", 13, {5}, {{16, 0}, {200, 16}, {12, 0}, {200, 12}}, 0, NULL, 0, 2, 0xe},
    {"kl", 40, {1}, {{16, 0}, {67, 16}, {12, 0}, {67, 12}}, 0, &rules, 2, 2, 0xe},
    {"kl", 13, {1}, {{16, 0}, {200, 16}, {12, 0}, {200, 12}}, 0, &biased, 2, 2, 0xe},
    // two blocks of the vocabulary on the CPU, and widths with and without packed rows
    {"kl", 40, {1}, {{96, 0}, {521, 96}, {33, 0}, {521, 33}}, 0, NULL, 0, 2, 0xe},
    // two or three blocks of the vocabulary on the GPU
    {"kl", 13, {5}, {{16, 0}, {2101, 16}, {12, 0}, {2101, 12}}, 0, NULL, 0, 2, 0xe, 0, true},
    {"kl", 3, {1}, {{16, 0}, {4200, 16}, {12, 0}, {4200, 12}}, 0, &rules, 2, 2, 0xe, 0, true},
    {"kl", 3, {1}, {{16, 0}, {2101, 16}, {12, 0}, {2101, 12}}, 0, &biased_2101, 2, 2, 0xe, 0, true},
    // more rows than the GPU computes together
    {"kl", 1100, {1, 1060}, {{9, 0}, {7, 9}, {5, 0}, {7, 5}}, 0, NULL, 0, 2, 0xe, 0, true},
    {"nll", 13, {5}, {{47, 0}, {515, 47}, {1, 0}}, 0, NULL, 0, 1, 6, 4},
    {"nll", 40, {5}, {{16, 0}, {200, 16}, {1, 0}}, 0, NULL, 0, 1, 6, 4},
    {"nll", 13, {5}, {{16, 0}, {200, 16}, {1, 0}}, 0, &biased, 2, 1, 6, 4},
    {"nll", 13, {5}, {{16, 0}, {67, 16}, {1, 0}}, 0, &rules, 2, 1, 6, 4},
};
enum { N_CASES = sizeof cases / sizeof *cases, MOST_IN = 7 };

typedef struct grad_run {
    const osh_op *op;
    const grad_case *c;
    int n_in;
    osh_dtype dt; // dtype of in, dout, din and out
    osh_tensor *in[MOST_IN], *dout, *din[MOST_IN], *out[2]; // own
    int64_t offsets[4];
    osh_seqs seqs;
} grad_run;

static osh_tensor *filled(osh_ctx *cx, osh_dtype dt, int64_t a, int64_t b, uint64_t stream,
                          float amp)
{
    osh_tensor *t = NULL;
    assert_int_equal(osh_tensor_new(cx, &t, dt, b ? 2 : 1, (int64_t[]){a, b}), OSH_OK);
    for (int64_t i = 0; i < osh_tensor_numel(t); i++) {
        float f = amp * osh_rng_sym(SEED, stream, (uint64_t)i);
        osh_from_f32(osh_elem(t, i), dt, &f, 1);
    }
    return t;
}

static void zero_din(grad_run *r)
{
    for (int k = 0; k < r->n_in; k++)
        if (r->din[k]) memset(r->din[k]->data, 0, osh_tensor_bytes(r->din[k]));
}

static void grad_run_open(osh_ctx *cx, grad_run *r, const grad_case *c, osh_dtype dt)
{
    *r = (grad_run){.op = osh_op_find(c->op), .c = c, .dt = dt};
    assert_non_null(r->op);
    r->offsets[r->seqs.n++] = 0;
    for (int i = 0; i < 2 && c->split[i]; i++) r->offsets[r->seqs.n++] = c->split[i];
    r->offsets[r->seqs.n] = c->n, r->seqs.offsets = r->offsets;
    bool loss = !c->out;
    for (int k = 0; k < MOST_IN && c->in[k][0]; k++, r->n_in++) {
        bool weight = loss ? k % 2 == 1 : k >= r->op->n_in;
        if (c->ids >> k & 1) {
            assert_int_equal(osh_tensor_new(cx, &r->in[k], OSH_I32, 1, (int64_t[]){c->n}), OSH_OK);
            for (int64_t i = 0; i < c->n; i++)
                ((int32_t *)r->in[k]->data)[i] = i % 4 ? (int32_t)(i * 7 % 67) : -1;
        } else if (weight) {
            r->in[k] = filled(cx, dt, c->in[k][0], c->in[k][1], (uint64_t)k, 1);
        } else {
            r->in[k] = filled(cx, dt, c->n, c->in[k][0], (uint64_t)k, c->amp > 0 ? c->amp : 1);
        }
        if (c->fixed >> k & 1) continue;
        r->din[k] = filled(cx, OSH_F32, r->in[k]->shape[0],
                           r->in[k]->ndim > 1 ? r->in[k]->shape[1] : 0, 9, 0);
    }
    zero_din(r);
    r->dout = filled(cx, OSH_F32, c->n, loss ? 0 : c->out, 20, 1);
    for (int k = 0; k < (c->n_out ? c->n_out : 1); k++)
        r->out[k] = filled(cx, loss || osh_op_is(r->op, OSH_OP_F32_OUT) ? OSH_F32 : dt, c->n,
                           loss ? 0 : c->out, 0, 0);
}

static void grad_run_close(osh_ctx *cx, grad_run *r)
{
    for (int k = 0; k < MOST_IN; k++) osh_tensor_free(cx, r->in[k]), osh_tensor_free(cx, r->din[k]);
    osh_tensor_free(cx, r->dout);
    for (int k = 0; k < 2; k++) osh_tensor_free(cx, r->out[k]);
}

static osh_grad_args args_of(const grad_run *r)
{
    osh_grad_args a = {.dout = {r->dout}, .attr = r->c->attr, .seqs = &r->seqs};
    for (int k = 0; k < r->n_in; k++) a.in[k] = r->in[k], a.din[k] = r->din[k];
    return a;
}

/* Returns the sum of dout * out when in[k] is moved by h times the direction `way`. */
static double loss_at(osh_ctx *cx, grad_run *r, int k, const float *way, double h)
{
    osh_op_args a = {.attr = r->c->attr, .seqs = &r->seqs, .out = {r->out[0], r->out[1]}};
    int64_t n = osh_tensor_numel(r->in[k]);
    float *x = r->in[k]->data, *old = NULL;
    double sum = 0;
    assert_int_equal(osh_f32_copy(cx, &old, r->in[k]), OSH_OK);
    for (int64_t i = 0; i < n; i++) x[i] = (float)(old[i] + h * way[i]);
    for (int i = 0; i < r->n_in; i++) a.in[i] = r->in[i];
    assert_int_equal(r->op->run[OSH_REF](cx, &a), OSH_OK);
    for (int64_t i = 0; i < osh_tensor_numel(r->dout); i++)
        sum += (double)((float *)r->dout->data)[i] * ((float *)r->out[0]->data)[i];
    memcpy(x, old, (size_t)n * sizeof *x);
    osh_free(cx, old);
    return sum;
}

/* Compares the gradient along the direction `way` with a central difference of step h. The error of
 * the difference is h^2 times the third derivative. This derivative is about as large as the loss.
 * The rounding of the n outputs adds an error of 6e-8 sqrt(n) / h. */
static void check_direction(osh_ctx *cx, grad_run *r, int k, const float *way)
{
    const float *d = r->din[k]->data;
    double h = 2e-3, want = (loss_at(cx, r, k, way, h) - loss_at(cx, r, k, way, -h)) / (2 * h),
           got = 0, size = 0;
    for (int64_t i = 0; i < osh_tensor_numel(r->in[k]); i++) {
        got += (double)d[i] * way[i];
        size += fabs((double)d[i] * way[i]);
    }
    double noise =
        6e-8 / h * sqrt((double)osh_tensor_numel(r->dout)) * (r->c->amp > 1 ? 10 * r->c->amp : 10);
    if (fabs(got - want) > 2e-3 * size + noise)
        fail_msg("%s, case %d, input %d: gradient %g, difference %g (terms %g, noise %g)", r->c->op,
                 (int)(r->c - cases), k, got, want, size, noise);
}

static void test_differences(void **state)
{
    if (gpu_alone() || isa_repeats()) return; // one run is enough for references
    osh_ctx *cx = *state;
    for (int i = 0; i < N_CASES; i++) {
        if (cases[i].large) continue;
        grad_run r;
        grad_run_open(cx, &r, &cases[i], OSH_F32);
        osh_grad_args a = args_of(&r);
        assert_int_equal(r.op->grad.run[OSH_REF](cx, &a), OSH_OK);
        for (int k = 0; k < r.n_in; k++) {
            if (!r.din[k]) continue;
            int64_t n = osh_tensor_numel(r.in[k]), most = 0;
            osh_tensor *way = filled(cx, OSH_F32, n, 0, 30, 1);
            float *u = way->data, *d = r.din[k]->data;
            check_direction(cx, &r, k, u);
            // all terms have one sign, so that they do not cancel
            for (int64_t e = 0; e < n; e++) u[e] = d[e] > 0 ? 1 : -1;
            if (n < 2000) check_direction(cx, &r, k, u);
            for (int64_t e = 0; e < n; e++) most = fabsf(d[e]) > fabsf(d[most]) ? e : most;
            for (int64_t e = 0; e < n; e++) u[e] = e == most;
            check_direction(cx, &r, k, u);
            for (int64_t e = 0; e < n; e++) u[e] = e == n - 1;
            check_direction(cx, &r, k, u);
            osh_tensor_free(cx, way);
        }
        grad_run_close(cx, &r);
    }
}

static void copy_din(osh_ctx *cx, const grad_run *r, osh_tensor **to)
{
    for (int k = 0; k < r->n_in; k++) {
        if (!r->din[k]) continue;
        if (!to[k])
            assert_int_equal(osh_tensor_new(cx, &to[k], OSH_F32, r->din[k]->ndim, r->din[k]->shape),
                             OSH_OK);
        memcpy(to[k]->data, r->din[k]->data, osh_tensor_bytes(to[k]));
    }
}

/* Compares the CPU kernels with the reference. The CPU kernels sum in f32: a sum of n terms has an
 * error of less than n 2^-24 times the size of the terms. So for 1000 terms the NMSE is less
 * than (1e3 * 6e-8)^2. The NMSE is larger if terms cancel, as in the difference of two
 * probabilities. With `rough`, terms are rounded to BF16, with an error of at most 2^-9. */
static void test_fast(void **state)
{
    if (gpu_alone()) return;
    osh_ctx *cx = *state;
    const struct { osh_dtype dt; bool rough; double most; } ways[] = {
        {OSH_F32, false, 1e-9}, {OSH_BF16, false, 1e-9}, {OSH_BF16, true, 1e-4}};
    for (int i = 0; i < 3 * N_CASES; i++) {
        grad_run r;
        osh_tensor *want[MOST_IN] = {0};
        grad_run_open(cx, &r, &cases[i / 3], ways[i % 3].dt);
        osh_grad_args a = args_of(&r);
        a.rough = ways[i % 3].rough;
        assert_int_equal(r.op->grad.run[OSH_REF](cx, &a), OSH_OK);
        copy_din(cx, &r, want);
        zero_din(&r);
        assert_int_equal(osh_op_grad(cx, r.op, &a), OSH_OK);
        for (int k = 0; k < r.n_in; k++) {
            double error = 0, square = 1e-30;
            for (int64_t e = 0; want[k] && e < osh_tensor_numel(want[k]); e++) {
                double x = ((float *)r.din[k]->data)[e], y = ((float *)want[k]->data)[e];
                error += (x - y) * (x - y), square += y * y;
            }
            if (!(error <= ways[i % 3].most * square))
                fail_msg("%s, case %d, input %d, way %d: NMSE %g", r.c->op, i / 3, k, i % 3,
                         error / square);
            osh_tensor_free(cx, want[k]);
        }
        grad_run_close(cx, &r);
    }
}

/* Tests the mark `fresh` of a gradient, which makes the op overwrite the gradient instead of adding
 * to it. The gradient is full of NaNs before the call. The result must be the same as for a
 * gradient of zeros. If the op allows it, dout is also the storage of din[0]. */
static void test_fresh(void **state)
{
    if (gpu_alone()) return;
    osh_ctx *cx = *state;
    const struct {
        osh_dtype dt;
        bool rough;
    } ways[] = {{OSH_F32, false}, {OSH_BF16, false}, {OSH_BF16, true}};
    for (int i = 0; i < 3 * N_CASES; i++) {
        grad_run r;
        osh_tensor *want[MOST_IN] = {0};
        grad_run_open(cx, &r, &cases[i / 3], ways[i % 3].dt);
        osh_grad_args a = args_of(&r);
        a.rough = ways[i % 3].rough;
        assert_int_equal(osh_op_grad(cx, r.op, &a), OSH_OK);
        copy_din(cx, &r, want);
        for (int k = 0; k < r.n_in; k++)
            if (r.din[k])
                memset(r.din[k]->data, 0xff, osh_tensor_bytes(r.din[k])), a.fresh |= 1u << k;
        bool moves = r.op->grad.in_place && osh_tensor_numel(r.dout) == osh_tensor_numel(r.din[0]);
        if (moves)
            memcpy(r.din[0]->data, r.dout->data, osh_tensor_bytes(r.dout)), a.dout[0] = r.din[0];
        assert_int_equal(osh_op_grad(cx, r.op, &a), OSH_OK);
        for (int k = 0; k < r.n_in; k++) {
            for (int64_t e = 0; want[k] && e < osh_tensor_numel(want[k]); e++)
                if (((float *)r.din[k]->data)[e] != ((float *)want[k]->data)[e])
                    fail_msg("%s, case %d, way %d, input %d, element %d is another one", r.c->op,
                             i / 3, i % 3, k, (int)e);
            osh_tensor_free(cx, want[k]);
        }
        grad_run_close(cx, &r);
    }
}

/* Returns rows [first, first + n) of a tensor (view), or the whole tensor if `rows` is false. */
static osh_tensor rows_view(const osh_tensor *t, bool rows, int64_t first, int64_t n)
{
    osh_tensor v = *t;
    if (!rows) return v;
    v.data = osh_elem(t, first * osh_width(t)), v.shape[0] = n;
    return v;
}

/* The gradients of a batch must have the same bytes as those of its samples, computed one after the
 * other. Three threads must give the same bytes as one. */
static void test_alone(void **state)
{
    if (gpu_alone()) return;
    osh_ctx *cx = *state, *three = NULL;
    assert_int_equal(osh_ctx_new(&three, 3), OSH_OK);
    for (int i = 0; i < 2 * N_CASES; i++) {
        grad_run r;
        osh_tensor *want[MOST_IN] = {0};
        grad_run_open(cx, &r, &cases[i / 2], OSH_BF16);
        osh_grad_args a = args_of(&r);
        a.rough = i % 2;
        assert_int_equal(osh_op_grad(three, r.op, &a), OSH_OK);
        copy_din(cx, &r, want);
        zero_din(&r);
        for (int64_t s = 0; s < r.seqs.n; s++) {
            int64_t first = r.offsets[s], n = r.offsets[s + 1] - first;
            osh_tensor in[MOST_IN], din[MOST_IN], dout = rows_view(r.dout, true, first, n);
            osh_grad_args one = {.dout = {&dout}, .attr = a.attr, .rough = a.rough};
            for (int k = 0; k < r.n_in; k++) {
                bool weight = !r.c->out ? k % 2 == 1 : k >= r.op->n_in;
                in[k] = rows_view(r.in[k], !weight, first, n), one.in[k] = &in[k];
                if (r.din[k]) din[k] = rows_view(r.din[k], !weight, first, n), one.din[k] = &din[k];
            }
            assert_int_equal(osh_op_grad(cx, r.op, &one), OSH_OK);
        }
        for (int k = 0; k < r.n_in; k++) {
            if (want[k] && memcmp(want[k]->data, r.din[k]->data, osh_tensor_bytes(want[k])))
                fail_msg("%s, case %d, rough %d, input %d: a batch is not its samples", r.c->op,
                         i / 2, i % 2, k);
            osh_tensor_free(cx, want[k]);
        }
        grad_run_close(cx, &r);
    }
    osh_ctx_free(three);
}

static void test_scratch(void **state)
{
    (void)state;
    if (gpu_alone()) return;
    for (int i = 0; i < 2 * N_CASES; i++) {
        grad_run r;
        osh_ctx *cx = NULL;
        int64_t width[MOST_IN] = {0};
        assert_int_equal(osh_ctx_new(&cx, 2), OSH_OK);
        grad_run_open(cx, &r, &cases[i / 2], OSH_BF16);
        osh_grad_args a = args_of(&r);
        a.rough = i % 2;
        for (int k = 0; k < r.n_in; k++) width[k] = osh_width(r.in[k]);
        int64_t out = r.c->out ? r.c->out : r.in[1]->shape[0];
        size_t live = osh_mem_live(cx), blocks = 8 * osh_mem_gross(4096);
        assert_int_equal(osh_op_grad(cx, r.op, &a), OSH_OK);
        size_t took = osh_mem_peak(cx) - live,
               said = osh_op_grad_scratch(r.op, a.attr, width, out, r.c->n, 2);
        if (took > said + blocks)
            fail_msg("%s, case %d, rough %d: takes %zu bytes, says %zu", r.c->op, i / 2, i % 2,
                     took, said);
        grad_run_close(cx, &r);
        osh_ctx_free(cx);
    }
}

/* If the n-th allocation fails, the op returns OSH_E_NOMEM and leaks nothing. */
static void test_torture(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * N_CASES; i++) {
        osh_grad_fn fn = osh_op_find(cases[i / 2].op)->grad.run[i % 2];
        osh_status rc = fn && cases[i / 2].n < 100 ? OSH_E_NOMEM : OSH_OK;
        for (int64_t nth = 1; rc; nth++) {
            osh_ctx *cx = NULL;
            grad_run r;
            assert_int_equal(osh_ctx_new(&cx, 2), OSH_OK);
            grad_run_open(cx, &r, &cases[i / 2], OSH_BF16);
            osh_grad_args a = args_of(&r);
            a.rough = true;
            osh_mem_fail_after(cx, nth);
            rc = fn(cx, &a);
            assert_true(rc == OSH_OK || rc == OSH_E_NOMEM);
            osh_mem_fail_after(cx, -1);
            grad_run_close(cx, &r);
            assert_int_equal(osh_mem_live(cx), 0);
            osh_ctx_free(cx);
            assert_true(nth < 40);
        }
    }
}

static void test_none(void **state)
{
    osh_ctx *cx = *state;
    osh_grad_args a = {0};
    assert_int_equal(osh_op_grad(cx, &osh_op_embedding, &a), OSH_E_UNSUPPORTED);
    assert_string_equal(osh_error_text(cx), "embedding has no gradient");
}

/* Learning by block runs on a GPU if the graph runs there. So each op of a graph with a gradient
 * and a CUDA kernel must have a gradient kernel for GPUs, and a case. (nll and kl are no ops of
 * graphs.) */
static void test_all_on_gpu(void **state)
{
    (void)state;
    for (size_t i = 0; i < osh_op_count(); i++) {
        const osh_op *op = osh_op_at(i);
        bool has_case = false;
        if (!osh_op_has_grad(op, false) || !op->infer || osh_op_is(op, OSH_OP_HOST_ONLY)) continue;
        if (!osh_op_has_grad(op, true)) fail_msg("%s has no gradient kernel for GPUs", op->name);
        for (int k = 0; k < N_CASES; k++) has_case |= !strcmp(cases[k].op, op->name);
        if (!has_case) fail_msg("%s has no case", op->name);
    }
}

/* Computes the gradients of a case on the GPU and stores them in `din`. All elements of `din` must
 * be 0 before the call. The arena has as many free bytes as the op predicts. */
static osh_status grad_on(osh_ctx *cx, osh_device *d, const grad_run *r, bool rough)
{
    osh_grad_args a = args_of(r), on = {.attr = a.attr, .seqs = a.seqs, .rough = rough};
    gpu_copy_of in[MOST_IN], din[MOST_IN], dout = gpu_put(cx, d, r->dout);
    int64_t width[MOST_IN] = {0};
    on.dout[0] = &dout.t;
    for (int k = 0; k < r->n_in; k++) {
        in[k] = gpu_put(cx, d, r->in[k]), on.in[k] = &in[k].t, width[k] = osh_width(r->in[k]);
        if (r->din[k]) din[k] = gpu_put(cx, d, r->din[k]), on.din[k] = &din[k].t;
    }
    size_t said = r->op->grad.arena_bytes
                      ? r->op->grad.arena_bytes(a.attr, width, r->c->out, r->c->n, r->dt)
                      : 0;
    size_t taken = gpu_leave(d, said), before = osh_arena_used(d->arena);
    osh_status rc = osh_op_grad(cx, r->op, &on);
    assert_int_equal(osh_arena_used(d->arena), before);
    if (rc == OSH_E_NOMEM)
        fail_msg("%s, case %d, needs more than the predicted %zu bytes of the GPU: %s", r->c->op,
                 (int)(r->c - cases), said, osh_error_text(cx));
    gpu_release(d, taken);
    for (int k = 0; k < r->n_in; k++) {
        gpu_take(cx, NULL, &in[k]);
        if (r->din[k]) gpu_take(cx, r->din[k], &din[k]);
    }
    gpu_take(cx, NULL, &dout);
    return rc;
}

/* Checks the CUDA kernel of an op: its gradients must be near the reference, and the same in every
 * order of the threads. */
static void check_gpu(osh_ctx *cx, osh_device *d, const grad_case *c, osh_dtype dt, bool rough)
{
    grad_run r;
    osh_tensor *want[MOST_IN] = {0}, *got[MOST_IN] = {0};
    grad_run_open(cx, &r, c, dt);
    osh_grad_args a = args_of(&r);
    assert_int_equal(r.op->grad.run[OSH_REF](cx, &a), OSH_OK);
    copy_din(cx, &r, want);
    for (int o = 0; o < (c->large ? 1 : gpu_orders()); o++) {
        gpu_order(o);
        zero_din(&r);
        if (grad_on(cx, d, &r, rough)) fail_msg("%s", osh_error_text(cx));
        for (int k = 0; o && k < r.n_in; k++)
            if (got[k] && memcmp(got[k]->data, r.din[k]->data, osh_tensor_bytes(got[k])))
                fail_msg("%s, case %d, input %d: another order gives other bytes", c->op,
                         (int)(c - cases), k);
        copy_din(cx, &r, got);
    }
    gpu_order(0);
    for (int k = 0; k < r.n_in; k++) {
        if (!want[k]) continue;
        double e = nmse(got[k], want[k]), most = rough ? 1e-4 : 1e-9;
        // a gradient of one or two elements may consist of rounding errors, as for a softmax of one
        // key
        bool naught = osh_tensor_numel(want[k]) < 3;
        if (!(e <= most) && !(naught && fabs(value_at(got[k], 0) - value_at(want[k], 0)) < 1e-6))
            fail_msg("%s, case %d, input %d, %s on the GPU: NMSE %g", c->op, (int)(c - cases), k,
                     osh_dtype_name(dt), e);
        osh_tensor *way = filled(cx, OSH_F32, osh_tensor_numel(r.in[k]), 0, 30, 1);
        if (dt == OSH_F32 && !rough && !c->large) check_direction(cx, &r, k, way->data);
        osh_tensor_free(cx, way);
        osh_tensor_free(cx, want[k]), osh_tensor_free(cx, got[k]);
    }
    grad_run_close(cx, &r);
}

static void test_gpu(void **state)
{
    osh_ctx *cx = *state;
    osh_device *d = gpu_open(cx, GPU_BYTES);
    for (int i = 0; d && i < N_CASES; i++) {
        const grad_case *c = &cases[i];
        bool kl = !strcmp(c->op, "kl"), linear = !strcmp(c->op, "linear"),
             slow = !strcmp(c->op, "delta_rule") || !strcmp(c->op, "ssm_scan");
        if (!osh_op_find(c->op)->grad.run[OSH_CUDA]) continue;
        check_gpu(cx, d, c, OSH_F32, false);
        if (!c->large || kl) check_gpu(cx, d, c, OSH_BF16, false);
        if (!c->large && !slow) check_gpu(cx, d, c, OSH_F16, false);
        if (linear || kl) check_gpu(cx, d, c, OSH_BF16, true);
    }
    osh_device_close(cx, d);
}

int main(void)
{
    int skip = pin_isa();
    if (skip) return skip;
    for (int i = 0; i < 2101; i++) head_bias[i] = 2 * osh_rng_sym(SEED, 11, (uint64_t)i);
    osh_ctx *cx = NULL;
    if (osh_ctx_new(&cx, 1)) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_differences, cx), cmocka_unit_test_prestate(test_fast, cx),
        cmocka_unit_test_prestate(test_fresh, cx),       cmocka_unit_test_prestate(test_alone, cx),
        cmocka_unit_test_prestate(test_scratch, cx),     cmocka_unit_test_prestate(test_none, cx),
        cmocka_unit_test_prestate(test_gpu, cx),         cmocka_unit_test(test_torture),
        cmocka_unit_test(test_all_on_gpu),
    };
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    osh_ctx_free(cx);
    return rc;
}
