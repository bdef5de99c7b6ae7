/* test_kernels.c - compares the CPU and CUDA kernels of every op of a model with the reference.
 * Each row of `cases` is one shape.
 *
 * Guard bytes must not change. A batch must give the same bytes as its samples alone, and three
 * threads must give the same bytes as one. Each attribute must have an effect: the result without
 * the attribute must differ. */
#include "on_gpu.h"
#include "ops/rope.h"
#include "ops/scan.h"
#include "ops/altup.h"

typedef struct op_case {
    const char *op;
    int64_t n;                   // number of tokens
    /* in: widths of the inputs.
     * w: {rows, columns} of the weights; 0 rows: there is no weight; 0 columns: the weight has one
     * dimension.
     * out: width of the output. */
    int64_t in[4], w[4][2], out;
    int64_t split[2];            // index of the first token of the second and of the third sample;
                                 // 0: there is no such sample
    float amp;                   // values are in [-amp, amp); an amp of 0 means 1
    const void *attr;            // attributes of the op; NULL: the defaults
    const void *without;         // other attributes; the result with them must differ from the
                                 // result with `attr`
    bool f32;                    // in[0] is F32, whatever dtype the other inputs have
} op_case;

static char silu[] = "silu", gelu[] = "gelu", gelu_tanh[] = "gelu_pytorch_tanh",
            gelu_new[] = "gelu_new";
static const osh_glu_attr act_silu = {silu}, act_gelu = {gelu}, act_tanh = {gelu_tanh},
                          act_clamped = {silu, 7, 1.702, 1}, act_clamped_1 = {silu, 7, 1, 1},
                          act_clamped_9 = {silu, 9, 1.702, 1}, act_clamped_0 = {silu, 7, 1, 0};
static const osh_rms_norm_attr eps = {.eps = 1e-5}, eps0 = {.eps = 0},
                               heads8 = {.eps = 1e-6, .head_dim = 8};
static const osh_rms_norm_attr late = {.eps = 1e-5, .late = true},
                               gemma = {.eps = 1e-5, .offset = 1, .late = true};
static const osh_layer_norm_attr ln = {.eps = 1e-5}, ln_bias = {.eps = 1e-5, .bias = true},
                                 ln_eps = {.eps = 0.5},
                                 ln_plus = {.eps = 1e-5, .bias = true, .offset = 1},
                                 ln_heads = {.eps = 1e-5, .bias = true, .head_dim = 43},
                                 ln_plain = {.eps = 1e-5, .plain = true},
                                 ln_plain_eps = {.eps = 0.5, .plain = true};
static const osh_slice_attr slice7 = {0, 7, 0}, slice_k = {3, 3, 9}, slice_q = {0, 3, 9},
                            slice64 = {128, 64, 256}, slice_pad = {3, 3, 9, 2};
static const osh_join_attr join1 = {1, 1}, join_each = {4, 3}, join_one = {12, 6},
                           join64 = {128, 64};
static const osh_repeat_attr twice = {2}, four_times = {4};
static const osh_stream_weights_attr
    streams1 = {.streams = 1, .magnitude = 2, .eps = 1e-6, .norm_eps = 1e-5},
    streams2 = {.streams = 2, .magnitude = 2, .eps = 1e-3, .norm_eps = 1e-5, .post_eps = 1e-2},
    streams2_norm = {.streams = 2, .magnitude = 2, .eps = 1e-3, .norm_eps = 0.5, .post_eps = 1e-2},
    streams2_big = {.streams = 2, .magnitude = 3, .eps = 1e-3, .norm_eps = 1e-5, .post_eps = 1e-2},
    streams2_post = {.streams = 2, .magnitude = 2, .eps = 1e-3, .norm_eps = 1e-5},
    streams4 = {.streams = 4, .magnitude = 2, .eps = 1e-2, .norm_eps = 1e-5, .iterations = 3},
    streams4_1 = {.streams = 4, .magnitude = 2, .eps = 1e-2, .norm_eps = 1e-5, .iterations = 1},
    streams4_eps = {.streams = 4, .magnitude = 2, .eps = 1e-5, .norm_eps = 1e-5, .iterations = 3},
    streams_head = {.streams = 4, .eps = 1e-6, .norm_eps = 1e-5, .head = true};
static const osh_stream_read_attr read1 = {1}, read4 = {4};
static const osh_stream_write_attr write1 = {1, false}, write4 = {4, false}, write4m = {4, true};
static const osh_scale_attr by3 = {0.3, false}, by3r = {0.3, true}, by2 = {0.2, false};
static const osh_positions_attr pos = {131, 0}, pos2 = {131, 2};
static char relu[] = "relu", relu2[] = "relu2";
static const osh_act_attr f_silu = {silu}, f_gelu = {gelu}, f_tanh = {gelu_tanh},
                          f_new = {gelu_new}, f_relu = {relu}, f_relu2 = {relu2};
static const osh_grouped_norm_attr group1 = {.eps = 1e-5, .width = 1},
                                   group43 = {.eps = 1e-5, .offset = 1, .width = 43},
                                   group43_plain = {.eps = 1e-5, .width = 43},
                                   group129 = {.eps = 1e-5, .offset = 1, .width = 129},
                                   group43_eps = {.eps = 0.5, .offset = 1, .width = 43};
static const osh_ngram_attr gram2 = {2, 1, 1, 0}, gram3 = {3, 4, 7, 5}, gram3_end = {3, 4, 7, 9};
static const osh_dilated_conv_attr conv_1 = {1, 1}, conv_3 = {4, 3}, conv_2 = {4, 2};
static const osh_stream_mix_attr mix1 = {1}, mix3 = {3};
static const osh_stream_correct_attr active0 = {0}, active2 = {2};
static const osh_stream_add_attr add0 = {0}, add1 = {1};
static const osh_stream_read_attr mean1 = {1}, mean3 = {3};
static const osh_gaussian_topk_attr top0 = {0}, top95 = {0.95}, top50 = {0.5};
static const osh_diff_heads_attr diff1 = {1, 0, 1e-5}, diff6 = {6, 3, 1e-5},
                                 diff6_first = {6, 0, 1e-5},
                                 diff6_eps = {6, 3, 0.5}, diff129 = {129, 2, 1e-5};
static const osh_clamp_attr within = {0.5}, within2 = {2};
static const osh_moe_sparsemixer_attr mixer = {{2}, 0.01}, mixer_wide = {{2}, 0.2};
static const osh_rms_norm_attr heads129 = {.eps = 1e-6, .head_dim = 129};
static const osh_rms_norm_attr heads128 = {.eps = 1e-6, .head_dim = 128};
static const osh_linear_attr lin = {0}, lin_bias = {.bias = true};
static const osh_embedding_attr emb = {.hidden_size = 129, .vocab_size = 33};
static const osh_rotate_attr turn1 = {.n = 1}, turn7 = {.n = 7},
                             turn7t = {.n = 7, .transposed = true}, turn129 = {.n = 129};
/* Rotations whose matrices are computed (fill_rotations). */
static osh_rotation hadamard64, hadamard24, matrix24, hadamard28672;
static const osh_rotate_attr had64 = {.n = 64, .r = &hadamard64},
                             had24 = {.n = 24, .r = &hadamard24},
                             had24t = {.n = 24, .r = &hadamard24, .transposed = true},
                             mat24 = {.n = 24, .r = &matrix24},
                             mat24t = {.n = 24, .r = &matrix24, .transposed = true},
                             had28672 = {.n = 28672, .r = &hadamard28672};
static const osh_attention_attr att1 = {1, 1, 1, 0, 0}, att7 = {6, 2, 7, 0, 0},
                                att7w = {6, 2, 7, 3, 0}, att7k = {6, 6, 7, 0, 0};
static const osh_attention_attr att7s = {6, 2, 7, 0, 0.9}, att64 = {9, 3, 64, 0, 0},
                                att64m = {9, 1, 64, 0, 0}, att96 = {2, 2, 96, 0, 0},
                                att64l = {4, 2, 64, 0, 0}, att64w = {4, 2, 64, 100, 0};
static const osh_rope_attr rope8 = {.head_dim = 8,
                                    .rotary_dim = 8,
                                    .inv_freq = {1, 0.25, 0.0625f, 0.015625f},
                                    .attention_scaling = 1};
static const osh_rope_attr rope8s = {.head_dim = 8,
                                     .rotary_dim = 8,
                                     .inv_freq = {1, 0.25, 0.0625f, 0.015625f},
                                     .attention_scaling = 1.2};
static const osh_rope_attr rope8p = {
    .head_dim = 8, .rotary_dim = 4, .inv_freq = {1, 0.1f}, .attention_scaling = 1};
static const osh_rope_attr rope8f = {
    .head_dim = 8, .rotary_dim = 8, .inv_freq = {1, 0.1f, 0.01f, 0.001f}, .attention_scaling = 1};
static const osh_rope_attr rope8d = {.head_dim = 8,
                                     .rotary_dim = 8,
                                     .inv_freq = {1, 0.1f, 0.01f, 0.001f},
                                     .attention_scaling = 1,
                                     .dynamic = true,
                                     .theta = 10000,
                                     .factor = 2,
                                     .max_pos = 20};
static const osh_rope_attr rope16p = {.head_dim = 24, .rotary_dim = 16,
                                      .inv_freq = {1, 0.3f, 0.1f, 0.03f, 0.01f},
                                      .attention_scaling = 1.1};
static const osh_rope_attr rope8i = {.head_dim = 8, .rotary_dim = 8,
                                     .inv_freq = {1, 0.1f, 0.01f, 0.001f}, .attention_scaling = 1,
                                     .interleaved = true};
static const osh_rope_attr rope8ip = {.head_dim = 8, .rotary_dim = 4, .inv_freq = {1, 0.1f},
                                      .attention_scaling = 1, .interleaved = true};
static const osh_rope_attr rope8q = {.head_dim = 8, .rotary_dim = 8,
                                     .inv_freq = {1, 0.1f, 0.01f, 0.001f}, .attention_scaling = 1,
                                     .f32 = true};
static const osh_rope_attr rope8l = {.head_dim = 8, .rotary_dim = 8,
                                     .inv_freq = {1, 0.1f, 0.01f, 0.001f},
                                     .long_freq = {0.5f, 0.2f, 0.1f, 0.01f}, .long_from = 20,
                                     .attention_scaling = 1};
static const osh_rope_attr rope8b = {.head_dim = 8, .rotary_dim = 8,
                                     .inv_freq = {1, 0.1f, 0.01f, 0.001f}, .attention_scaling = 1,
                                     .position_beta = 0.5, .position_original = 16};
static const osh_attention_attr att7c = {6, 2, 7, 0, 0.9, 1.5}, att64c = {9, 3, 64, 0, 0, 0.5};
static const osh_attention_attr att16 = {2, 1, 16, 0, 0}, att16w = {2, 1, 16, 300, 0};
static const osh_routed_scale_attr any_expert = {-1}, scale0 = {0}, scale6 = {6};
static const osh_moe_router_attr top1s = {1, false, true}, top2ns = {2, true, false, true};
static const osh_moe_router_attr top1 = {1, false}, top2 = {2, false}, top2n = {2, true},
                                 top8 = {8, false}, top8n = {8, true};
#define GATE(e, groups, left, by, sigmoid, bias, ...)                                              \
    {                                                                                              \
        {__VA_ARGS__}, e, groups, left, by, sigmoid, bias, NULL                                    \
    }
static char greedy[] = "greedy";
static const osh_moe_gate_attr gate1 = GATE(1, 1, 1, 1, false, false, 1, false),
                               gate7 = GATE(7, 1, 1, 2.5, true, true, 2, true),
                               gate7_plain = GATE(7, 1, 1, 1, true, true, 2, true),
                               gate7_raw = GATE(7, 1, 1, 2.5, true, true, 2, false),
                               gate7_soft = GATE(7, 1, 1, 2.5, false, true, 2, true),
                               gate36 = GATE(36, 6, 2, 1, false, false, 4, false),
                               gate36_all = GATE(36, 6, 3, 1, false, false, 4, false),
                               gate36_greedy = {{4, false}, 36, 6, 2, 1, false, false, greedy},
                               gate256 = GATE(256, 8, 4, 2.5, true, true, 8, true),
                               gate256_one = GATE(256, 1, 1, 2.5, true, true, 8, true),
                               gate1024 = GATE(1024, 1, 1, 1, true, false, 8, true);
static const osh_compress_attr window1 = {1, false}, window3 = {3, false}, window3o = {3, true},
                               window16 = {16, false};
static const osh_grouped_linear_attr grouped1 = {1, 1}, grouped3 = {3, 21}, grouped2 = {2, 130};
static const osh_attention_windows_attr aw1 = {1, 1, 1, 1}, aw7 = {6, 7, 5, 3},
                                        aw7_wide = {6, 7, 9, 3}, aw7_few = {6, 7, 5, 8},
                                        aw65 = {3, 65, 20, 16};
static const osh_rope_attr rope8_back = {.head_dim = 8, .rotary_dim = 8,
                                         .inv_freq = {1, 0.1f, 0.01f, 0.001f},
                                         .attention_scaling = 1, .back = 3};
static const osh_moe_gate_attr gate7_root = {{2, true}, 7, 1, 1, 2.5, false, true, NULL, true},
                               gate33_root = {{2, true}, 33, 1, 1, 1, .root = true, .vocab = 33},
                               gate33_raw = {{2, false}, 33, 1, 1, 1, .root = true, .vocab = 33},
                               gate33_soft = {{2, true}, 33, 1, 1, 1, .vocab = 33};
static const osh_conv1d_attr conv4 = {4, false, false}, conv4b = {4, false, true},
                             conv4s = {4, true, true}, conv4u = {4, true, false},
                             conv4f = {4, true, true, true};
static const osh_delta_rule_attr delta1 = {1, 1, 1, 1, 1}, delta7 = {2, 6, 7, 13, 1},
                                 delta7_2 = {2, 6, 7, 13, 2}, delta64 = {2, 4, 64, 64, 1};
static const osh_channel_delta_attr channel1 = {1, 1}, channel7 = {6, 7},
                                    channel7_bound = {6, 7, -2},
                                    channel129 = {1, 129};
static const osh_lightning_attr lightning1 = {1, 1, 1}, lightning7 = {6, 7, 1},
                                lightning7_half = {6, 7, 0.5}, lightning129 = {2, 129, 1};
static const osh_sigmoid_gate_attr half_gate = {false}, soft_gate = {true};
static const osh_ssm_scan_attr ssm1 = {1, 1, 1, 1, 0, 0}, ssm7 = {6, 7, 5, 2, 0, 0},
                               ssm7c = {6, 7, 5, 2, 0.7, 0.9}, ssm64 = {3, 64, 129, 1, 0, 0};
static const osh_mamba_scan_attr mamba1 = {1}, mamba5 = {5}, mamba16 = {16};
static const osh_alibi_attr alibi1 = {.head_dim = 1, .by = 1}, alibi7 = {.head_dim = 7, .by = 2},
                            alibi7_by = {.head_dim = 7, .by = 3},
                            alibi7_keys = {.head_dim = 7, .keys = true, .by = 2},
                            alibi7_mpt = {.head_dim = 7, .by = 2, .most = 4};
static const osh_gated_norm_attr gated1 = {1e-5, 1}, gated13 = {1e-6, 13}, gated129 = {1e-5, 129},
                                 gated129_0 = {0, 129}, gated78 = {1e-6, 78, false},
                                 gated78b = {1e-6, 78, true},
                                 gated26 = {1e-6, 26, true, true},
                                 gated78w = {1e-6, 78, true, true},
                                 gated13s = {1e-6, 13, false, false, true};
static const osh_moe_combine_attr expert0 = {0}, expert6 = {6}, expert6p = {6, true};
static const osh_position_scale_attr far4 = {0.5, 4}, far9 = {0.5, 9}, far4b = {0.1, 4};
static const osh_rms_norm_attr plain129 = {.eps = 1e-5, .plain = true},
                               plain8 = {.eps = 1e-5, .head_dim = 8, .plain = true},
                               plain129_0 = {.plain = true}, plain24 = {.eps = 1e-5, .plain = true};
static const osh_attention_attr att7h = {6, 2, 7, 0, 0, 0, 5}, att7hw = {6, 2, 7, 3, 0, 0, 5},
                                att64h = {9, 3, 64, 0, 0, 0, 100},
                                att16h = {2, 1, 16, 0, 0, 0, 600};
static osh_rope_attr rope64, rope258; // attributes that main fills

static const op_case cases[] = {
    {"embedding", 1, {1}, {{33, 129}}, 129, .attr = &emb},
    {"embedding", 129, {1}, {{33, 129}}, 129, {5}, .attr = &emb},
    {"rms_norm", 1, {1}, {{1}}, 1, .attr = &eps},
    {"rms_norm", 3, {7}, {{7}}, 7, .attr = &eps},
    {"rms_norm", 130, {129}, {{129}}, 129, {65}, .attr = &eps},
    {"rms_norm", 67, {576}, {{576}}, 576, {9, 11}, .attr = &eps},
    /* the values of x are near sqrt(eps), so eps has an effect */
    {"rms_norm", 3, {129}, {{129}}, 129, .amp = 3e-3f, .attr = &eps, .without = &eps0},
    {"rms_norm", 5, {24}, {{8}}, 24, .attr = &heads8},
    {"rms_norm", 5, {24}, .out = 24, {2}, .attr = &plain8, .without = &plain24},
    {"rms_norm", 3, {129}, .out = 129, .amp = 3e-3f, .attr = &plain129, .without = &plain129_0},
    {"rms_norm", 5, {258}, {{129}}, 258, .attr = &heads129},
    {"rms_norm", 5, {129}, {{129}}, 129, {2}, .attr = &late},
    {"rms_norm", 5, {129}, {{129}}, 129, .attr = &gemma, .without = &late},
    {"layer_norm", 1, {1}, {{1}, {1}}, 1, .attr = &ln_bias},
    {"layer_norm", 3, {7}, {{7}}, 7, .attr = &ln, .without = &ln_eps},
    {"layer_norm", 130, {129}, {{129}, {129}}, 129, {65}, .attr = &ln_bias},
    {"layer_norm", 67, {576}, {{576}, {576}}, 576, {9, 11}, .attr = &ln_bias},
    {"layer_norm", 67, {129}, {{129}, {129}}, 129, {9}, .attr = &ln_plus, .without = &ln_bias},
    {"layer_norm", 5, {129}, {{43}, {43}}, 129, {2}, .attr = &ln_heads},
    {"layer_norm", 67, {129}, .out = 129, {9}, .attr = &ln_plain, .without = &ln_plain_eps},
    {"slice", 1, {7}, .out = 7, .attr = &slice7},
    {"slice", 7, {18}, .out = 6, {3}, .attr = &slice_k, .without = &slice_q},
    {"slice", 129, {512}, .out = 128, {3}, .attr = &slice64},
    {"slice", 7, {18}, .out = 10, {3}, .attr = &slice_pad},
    {"join", 1, {1, 1}, .out = 2, .attr = &join1},
    {"join", 7, {12, 9}, .out = 21, {3}, .attr = &join_each},
    {"join", 7, {12, 6}, .out = 18, {3}, .attr = &join_one},
    {"join", 129, {2048, 64}, .out = 3072, .attr = &join64},
    {"repeat", 1, {1}, .out = 2, .attr = &twice},
    {"repeat", 129, {129}, .out = 516, {3}, .attr = &four_times},
    {"stream_weights", 1, {1}, {{2, 1}, {2}, {2}}, 2, .attr = &streams1},
    {"stream_weights", 7, {14}, {{4, 14}, {4}, {2}}, 4, {3}, .attr = &streams2,
     .without = &streams2_big},
    {"stream_weights", 7, {14}, {{4, 14}, {4}, {2}}, 4, {3}, .attr = &streams2,
     .without = &streams2_norm},
    {"stream_weights", 7, {14}, {{4, 14}, {4}, {2}}, 4, {3}, .attr = &streams2,
     .without = &streams2_post},
    {"stream_weights", 29, {4 * 129}, {{24, 4 * 129}, {24}, {3}}, 24, {3, 9}, .attr = &streams4,
     .without = &streams4_1},
    {"stream_weights", 29, {4 * 129}, {{24, 4 * 129}, {24}, {3}}, 24, {3, 9}, .attr = &streams4,
     .without = &streams4_eps},
    {"stream_weights", 67, {4 * 129}, {{4, 4 * 129}, {4}, {1}}, 4, {3}, .attr = &streams_head},
    {"stream_read", 1, {1, 1}, .out = 1, .attr = &read1},
    {"stream_read", 7, {4, 28}, .out = 7, {3}, .attr = &read4, .f32 = true},
    {"stream_read", 67, {24, 4 * 1030}, .out = 1030, {3, 9}, .attr = &read4, .f32 = true},
    {"stream_write", 1, {2, 1, 1}, .out = 1, .attr = &write1},
    {"stream_write", 7, {8, 28, 7}, .out = 28, {3}, .attr = &write4, .f32 = true},
    {"stream_write", 67, {24, 4 * 1030, 1030}, .out = 4 * 1030, {3, 9}, .attr = &write4m,
     .without = &write4, .f32 = true},
    {"stream_mean", 1, {1}, .out = 1, .attr = &read1},
    {"stream_mean", 67, {4 * 129}, .out = 129, {3, 9}, .attr = &read4},
    {"scale", 1, {1}, .out = 1, .attr = &by3},
    {"scale", 129, {129}, .out = 129, {3}, .attr = &by3r, .without = &by2},
    {"act", 1, {1}, .out = 1, .amp = 4, .attr = &f_silu},
    {"act", 7, {7}, .out = 7, .amp = 4, .attr = &f_gelu, .without = &f_silu},
    {"act", 129, {129}, .out = 129, {3}, .amp = 6, .attr = &f_tanh, .without = &f_gelu},
    {"act", 129, {129}, .out = 129, .amp = 6, .attr = &f_new, .without = &f_silu},
    {"act", 129, {129}, .out = 129, .amp = 4, .attr = &f_relu, .without = &f_gelu},
    {"act", 129, {129}, .out = 129, .amp = 4, .attr = &f_relu2, .without = &f_relu},
    {"clamp", 1, {1}, .out = 1, .attr = &within},
    {"clamp", 7, {7}, .out = 7, {3}, .amp = 4, .attr = &within, .without = &within2},
    {"clamp", 129, {1030}, .out = 1030, {3}, .amp = 4, .attr = &within, .without = &within2},
    {"xielu", 1, {1}, {{1}, {1}, {1}, {1}}, 1},
    {"xielu", 7, {7}, {{1}, {1}, {1}, {1}}, 7, {3}, .amp = 4},
    {"xielu", 129, {1030}, {{1}, {1}, {1}, {1}}, 1030, {3}, .amp = 6},
    {"positions", 1, {1}, {{131, 1}}, 1, .attr = &pos},
    {"positions", 129, {7}, {{131, 7}}, 7, {3}, .attr = &pos2, .without = &pos},
    {"positions", 129, {1030}, {{131, 1030}}, 1030, {100}, .attr = &pos2},
    {"product", 1, {1, 1}, .out = 1},
    {"product", 7, {7, 7}, .out = 7, {3}, .amp = 4},
    {"product", 129, {1030, 1030}, .out = 1030, {3}, .amp = 4},
    {"product", 7, {129, 129}, .out = 129, {3}, .f32 = true},
    {"sigmoid_gate", 1, {1, 1}, .out = 1, .amp = 4, .attr = &half_gate},
    {"sigmoid_gate", 7, {1, 7}, .out = 7, {3}, .amp = 4, .attr = &half_gate},
    {"sigmoid_gate", 129, {1, 1030}, .out = 1030, {3}, .amp = 4, .attr = &half_gate},
    {"sigmoid_gate", 13, {6, 1290}, .out = 1290, {3}, .amp = 40, .attr = &soft_gate,
     .without = &half_gate},
    {"linear", 1, {1}, {{1, 1}}, 1, .attr = &lin},
    {"linear", 7, {7}, {{7, 7}, {7}}, 7, {3}, .attr = &lin_bias},
    {"linear", 129, {129}, {{193, 129}, {193}}, 193, {1, 4}, .attr = &lin_bias},
    {"linear", 515, {65}, {{129, 65}}, 129, {257}, .attr = &lin},   // each sample has more rows
                                                                    // than one tile
    /* The rows are more than one panel (OSH_GEMM_PANEL). */
    {"linear", 2300, {9}, {{5, 9}}, 5, {2100, 2101}, .attr = &lin},
    {"linear", 130, {576}, {{576, 576}}, 576, .attr = &lin},
    {"rope", 1, {8}, .out = 8, .attr = &rope8},
    {"rope", 7, {24}, .out = 24, {3}, .attr = &rope8, .without = &rope8f},
    {"rope", 129, {24}, .out = 24, {100}, .attr = &rope8s, .without = &rope8},
    {"rope", 129, {24}, .out = 24, {64}, .attr = &rope8p, .without = &rope8},
    /* Samples of 15, 64 and 50 tokens; max_pos is 20, so two samples are longer. */
    {"rope", 129, {24}, .out = 24, {15, 79}, .attr = &rope8d, .without = &rope8f},
    {"rope", 70, {258}, .out = 258, .attr = &rope258},
    {"rope", 70, {24}, .out = 24, {7}, .attr = &rope8i, .without = &rope8f},
    {"rope", 70, {24}, .out = 24, {7}, .attr = &rope8ip, .without = &rope8p},
    {"rope", 70, {24}, .out = 24, {7}, .attr = &rope8q},
    {"rope", 70, {24}, .out = 24, {7}, .attr = &rope8_back, .without = &rope8f},
    /* Samples of 15, 35 and 49 tokens; long_from is 20, so two samples are longer. */
    {"rope", 99, {24}, .out = 24, {15, 50}, .attr = &rope8l, .without = &rope8f},
    {"rope", 70, {24}, .out = 24, {7}, .attr = &rope8b, .without = &rope8f},
    {"rope", 515, {576}, .out = 576, {7}, .attr = &rope64},
    {"attention", 1, {1, 1, 1}, .out = 1, .attr = &att1},
    {"attention", 7, {42, 14, 14}, .out = 42, {2}, .attr = &att7},
    {"attention", 129, {42, 14, 14}, .out = 42, {129 - 7}, .attr = &att7},
    {"attention", 129, {42, 42, 42}, .out = 42, {1}, .attr = &att7k},
    {"attention", 300, {42, 14, 14}, .out = 42, {11}, .attr = &att7w, .without = &att7},
    {"attention", 29, {42, 14, 14}, .out = 42, {11}, .amp = 2, .attr = &att7h, .without = &att7},
    {"attention", 29, {42, 14, 14}, .out = 42, {11}, .amp = 2, .attr = &att7hw, .without = &att7h},
    {"attention", 300, {576, 192, 192}, .out = 576, {130}, .attr = &att64h, .without = &att64},
    {"attention", 29, {42, 14, 14}, .out = 42, {11}, .amp = 2, .attr = &att7s, .without = &att7},
    {"attention", 29, {42, 14, 14}, .out = 42, {11}, .amp = 2, .attr = &att7c, .without = &att7s},
    {"attention", 60, {576, 192, 192}, .out = 576, {41}, .amp = 2, .attr = &att64c,
     .without = &att64},
    {"attention", 515, {256, 128, 128}, .out = 256, {130}, .attr = &att64l},
    {"attention", 515, {256, 128, 128}, .out = 256, {130}, .attr = &att64w, .without = &att64l},
    {"attention", 130, {576, 64, 64}, .out = 576, {41}, .attr = &att64m},
    {"attention", 300, {192, 192, 192}, .out = 192, {7}, .attr = &att96},
    {"sigmoid_gate", 129, {1030, 1030}, .out = 1030, {3}, .amp = 4, .attr = &half_gate},
    {"conv1d", 1, {1}, {{1, 4}}, 1, .attr = &conv4},
    {"conv1d", 29, {7}, {{7, 4}}, 7, {3}, .attr = &conv4u, .without = &conv4},
    {"conv1d", 7, {7}, {{7, 4}, {7}}, 7, {3}, .attr = &conv4b},
    {"conv1d", 129, {700}, {{700, 4}, {700}}, 700, {2, 66}, .attr = &conv4s, .without = &conv4b},
    {"conv1d", 129, {700}, {{700, 4}, {700}}, 700, {2, 66}, .attr = &conv4f, .without = &conv4b},
    {"delta_rule", 1, {3, 1, 1}, {{1}, {1}}, 1, .attr = &delta1},
    {"delta_rule", 29, {2 * 2 * 7 + 6 * 13, 6, 6}, {{6}, {6}}, 78, {11}, .attr = &delta7},
    {"delta_rule", 29, {2 * 2 * 7 + 6 * 13, 6, 6}, {{6}, {6}}, 78, {11}, .attr = &delta7_2,
     .without = &delta7},
    {"delta_rule", 130, {2 * 2 * 64 + 4 * 64, 4, 4}, {{4}, {4}}, 256, {41}, .amp = 2,
     .attr = &delta64},
    {"channel_delta", 1, {3, 1, 1}, {{1}, {1}}, 1, .attr = &channel1},
    {"channel_delta", 29, {3 * 6 * 7, 42, 6}, {{6}, {42}}, 42, {11}, .attr = &channel7},
    {"channel_delta", 29, {3 * 6 * 7, 42, 6}, {{6}, {42}}, 42, {11}, .attr = &channel7_bound,
     .without = &channel7},
    {"channel_delta", 67, {3 * 129, 129, 1}, {{1}, {129}}, 129, {9, 11}, .attr = &channel129},
    {"lightning", 1, {3}, .out = 1, .attr = &lightning1},
    {"lightning", 29, {3 * 6 * 7}, .out = 42, {11}, .attr = &lightning7},
    {"lightning", 29, {3 * 6 * 7}, .out = 42, {11}, .attr = &lightning7_half,
     .without = &lightning7},
    {"lightning", 67, {3 * 2 * 129}, .out = 258, {9, 11}, .attr = &lightning129},
    {"ssm_scan", 1, {3, 1}, {{1}, {1}, {1}}, 1, .attr = &ssm1},
    {"ssm_scan", 29, {6 * 7 + 2 * 2 * 5, 6}, {{6}, {6}, {6}}, 42, {11}, .attr = &ssm7},
    {"ssm_scan", 29, {6 * 7 + 2 * 2 * 5, 6}, {{6}, {6}, {6}}, 42, {11}, .attr = &ssm7c,
     .without = &ssm7},
    {"ssm_scan", 130, {3 * 64 + 2 * 129, 3}, {{3}, {3}, {3}}, 192, {41}, .attr = &ssm64},
    {"mamba_scan", 1, {1, 1, 1, 1}, {{1, 1}, {1}, {1}}, 1, .attr = &mamba1},
    {"mamba_scan", 29, {7, 7, 5, 5}, {{7, 5}, {7}, {7}}, 7, {11}, .attr = &mamba5},
    {"mamba_scan", 130, {129, 129, 16, 16}, {{129, 16}, {129}, {129}}, 129, {41}, .attr = &mamba16},
    {"compress", 1, {1, 1}, {{1, 1}}, 1, .attr = &window1},
    {"compress", 29, {14, 14}, {{3, 14}}, 7, {11}, .amp = 3, .attr = &window3o},
    {"compress", 29, {7, 7}, {{3, 7}}, 7, {11}, .amp = 3, .attr = &window3},
    {"compress", 130, {129, 129}, {{16, 129}}, 129, {41}, .amp = 3, .attr = &window16},
    {"grouped_linear", 1, {1}, {{1, 1}}, 1, .attr = &grouped1},
    {"grouped_linear", 29, {21}, {{21, 7}}, 21, {3}, .attr = &grouped3},
    {"grouped_linear", 67, {258}, {{130, 129}}, 130, {9, 11}, .attr = &grouped2},
    {"attention_windows", 1, {1, 1, 1}, {{1}}, 1, .attr = &aw1},
    {"attention_windows", 29, {42, 7, 7}, {{6}}, 42, {11}, .amp = 2, .attr = &aw7,
     .without = &aw7_wide},
    {"attention_windows", 29, {42, 7, 7}, {{6}}, 42, {11}, .amp = 2, .attr = &aw7,
     .without = &aw7_few},
    {"attention_windows", 130, {195, 65, 65}, {{3}}, 195, {41}, .amp = 2, .attr = &aw65},
    {"alibi", 1, {1}, .out = 3, .attr = &alibi1},
    {"alibi", 29, {42}, .out = 54, {11}, .attr = &alibi7, .without = &alibi7_by},
    {"alibi", 29, {42}, .out = 54, {11}, .attr = &alibi7_mpt, .without = &alibi7},
    {"alibi", 300, {42}, .out = 54, {11}, .attr = &alibi7_keys, .without = &alibi7},
    {"gated_norm", 67, {78, 78}, {{78}}, 78, {9, 11}, .attr = &gated78b, .without = &gated78},
    {"gated_norm", 1, {1, 1}, {{1}}, 1, .attr = &gated1},
    {"gated_norm", 67, {78, 78}, {{78}}, 78, {9}, .attr = &gated26, .without = &gated78w},
    {"gated_norm", 67, {78, 78}, {{13}}, 78, {9}, .attr = &gated13s, .without = &gated13},
    {"gated_norm", 67, {78, 78}, {{78}}, 78, {9, 11}, .attr = &gated78b, .without = &gated78,
     .f32 = true},
    {"gated_norm", 29, {78, 78}, {{13}}, 78, {9}, .attr = &gated13, .f32 = true},
    {"gated_norm", 67, {78, 78}, {{13}}, 78, {9, 11}, .attr = &gated13},
    {"gated_norm", 3, {129, 129}, {{129}}, 129, .amp = 3e-3f, .attr = &gated129,
     .without = &gated129_0},
    {"attention_sinks", 1, {1, 1, 1}, {{1}}, 1, .attr = &att1},
    {"attention_sinks", 29, {42, 14, 14}, {{6}}, 42, {11}, .amp = 2, .attr = &att7c,
     .without = &att7s},
    {"attention_sinks", 300, {42, 14, 14}, {{6}}, 42, {11}, .attr = &att7w, .without = &att7},
    {"attention_sinks", 515, {256, 128, 128}, {{4}}, 256, {130}, .amp = 4, .attr = &att64w,
     .without = &att64l},
    {"glu", 1, {1, 1}, .out = 1, .amp = 4, .attr = &act_silu},
    {"glu", 7, {7, 7}, .out = 7, .amp = 4, .attr = &act_gelu, .without = &act_silu},
    {"glu", 129, {129, 129}, .out = 129, .amp = 6, .attr = &act_tanh, .without = &act_gelu},
    {"glu", 129, {129, 129}, .out = 129, .amp = 10, .attr = &act_clamped,
     .without = &act_clamped_1},
    {"glu", 7, {7, 7}, .out = 7, .amp = 10, .attr = &act_clamped, .without = &act_clamped_9},
    {"glu", 129, {129, 129}, .out = 129, .amp = 10, .attr = &act_clamped_0,
     .without = &act_clamped_1},
    {"glu", 129, {1536, 1536}, .out = 1536, .amp = 100, .attr = &act_silu},
    {"add", 1, {1, 1}, .out = 1},
    {"add", 7, {7, 7}, .out = 7},
    {"add_f32", 1, {1, 1}, .out = 1, .f32 = true},
    {"add_f32", 7, {7, 7}, .out = 7},
    {"add_f32", 129, {129, 129}, .out = 129, {3}, .f32 = true},
    {"rms_norm", 67, {129}, {{129}}, 129, {9, 11}, .attr = &eps, .f32 = true},
    {"rms_norm", 3, {2056}, {{2056}}, 2056, .attr = &eps, .f32 = true},
    {"rms_norm", 9, {512}, {{128}}, 512, .attr = &heads128, .f32 = true},
    {"add", 129, {129, 129}, .out = 129, {3}},
    {"zeros", 1, {1}, .out = 1},
    {"zeros", 129, {129}, .out = 129, {3}},
    {"moe_router", 1, {1}, .out = 1, .attr = &top1},
    {"moe_router", 7, {7}, .out = 7, .amp = 2, .attr = &top2, .without = &top1},
    {"moe_router", 129, {33}, .out = 33, {3}, .amp = 4, .attr = &top2n, .without = &top2},
    {"moe_router", 7, {7}, {{7}}, 7, {3}, .amp = 2, .attr = &top2ns, .without = &top2n},
    {"moe_router", 129, {33}, {{33}}, 33, {3}, .amp = 4, .attr = &top2ns, .without = &top2n},
    {"moe_router", 130, {128}, .out = 128, {65}, .amp = 3, .attr = &top8n, .without = &top8},
    {"moe_router", 3, {8}, .out = 8, .amp = 3, .attr = &top8},
    {"moe_router", 129, {33}, .out = 33, {3}, .amp = 4, .attr = &top1s, .without = &top1},
    {"moe_sparsemixer", 1, {2}, .out = 2, .attr = &mixer},
    {"moe_sparsemixer", 7, {7}, .out = 7, {3}, .amp = 2, .attr = &mixer_wide, .without = &mixer},
    {"moe_sparsemixer", 129, {33}, .out = 33, {3}, .amp = 4, .attr = &mixer},
    {"moe_sparsemixer", 3, {1024}, .out = 1024, .attr = &mixer},
    {"routed_scale", 1, {1, 1}, .out = 1, .attr = &any_expert},
    {"routed_scale", 67, {129, 7}, .out = 129, {9, 11}, .attr = &any_expert},
    {"routed_scale", 67, {129, 7}, .out = 129, {9, 11}, .amp = 3, .attr = &scale6,
     .without = &any_expert},
    {"routed_scale", 67, {129, 7}, .out = 129, {9, 11}, .amp = 3, .attr = &scale6,
     .without = &scale0},
    {"grouped_norm", 1, {1}, {{1}}, 1, .attr = &group1},
    {"grouped_norm", 7, {129}, {{129}}, 129, {3}, .attr = &group43, .without = &group43_plain},
    {"grouped_norm", 7, {129}, {{129}}, 129, {3}, .attr = &group43, .without = &group43_eps},
    {"grouped_norm", 7, {129}, {{129}}, 129, {3}, .attr = &group43, .without = &group129},
    {"stream_gate", 1, {1, 1}, .out = 1, .attr = &read1},
    {"stream_gate", 67, {4 * 1030, 4 * 1030}, .out = 1030, {3, 9}, .attr = &read4},
    {"stream_inject", 1, {1, 1, 1}, .out = 1, .attr = &read1},
    {"stream_inject", 67, {4, 4 * 1030, 1030}, .out = 4 * 1030, {3, 9}, .attr = &read4},
    {"ngram_embedding", 1, {1}, {{99, 1}, {2}, {1}, {1}}, 1, .attr = &gram2},
    {"ngram_embedding", 67, {1}, {{99, 7}, {3}, {4}, {4}}, 28, {9, 11}, .attr = &gram3,
     .without = &gram3_end},
    {"ngram_gate", 1, {1, 1, 1}, .out = 1, .attr = &read1},
    {"ngram_gate", 29, {4 * 1030, 4 * 1030, 1030}, .out = 4 * 1030, {3, 9}, .attr = &read4},
    {"dilated_conv", 1, {1}, {{1, 1}}, 1, .attr = &conv_1},
    {"dilated_conv", 130, {259}, {{259, 4}}, 259, {41, 43}, .attr = &conv_3, .without = &conv_2},
    {"stream_mix", 1, {1, 1}, .out = 1, .attr = &mix1},
    {"stream_mix", 7, {21, 9}, .out = 21, {3}, .attr = &mix3},
    {"stream_mix", 29, {3 * 1030, 9}, .out = 3 * 1030, {3, 9}, .attr = &mix3},
    {"stream_correct", 1, {1, 1, 1}, .out = 1, .attr = &active0},
    {"stream_correct", 7, {21, 7, 3}, .out = 21, {3}, .attr = &active2, .without = &active0},
    {"stream_correct", 29, {3 * 1030, 1030, 3}, .out = 3 * 1030, {3, 9}, .attr = &active2},
    {"stream_add", 1, {1, 1}, .out = 1, .attr = &add0},
    {"stream_add", 7, {21, 7}, .out = 21, {3}, .attr = &add1, .without = &add0},
    {"stream_add", 29, {3 * 1030, 1030}, .out = 3 * 1030, {3, 9}, .attr = &add1},
    {"stream_mean", 1, {1}, .out = 1, .attr = &mean1},
    {"stream_mean", 7, {21}, .out = 7, {3}, .attr = &mean3},
    {"stream_mean", 29, {3 * 1030}, .out = 1030, {3, 9}, .attr = &mean3},
    {"match_rms", 1, {1, 1}, .out = 1},
    {"match_rms", 7, {7, 7}, .out = 7, {3}, .amp = 2e-3f},
    {"match_rms", 29, {1030, 1030}, .out = 1030, {3, 9}},
    {"gaussian_topk", 1, {1}, .out = 1, .attr = &top0},
    {"gaussian_topk", 7, {129}, .out = 129, {3}, .attr = &top50, .without = &top0},
    {"gaussian_topk", 29, {1030}, .out = 1030, {3, 9}, .attr = &top95, .without = &top50},
    {"channel_gain", 1, {1}, {{1}}, 1},
    {"channel_gain", 29, {1030}, {{1030}}, 1030, {3, 9}},
    {"tanh", 1, {1}, .out = 1},
    {"tanh", 7, {129}, .out = 129, {3}, .amp = 4},
    {"diff_heads", 1, {2, 2}, {{1}, {1}, {1}, {1}}, 2, .attr = &diff1},
    {"diff_heads", 7, {24, 24}, {{6}, {6}, {6}, {6}}, 24, {3}, .attr = &diff6,
     .without = &diff6_first},
    {"diff_heads", 7, {24, 24}, {{6}, {6}, {6}, {6}}, 24, {3}, .attr = &diff6,
     .without = &diff6_eps},
    {"diff_heads", 29, {774, 774}, {{129}, {129}, {129}, {129}}, 774, {3}, .attr = &diff129},
    {"position_scale", 1, {1}, .out = 1, .attr = &far4},
    {"gain", 1, {1}, {{1}}, 1},
    {"gain", 67, {129}, {{1}}, 129, {9, 11}},
    {"position_scale", 67, {7}, .out = 7, {9, 11}, .attr = &far4, .without = &far9},
    {"position_scale", 67, {129}, .out = 129, {9, 11}, .attr = &far4, .without = &far4b},
    {"moe_router", 3, {1024}, .out = 1024, .amp = 3, .attr = &top8, .without = &top2},
    {"moe_gate", 1, {1}, {{1, 1}}, 1, .attr = &gate1},
    {"moe_gate", 7, {7}, {{7, 7}, {7}}, 7, {3}, .attr = &gate7, .without = &gate7_plain},
    {"moe_gate", 7, {7}, {{7, 7}, {7}}, 7, .attr = &gate7, .without = &gate7_raw},
    {"moe_gate", 7, {7}, {{7, 7}, {7}}, 7, .attr = &gate7, .without = &gate7_soft},
    {"moe_gate", 67, {129}, {{36, 129}}, 36, {65}, .attr = &gate36, .without = &gate36_all},
    {"moe_gate", 67, {129}, {{36, 129}}, 36, {65}, .attr = &gate36_greedy, .without = &gate36},
    {"moe_gate", 9, {576}, {{256, 576}, {256}}, 256, {4}, .attr = &gate256,
     .without = &gate256_one},
    {"moe_gate", 3, {129}, {{1024, 129}}, 1024, .attr = &gate1024},
    {"moe_gate", 7, {7}, {{7, 7}, {7}}, 7, .attr = &gate7_root, .without = &gate7_soft},
    {"moe_hash", 67, {129, 1}, {{33, 129}, {33, 2}}, 33, {9, 11}, .attr = &gate33_root,
     .without = &gate33_raw},
    {"moe_hash", 67, {129, 1}, {{33, 129}, {33, 2}}, 33, {9, 11}, .attr = &gate33_root,
     .without = &gate33_soft},
    {"routed_rows", 1, {1, 1}, .out = 1, .attr = &expert0},
    {"routed_rows", 7, {7, 7}, .out = 7, {3}, .attr = &expert6, .without = &expert0},
    {"routed_rows", 129, {129, 8}, .out = 129, {3}, .attr = &expert6, .without = &expert0},
    {"rotate", 1, {1}, {{1, 1}}, 1, .attr = &turn1},
    {"rotate", 7, {21}, {{7, 7}}, 21, {3}, .attr = &turn7, .without = &turn7t},
    {"rotate", 129, {129}, {{129, 129}}, 129, {3}, .attr = &turn129},
    {"rotate", 67, {128}, .out = 128, {3}, .attr = &had64},
    {"rotate", 7, {72}, .out = 72, {3}, .attr = &had24, .without = &had24t},
    {"rotate", 7, {72}, .out = 72, {3}, .attr = &had24t, .without = &had24},
    {"rotate", 7, {72}, .out = 72, {3}, .attr = &mat24, .without = &mat24t},
    {"rotate", 7, {72}, .out = 72, {3}, .attr = &mat24t, .without = &mat24},
    {"moe_combine", 1, {1, 1, 1}, .out = 1, .attr = &expert0},
    {"moe_combine", 7, {7, 7, 7}, .out = 7, {3}, .attr = &expert6, .without = &expert0},
    {"moe_combine", 129, {129, 129, 8}, .out = 129, {3}, .attr = &expert6, .without = &expert0},
    {"moe_combine", 130, {2048, 2048, 128}, .out = 2048, .attr = &expert6},
    {"moe_combine", 29, {129, 129, 8}, .out = 129, {3}, .attr = &expert6p, .without = &expert6},
};

/* Additional cases for a GPU: rows that share a block, positions above 2^17, scores in several
 * chunks. */
enum { FAR_TOKENS = 10000 }; // a case with more tokens runs in only one order of the threads
static const op_case gpu_cases[] = {
    {"rms_norm", 3, {2056}, {{2056}}, 2056, .attr = &eps},
    {"rms_norm", 3, {1029}, {{1029}}, 1029, {1}, .attr = &eps},
    {"rms_norm", 9, {512}, {{128}}, 512, .attr = &heads128},
    {"rope", 131073, {8}, .out = 8, .attr = &rope8f},
    {"rope", 70, {48}, .out = 48, {7}, .attr = &rope16p}, // the kernel reads both halves of a head
                                                          // in packs (vector loads, pack.cuh)
    {"attention", 1100, {32, 16, 16}, .out = 32, {3}, .attr = &att16},
    {"attention", 1100, {32, 16, 16}, .out = 32, {3}, .attr = &att16w},
    {"attention", 1100, {32, 16, 16}, .out = 32, {3}, .attr = &att16h},
    {"rotate", 2, {28672}, .out = 28672, .attr = &had28672}, // does not fit in shared memory
    /* Samples of equal length are computed in one pass (attention.cu). */
    {"attention", 60, {32, 16, 16}, .out = 32, {20, 40}, .attr = &att16},
};

typedef struct op_run {
    guarded in[OSH_OP_MAX_IN], out;
    int n_in;
    int64_t offsets[4];
    osh_seqs seqs;
    osh_op_args a;
} op_run;

/* Opens a case: inputs of dtype dt, weights of dtype `stored`, and the output. */
static void op_run_open_as(osh_ctx *cx, op_run *r, const op_case *c, osh_dtype dt, osh_dtype stored)
{
    const osh_op *op = osh_op_find(c->op);
    int ids = !strcmp(c->op, "moe_hash") ? 1 : osh_op_is(op, OSH_OP_LOOKUP) ? 0 : -1;

    assert_non_null(op);
    *r = (op_run){.n_in = op->n_in + op->n_weights};
    for (int i = 0; i < r->n_in; i++) {
        bool weight = i >= op->n_in;
        const int64_t *w = c->w[weight ? i - op->n_in : 0];
        if (weight && !w[0]) continue;
        bool whole = weight && op->whole_numbers >> (i - op->n_in) & 1;
        if (weight)
            r->in[i] = guarded_new(cx, whole ? OSH_I32 : stored, w[1] ? 2 : 1, w[0], w[1]);
        else
            r->in[i] = guarded_new(cx,
                                   ids == i           ? OSH_I32
                                   : i == 0 && c->f32 ? OSH_F32
                                                      : dt,
                                   ids == i ? 1 : 2, c->n, c->in[i]);
        if (ids == i || whole)
            for (int64_t n = 0; n < osh_tensor_numel(&r->in[i].t); n++)
                ((int32_t *)r->in[i].t.data)[n] =
                    (int32_t)(osh_rng_u64(SEED, 0, (uint64_t)n) % 33) + (whole && op->row_ids);
        else
            guarded_fill(&r->in[i], (uint64_t)i, c->amp > 0 && !weight ? c->amp : 1);
        r->a.in[i] = &r->in[i].t;
    }
    /* The routing sends only some rows to each expert. */
    for (int64_t i = 0; !strcmp(c->op, "routed_rows") && i < c->n * c->in[1]; i += 5)
        memset(osh_elem(&r->in[1].t, i), 0, osh_dtype_bytes(dt));
    r->out = guarded_new(cx, osh_op_is(op, OSH_OP_F32_OUT) ? OSH_F32 : dt, 2, c->n, c->out);
    r->a.out[0] = &r->out.t;
    r->seqs = (osh_seqs){.n = 1, .offsets = r->offsets};
    for (int s = 0; s < 2 && c->split[s]; s++) r->offsets[r->seqs.n++] = c->split[s];
    r->offsets[r->seqs.n] = c->n;
    r->a.seqs = &r->seqs;
    r->a.attr = c->attr;
}

static void op_run_open(osh_ctx *cx, op_run *r, const op_case *c, osh_dtype dt)
{
    op_run_open_as(cx, r, c, dt, dt);
}

static void op_run_close(osh_ctx *cx, op_run *r)
{
    for (int i = 0; i < r->n_in; i++)
        if (r->in[i].room) guarded_check(&r->in[i]), guarded_free(cx, &r->in[i]);
    guarded_check(&r->out);
    guarded_free(cx, &r->out);
}

static void check_against_ref(osh_ctx *cx, const op_case *c, osh_dtype dt)
{
    const osh_op *op = osh_op_find(c->op);
    op_run ref, fast, other;

    op_run_open(cx, &ref, c, dt);
    op_run_open(cx, &fast, c, dt);
    assert_int_equal(op->run[OSH_REF](cx, &ref.a), OSH_OK);
    assert_int_equal(osh_op_run(cx, op, &fast.a), OSH_OK);
    double e = nmse(&fast.out.t, &ref.out.t), tol = op->tol > 0 ? tol_of(op->tol, dt) : 0;
    if (!(e <= tol))
        fail_msg("%s [%lld, %lld] %s: NMSE %g, want %g", c->op, (long long)c->n, (long long)c->out,
                 osh_dtype_name(dt), e, tol);
    if (c->without && dt == OSH_F32) {
        op_run_open(cx, &other, c, dt);
        other.a.attr = c->without;
        assert_int_equal(op->run[OSH_REF](cx, &other.a), OSH_OK);
        e = nmse(&other.out.t, &ref.out.t);
        if (!(e > 1e-9))
            fail_msg("%s [%lld, %lld]: the attribute changes nothing (%g)", c->op, (long long)c->n,
                     (long long)c->out, e);
        op_run_close(cx, &other);
    }
    op_run_close(cx, &fast);
    op_run_close(cx, &ref);
}

static void test_fast_equals_ref(void **state)
{
    (void)state;
    if (gpu_alone()) return;
    osh_ctx *cx = NULL;
    const osh_dtype dts[] = {OSH_F32, OSH_BF16, OSH_F16};

    assert_int_equal(osh_ctx_new(&cx, 2), OSH_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int d = 0; d < 3; d++) check_against_ref(cx, &cases[i], dts[d]);
    assert_int_equal(osh_mem_live(cx), 0);
    osh_ctx_free(cx);
}

/* Runs a batch on three threads, and then each of its samples alone on one thread. Checks that both
 * give the same bytes. */
static void check_bytes(osh_ctx *one, osh_ctx *three, const op_case *c, osh_dtype dt)
{
    const osh_op *op = osh_op_find(c->op);
    op_run batch, alone;

    op_run_open(three, &batch, c, dt);
    op_run_open(one, &alone, c, dt);
    assert_int_equal(osh_op_run(three, op, &batch.a), OSH_OK);
    for (int64_t s = 0; s < batch.seqs.n; s++) {
        int64_t row = batch.offsets[s], n = batch.offsets[s + 1] - row;
        osh_tensor in[OSH_OP_MAX_IN], out = alone.out.t;
        osh_op_args a = alone.a;
        for (int i = 0; i < op->n_in; i++) {
            in[i] = alone.in[i].t;
            in[i].data = osh_elem(&in[i], row * osh_width(&in[i]));
            in[i].shape[0] = n;
            a.in[i] = &in[i];
        }
        out.data = osh_elem(&out, row * osh_width(&out));
        out.shape[0] = n;
        a.out[0] = &out;
        a.seqs = NULL;
        assert_int_equal(osh_op_run(one, op, &a), OSH_OK);
    }
    assert_memory_equal(alone.out.t.data, batch.out.t.data, osh_tensor_bytes(&batch.out.t));
    op_run_close(one, &alone);
    op_run_close(three, &batch);
}

static void test_same_bytes(void **state)
{
    (void)state;
    if (gpu_alone()) return;
    osh_ctx *one = NULL, *three = NULL;

    assert_int_equal(osh_ctx_new(&one, 1), OSH_OK);
    assert_int_equal(osh_ctx_new(&three, 3), OSH_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        check_bytes(one, three, &cases[i], OSH_BF16);
        check_bytes(one, three, &cases[i], OSH_F32);
    }
    osh_ctx_free(three);
    osh_ctx_free(one);
}

/* Runs an op on rows [past->n, end) of one sample. Earlier calls have run the rows before them. */
static osh_status piece_run(osh_ctx *cx, const osh_op *op, const op_run *r, const osh_op_past *past,
                            int64_t end)
{
    osh_tensor in[OSH_OP_MAX_IN], out = r->out.t;
    osh_op_args a = r->a;
    for (int i = 0; i < op->n_in; i++) {
        in[i] = r->in[i].t;
        in[i].shape[0] = end - past->n;
        in[i].data = osh_elem(&in[i], past->n * (in[i].ndim > 1 ? in[i].shape[1] : 1));
        a.in[i] = &in[i];
    }
    out.shape[0] = end - past->n;
    out.data = osh_elem(&out, past->n * out.shape[1]);
    a.out[0] = &out, a.seqs = NULL, a.past = past;
    return osh_op_run(cx, op, &a);
}

/* Computes a sample in several calls, some of which have only one token. The result must be that of
 * one call with the whole sample. For such calls each op must have either `each_token` or
 * `next`. */
static void check_pieces(osh_ctx *cx, const op_case *c, osh_dtype dt)
{
    const osh_op *op = osh_op_find(c->op);
    const int64_t ends[] = {1, 2, c->n / 2, c->n - 1, c->n};
    op_run whole, parts;
    assert_true(op->each_token != (op->next != NULL));
    op_run_open(cx, &whole, c, dt);
    op_run_open(cx, &parts, c, dt);
    whole.a.seqs = NULL;
    assert_int_equal(osh_op_run(cx, op, &whole.a), OSH_OK);
    size_t bytes = op->state ? op->state(c->attr, c->in, c->n, dt) : 0;
    osh_op_past past = {.room = c->n, .state = osh_calloc(cx, bytes + GUARD, 1)};
    memset((char *)past.state + bytes, 0xA5, GUARD);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        if (ends[i] <= past.n || ends[i] > c->n) continue;
        assert_int_equal(piece_run(cx, op, &parts, &past, ends[i]), OSH_OK);
        past.n = ends[i];
    }
    for (int i = 0; i < GUARD; i++)
        assert_int_equal(((unsigned char *)past.state)[bytes + (size_t)i], 0xA5);
    osh_free(cx, past.state);
    double e = nmse(&parts.out.t, &whole.out.t), tol = tol_of(op->tol, dt) + 1e-13;
    if (!(e <= tol))
        fail_msg("%s [%lld, %lld] %s in pieces: NMSE %g, want %g", c->op, (long long)c->n,
                 (long long)c->out, osh_dtype_name(dt), e, tol);
    op_run_close(cx, &parts);
    op_run_close(cx, &whole);
}

static void test_in_pieces(void **state)
{
    (void)state;
    if (gpu_alone()) return;
    osh_ctx *cx = NULL;
    assert_int_equal(osh_ctx_new(&cx, 2), OSH_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const op_case *c = &cases[i];
        /* the frequencies of dynamic ropes depend on the length of the sample, so such a sample
         * cannot be computed in several calls */
        if (!strcmp(c->op, "rope") && osh_rope_key(c->attr, c->n)) continue;
        check_pieces(cx, c, OSH_F32);
        check_pieces(cx, c, OSH_BF16);
    }
    assert_int_equal(osh_mem_live(cx), 0);
    osh_ctx_free(cx);
}

/* The predicted scratch of an op must be enough for its CPU kernel. The inferred width of the
 * output and the inferred shapes of the weights must be those of the case. */
static void test_scratch_and_shapes(void **state)
{
    (void)state;
    if (gpu_alone()) return;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const op_case *c = &cases[i];
        const osh_op *op = osh_op_find(c->op);
        osh_ctx *cx = NULL;
        op_run r;
        int64_t width = c->out, shape[4][2] = {{0}};
        int ndim[4] = {0};

        assert_int_equal(osh_ctx_new(&cx, 2), OSH_OK);
        assert_int_equal(op->infer(cx, &width, shape, ndim, c->in, c->attr), OSH_OK);
        assert_int_equal(width, c->out);
        for (int w = 0; w < op->n_weights; w++)
            for (int d = 0; d < ndim[w]; d++) // shape 0: the weight may have any number of rows
                assert_int_equal(shape[w][d] ? shape[w][d] : c->w[w][d], c->w[w][d]);
        op_run_open(cx, &r, c, OSH_BF16);
        size_t live = osh_mem_live(cx);
        assert_int_equal(osh_op_run(cx, op, &r.a), OSH_OK);
        size_t took = osh_mem_peak(cx) - live, said = op->scratch(c->attr, c->in, c->out, c->n, 2);
        if (took > said + 2048) // the allocator rounds up small blocks, in total by at most 2048
                                // bytes
            fail_msg("%s [%lld, %lld] takes %zu bytes, predicted %zu", c->op, (long long)c->n,
                     (long long)c->out, took, said);
        op_run_close(cx, &r);
        osh_ctx_free(cx);
    }
}

/* If the n-th allocation fails, the op returns OSH_E_NOMEM and leaks nothing. */
static void test_torture(void **state)
{
    (void)state;
    if (gpu_alone()) return;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const osh_op *op = osh_op_find(cases[i].op);
        for (int column = OSH_REF; column <= OSH_CPU; column++) {
            if (cases[i].n > 200 || !op->run[column]) continue;
            osh_status rc = OSH_E_NOMEM;
            for (int64_t nth = 1; rc; nth++) {
                osh_ctx *cx = NULL;
                op_run r;
                assert_int_equal(osh_ctx_new(&cx, 2), OSH_OK);
                op_run_open(cx, &r, &cases[i], OSH_BF16);
                osh_mem_fail_after(cx, nth);
                rc = op->run[column](cx, &r.a);
                assert_true(rc == OSH_OK || rc == OSH_E_NOMEM);
                osh_mem_fail_after(cx, -1);
                op_run_close(cx, &r);
                assert_int_equal(osh_mem_live(cx), 0);
                osh_ctx_free(cx);
                assert_true(nth < 40);
            }
        }
    }
}

static void test_bad_token(void **state)
{
    (void)state;
    osh_ctx *cx = NULL;
    op_run r;

    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    op_run_open(cx, &r, &cases[1], OSH_F32);
    ((int32_t *)r.in[0].t.data)[7] = 33;
    assert_int_equal(osh_op_run(cx, &osh_op_embedding, &r.a), OSH_E_FORMAT);
    assert_non_null(strstr(osh_error_text(cx), "token id 33 at position 7, want an id in [0, 33)"));
    op_run_close(cx, &r);
    osh_ctx_free(cx);
}

/* Tests the search for the first element that is not finite. The element may be in any chunk, and
 * any number of threads may search. */
static void test_first_nonfinite(void **state)
{
    (void)state;
    const osh_dtype dts[] = {OSH_F32, OSH_BF16, OSH_F16};
    const int64_t plant[] = {-1, 0, 65535, 65536, 199999, 131071};
    const float bad[] = {NAN, INFINITY, -INFINITY};

    for (int k = 0; k < 18; k++) {
        osh_ctx *cx = NULL;
        int64_t at = 7, want = plant[k % 6];
        assert_int_equal(osh_ctx_new(&cx, k % 2 ? 1 : 3), OSH_OK);
        guarded x = guarded_new(cx, dts[k / 6], 2, 1000, 200);
        guarded_fill(&x, 1, 60000);
        if (want >= 0) {
            osh_from_f32(osh_elem(&x.t, want), x.t.dtype, &bad[k % 3], 1);
            osh_from_f32(osh_elem(&x.t, 199999), x.t.dtype, &bad[k % 3], 1);
        }
        assert_int_equal(osh_first_nonfinite(cx, &at, &x.t), OSH_OK);
        assert_int_equal(at, want);
        guarded_free(cx, &x);
        osh_ctx_free(cx);
    }
}

/* ---- experts ---- */

/* Runs the op on the GPU d, or on the CPU if d is NULL. */
static void run_on(osh_ctx *cx, osh_device *d, const osh_op *op, osh_op_args *a)
{
    if (d) assert_int_equal(gpu_run(cx, d, op, a, 0), OSH_OK);
    else assert_int_equal(osh_op_run(cx, op, a), OSH_OK);
}

/* The router must prefer the lower index among equal logits. The weights of a token must add up to
 * 1. */
static void check_ties(osh_ctx *cx, osh_device *d, osh_dtype dt)
{
    enum { N = 3, E = 40 };
    static const int want[N][3] = {{0, 1, 2}, {4, 35, 36}, {7, 8, 39}};
    osh_moe_router_attr at = {3, true};
    guarded x = guarded_new(cx, dt, 2, N, E), y = guarded_new(cx, dt, 2, N, E);
    osh_op_args a = {.in = {&x.t}, .out = {&y.t}, .attr = &at};
    for (int i = 0; i < N * E; i++) {
        int n = i / E, e = i % E;
        float third = e == 39 ? 5 : e >= 7 && e <= 9 ? 3 : -3;
        float f = n == 0 ? 1 : n == 1 ? (e == 4 || e >= 35 ? 2 : -1) : third;
        osh_from_f32(osh_elem(&x.t, i), dt, &f, 1);
    }
    run_on(cx, d, &osh_op_moe_router, &a);
    for (int n = 0; n < N; n++) {
        double sum = 0;
        for (int e = 0; e < E; e++) {
            double w = value_at(&y.t, n * E + e);
            assert_int_equal(w != 0, e == want[n][0] || e == want[n][1] || e == want[n][2]);
            sum += w;
        }
        assert_true(fabs(sum - 1) < 1e-2);
    }
    guarded_check(&y), guarded_free(cx, &x), guarded_free(cx, &y);
}

/* If a token is not sent to an expert, the output of the expert for this token must have no effect,
 * even if it is NaN. */
static void check_passed_over(osh_ctx *cx, osh_device *d, osh_dtype dt)
{
    enum { N = 5, D = 40, E = 3 };
    osh_moe_combine_attr at = {1};
    guarded sum = guarded_new(cx, dt, 2, N, D), y = guarded_new(cx, dt, 2, N, D),
            route = guarded_new(cx, dt, 2, N, E), out = guarded_new(cx, dt, 2, N, D);
    osh_op_args a = {.in = {&sum.t, &y.t, &route.t}, .out = {&out.t}, .attr = &at};
    const float bad[] = {INFINITY, -INFINITY, NAN}, zero = 0;
    guarded_fill(&sum, 1, 1), guarded_fill(&y, 2, 1), guarded_fill(&route, 3, 1);
    for (int n = 0; n < N; n += 2) { // rows 0, 2 and 4 are not sent to expert 1
        osh_from_f32(osh_elem(&route.t, n * E + 1), dt, &zero, 1);
        for (int i = 0; i < D; i++) osh_from_f32(osh_elem(&y.t, n * D + i), dt, &bad[i % 3], 1);
    }
    run_on(cx, d, &osh_op_moe_combine, &a);
    for (int n = 0; n < N; n++) {
        size_t row = (size_t)D * osh_dtype_bytes(dt);
        bool same = !memcmp(osh_elem(&out.t, n * D), osh_elem(&sum.t, n * D), row);
        assert_int_equal(same, n % 2 == 0);
        // first the product of the expert's output and its weight is rounded, then the sum
        for (int i = n * D; i < (n + 1) * D && !same; i++) {
            float part =
                osh_round_to((float)(value_at(&y.t, i) * value_at(&route.t, n * E + 1)), dt);
            assert_true(value_at(&out.t, i) ==
                        osh_round_to((float)(value_at(&sum.t, i) + part), dt));
        }
    }
    guarded_check(&out);
    guarded_free(cx, &sum), guarded_free(cx, &y), guarded_free(cx, &route), guarded_free(cx, &out);
}

static void check_experts(osh_ctx *cx, osh_device *d)
{
    const osh_dtype dts[] = {OSH_F32, OSH_BF16, OSH_F16};
    for (int k = 0; k < 3; k++) check_ties(cx, d, dts[k]), check_passed_over(cx, d, dts[k]);
}

static void test_experts(void **state)
{
    (void)state;
    osh_ctx *cx = NULL;
    assert_int_equal(osh_ctx_new(&cx, 2), OSH_OK);
    check_experts(cx, NULL);
    osh_ctx_free(cx);
}

/* ---- CUDA kernels ---- */
static osh_attention_attr far_heads; // attributes of heads_case
static op_case heads_case(int64_t head_dim, int64_t group, int64_t n_kv_heads, int64_t window)
{
    int64_t q = n_kv_heads * group * head_dim, kv = n_kv_heads * head_dim;
    far_heads = (osh_attention_attr){n_kv_heads * group, n_kv_heads, head_dim, window, 0};
    /* The samples have 1, 17 and 20 tokens. */
    return (op_case){"attention", 38, {q, kv, kv}, .out = q, {1, 18}, .attr = &far_heads};
}

/* Runs each sample alone on the GPU, on the rows of the sample in the tensors of the batch. */
static void run_alone_on(osh_ctx *cx, osh_device *d, const osh_op *op, op_run *r)
{
    gpu_copy_of in[OSH_OP_MAX_IN], out = gpu_put(cx, d, &r->out.t);
    for (int i = 0; i < r->n_in; i++)
        if (r->a.in[i]) in[i] = gpu_put(cx, d, r->a.in[i]);
    for (int64_t s = 0; s < r->seqs.n; s++) {
        int64_t row = r->offsets[s], n = r->offsets[s + 1] - row;
        osh_tensor part[5], to = out.t;
        osh_op_args a = {.attr = r->a.attr, .out = {&to}};
        for (int i = 0; i < r->n_in; i++) {
            if (!r->a.in[i]) continue;
            part[i] = in[i].t, a.in[i] = &part[i];
            if (i >= op->n_in) continue;
            part[i].data = osh_elem(&part[i], row * osh_width(&part[i]));
            part[i].shape[0] = n;
        }
        to.data = osh_elem(&to, row * osh_width(&to));
        to.shape[0] = n;
        assert_int_equal(op->run[OSH_CUDA](cx, &a), OSH_OK);
    }
    for (int i = 0; i < r->n_in; i++)
        if (r->a.in[i]) gpu_take(cx, NULL, &in[i]);
    gpu_take(cx, &r->out.t, &out);
}

/* True if the kernel of src/ops/cuda/attention_fused.cuh computes the case on the GPU. */
static bool is_fused(const op_case *c, osh_dtype dt)
{
    const osh_attention_attr *at = c->attr;
    if (strcmp(c->op, "attention") || at->softcap != 0) return false;
    return dt != OSH_F32 && at->head_dim % 8 == 0 && at->head_dim <= 128;
}

static void check_gpu(osh_ctx *cx, osh_device *d, const op_case *c, osh_dtype dt, osh_dtype stored)
{
    const osh_op *op = osh_op_find(c->op);
    op_run ref, first, again;
    size_t n = 0;

    op_run_open_as(cx, &ref, c, dt, stored), op_run_open_as(cx, &first, c, dt, stored);
    op_run_open_as(cx, &again, c, dt, stored);
    n = osh_tensor_bytes(&ref.out.t);
    assert_int_equal(op->run[OSH_REF](cx, &ref.a), OSH_OK);
    // BF16 runs in two orders. F16 runs in one order, because it accesses the same addresses as
    // BF16. F32 runs in one order, because the program that looks for races also runs it.
    int n_orders = c->n > FAR_TOKENS || dt != OSH_BF16 ? 1 : gpu_orders();
    for (int k = 0; k < n_orders; k++) {
        op_run *r = k ? &again : &first;
        gpu_order(k);
        size_t most = op->arena_bytes ? op->arena_bytes(c->attr, c->in, c->out, c->n, dt) : 0;
        if (gpu_run(cx, d, op, &r->a, most))
            fail_msg("%s", osh_error_text(cx));
        if (k && memcmp(first.out.t.data, again.out.t.data, n))
            fail_msg("%s [%lld, %lld] %s: another order of the threads gives other bytes", c->op,
                     (long long)c->n, (long long)c->out, osh_dtype_name(dt));
    }
    double e = nmse(&first.out.t, &ref.out.t), tol = op->tol > 0 ? tol_of(op->tol, dt) : 0;
    if (is_fused(c, dt)) tol = tol_fused(dt); // test_attention.c tests a smaller tolerance
    if (!(e <= tol))
        fail_msg("%s [%lld, %lld] %s, weights %s, on the GPU: NMSE %g, want %g", c->op,
                 (long long)c->n, (long long)c->out, osh_dtype_name(dt), osh_dtype_name(stored), e,
                 tol);
    /* In all ops except linear, the bytes of a sample do not depend on the other samples of the
     * batch. linear multiplies all rows of a batch in one matrix multiplication. */
    if (first.seqs.n > 1 && strcmp(c->op, "linear") && !osh_race_barrier) {
        run_alone_on(cx, d, op, &again);
        bool same = !memcmp(first.out.t.data, again.out.t.data, n);
        if (!same)
            printf("%s [%lld, %lld] %s:\n", c->op, (long long)c->n, (long long)c->out,
                   osh_dtype_name(dt));
        strict(same, nmse(&again.out.t, &ref.out.t) <= tol,
               "a sample alone gives the bytes that it has in its batch",
               "A product's algorithm follows from the batch: bytes depend on what else is in it.");
    }
    op_run_close(cx, &again), op_run_close(cx, &first), op_run_close(cx, &ref);
}

static void test_gpu(void **state)
{
    (void)state;
    osh_ctx *cx = NULL;
    const osh_dtype dts[] = {OSH_F32, OSH_BF16, OSH_F16};
    const int64_t dims[] = {1, 7, 64, 80, 96, 128, 256};

    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    osh_device *d = gpu_open(cx, GPU_BYTES);
    int n_dts = gpu_looks_at_addresses() ? 2 : 3;
    for (size_t i = 0; d && i < sizeof cases / sizeof *cases; i++)
        for (int k = 0; k < n_dts && !osh_op_is(osh_op_find(cases[i].op), OSH_OP_HOST_ONLY); k++) {
            check_gpu(cx, d, &cases[i], dts[k], dts[k]);
            // Tests weights whose dtype differs from that of the input. The first case of an op
            // runs with all pairs of dtypes. All other cases run with one pair.
            bool first = !i || strcmp(cases[i].op, cases[i - 1].op);
            if (cases[i].w[0][0] && cases[i].n < 200 && (first || k == (int)(i % (size_t)n_dts)))
                check_gpu(cx, d, &cases[i], dts[k], dts[(k + 1) % 3]);
        }
    for (int i = 0; d && i < 7; i++)
        for (int64_t group = 1; group <= 8; group = group == 1 ? 3 : group + 5) {
            op_case c = heads_case(dims[i], group, 1 + i % 2, i % 3 ? 0 : 5);
            for (int k = 0; k < n_dts; k++) check_gpu(cx, d, &c, dts[k], dts[k]);
        }
    for (size_t i = 0; d && i < sizeof gpu_cases / sizeof *gpu_cases; i++) {
        bool far = gpu_cases[i].n > FAR_TOKENS;
        for (int k = 0; k < (far ? !gpu_looks_at_addresses() : n_dts); k++)
            check_gpu(cx, d, &gpu_cases[i], dts[k], dts[k]);
    }
    if (d) check_experts(cx, d);
    osh_device_close(cx, d);
    assert_int_equal(osh_mem_live(cx), 0);
    osh_ctx_free(cx);
}

static bool any_nonfinite(const osh_tensor *t)
{
    for (int64_t i = 0, n = osh_tensor_numel(t); i < n; i++)
        if (!isfinite(value_at(t, i))) return true;
    return false;
}

/* Checks that an element of the output is not finite if one element of in[k] is not finite. */
static void check_spreads(osh_ctx *cx, osh_device *d, const op_case *c, osh_dtype dt, int k)
{
    const osh_op *op = osh_op_find(c->op);
    const float values[] = {INFINITY, -INFINITY, NAN};
    uint64_t n_tries = gpu_looks_at_addresses() ? 1 : 3; // a check of addresses tries one element,
                                                         // because each element has the same effect
                                                         // on addresses
    for (int v = 0; v < 3; v++)
        for (uint64_t try = 0; try < n_tries; try++) {
            op_run r;
            op_run_open(cx, &r, c, dt);
            int64_t n = osh_tensor_numel(&r.in[k].t),
                    at = (int64_t)(osh_rng_u64(SEED, 99, try) % (uint64_t)n);
            // instead of a random element, the last attempt takes the first or the last element
            if (try == 2) at = v % 2 ? n - 1 : 0;
            osh_from_f32(osh_elem(&r.in[k].t, at), r.in[k].t.dtype, &values[v], 1);
            if (gpu_run(cx, d, op, &r.a,
                        op->arena_bytes ? op->arena_bytes(c->attr, c->in, c->out, c->n, dt) : 0))
                fail_msg("%s", osh_error_text(cx));
            if (!any_nonfinite(&r.out.t))
                fail_msg("%s [%lld, %lld] %s: %g at %lld of in[%d] leaves no trace", c->op,
                         (long long)c->n, (long long)c->out, osh_dtype_name(dt), (double)values[v],
                         (long long)at, k);
            op_run_close(cx, &r);
        }
}

/* Checks the bits `spreads` of ops. A set bit says: if an element of that input is not finite, an
 * element of the output is not finite. osh_exec_run relies on these bits. */
static void test_gpu_spreads(void **state)
{
    (void)state;
    osh_ctx *cx = NULL;
    const osh_dtype dts[] = {OSH_BF16, OSH_F16, OSH_F32};
    int n = 0;
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    // with the race detector, this test runs no kernels; test_gpu looks for races in them
    osh_device *d = osh_race_barrier ? NULL : gpu_open(cx, GPU_BYTES);
    gpu_order(0);
    for (size_t i = 0; d && i < sizeof cases / sizeof *cases; i++) {
        const osh_op *op = osh_op_find(cases[i].op);
        if (cases[i].n > 40 || cases[i].n * cases[i].out > 8192) continue;
        for (int k = 0; k < 3 * op->n_in; k++)
            if (osh_op_spreads(op, cases[i].attr, k / 3))
                check_spreads(cx, d, &cases[i], dts[k % 3], k / 3), n++;
    }
    // `dim` is the size of a head; the fused kernel computes 8, 32 and 128
    for (int dim = 8; d && dim <= 128; dim *= 4) {
        op_case c = heads_case(dim, 2, 1, dim == 32 ? 5 : 0);
        for (int k = 0; k < 6; k++)
            if (osh_op_spreads(osh_op_find(c.op), c.attr, k / 2))
                check_spreads(cx, d, &c, dts[k % 2], k / 2), n++;
    }
    if (d) assert_true(n > 60);
    osh_device_close(cx, d);
    assert_int_equal(osh_mem_live(cx), 0);
    osh_ctx_free(cx);
}

/* If an allocation on the host or on the GPU fails, the op must return OSH_E_NOMEM, and must free
 * its blocks of the arena. */
static void test_gpu_torture(void **state)
{
    (void)state;
    osh_ctx *cx = NULL;
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    osh_device *d = gpu_open(cx, GPU_BYTES);
    gpu_protect();
    for (size_t i = 0; d && i < sizeof cases / sizeof *cases; i++) {
        const osh_op *op = osh_op_find(cases[i].op);
        osh_status rc = OSH_E_NOMEM;
        if (cases[i].n > 30 || osh_op_is(op, OSH_OP_HOST_ONLY)) continue;
        for (int64_t nth = 1; rc; nth++) {
            op_run r;
            op_run_open(cx, &r, &cases[i], OSH_BF16);
            gpu_copy_of in[OSH_OP_MAX_IN], out = gpu_put(cx, d, &r.out.t);
            osh_op_args a = {.attr = r.a.attr, .seqs = &r.seqs, .out = {&out.t}};
            for (int k = 0; k < r.n_in; k++)
                if (r.a.in[k]) in[k] = gpu_put(cx, d, r.a.in[k]), a.in[k] = &in[k].t;
            size_t used = osh_arena_used(d->arena);
            osh_mem_fail_after(cx, nth);
            rc = op->run[OSH_CUDA](cx, &a);
            osh_mem_fail_after(cx, -1);
            assert_true(rc == OSH_OK || rc == OSH_E_NOMEM);
            assert_int_equal(osh_arena_used(d->arena), used);
            osh_error_clear(cx);
            for (int k = 0; k < r.n_in; k++)
                if (r.a.in[k]) gpu_take(cx, NULL, &in[k]);
            gpu_take(cx, NULL, &out);
            op_run_close(cx, &r);
            assert_true(nth < 40);
        }
    }
    osh_device_close(cx, d);
    assert_int_equal(osh_mem_live(cx), 0);
    osh_ctx_free(cx);
}

/* Ids in host memory are checked before the kernel runs. A bad id in GPU memory makes a row of
 * NaN. */
static void test_gpu_ids(void **state)
{
    (void)state;
    osh_ctx *cx = NULL;
    op_run r, ref;
    const osh_op *op = &osh_op_embedding;

    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    osh_device *d = gpu_open(cx, GPU_BYTES);
    if (d) {
        op_run_open(cx, &ref, &cases[1], OSH_BF16), op_run_open(cx, &r, &cases[1], OSH_BF16);
        assert_int_equal(op->run[OSH_REF](cx, &ref.a), OSH_OK);
        gpu_copy_of w = gpu_put(cx, d, r.a.in[1]), y = gpu_put(cx, d, &r.out.t);
        osh_op_args a = {.in = {r.a.in[0], &w.t}, .out = {&y.t}, .attr = r.a.attr};
        assert_int_equal(op->run[OSH_CUDA](cx, &a), OSH_OK);
        assert_int_equal(osh_tensor_copy(cx, &r.out.t, &y.t), OSH_OK);
        assert_memory_equal(r.out.t.data, ref.out.t.data, osh_tensor_bytes(&r.out.t));
        ((int32_t *)r.in[0].t.data)[7] = 33;
        assert_int_equal(op->run[OSH_CUDA](cx, &a), OSH_E_FORMAT);
        assert_non_null(
            strstr(osh_error_text(cx), "token id 33 at position 7, want an id in [0, 33)"));
        osh_error_clear(cx);
        gpu_copy_of ids = gpu_put(cx, d, r.a.in[0]);
        a.in[0] = &ids.t;
        assert_int_equal(op->run[OSH_CUDA](cx, &a), OSH_OK);
        assert_int_equal(osh_tensor_copy(cx, &r.out.t, &y.t), OSH_OK);
        assert_int_equal(osh_find_nonfinite(r.out.t.data, OSH_BF16, osh_tensor_numel(&r.out.t)),
                         7 * 129);
        for (int i = 0; i < 129; i++) assert_true(isnan(value_at(&r.out.t, 7 * 129 + i)));
        assert_true(!isnan(value_at(&r.out.t, 8 * 129)));
        gpu_take(cx, NULL, &ids), gpu_take(cx, NULL, &w), gpu_take(cx, NULL, &y);
        op_run_close(cx, &r), op_run_close(cx, &ref);
    }
    osh_device_close(cx, d);
    osh_ctx_free(cx);
}

/* Checks osh_device_ops.finite and minmax on x [11, width], which begins at element `shift` of a
 * larger tensor. */
static void check_search(osh_ctx *cx, osh_device *d, osh_dtype dt, int64_t width, int64_t shift)
{
    const float bad[] = {NAN, INFINITY, -INFINITY};
    const osh_device_ops *ops = osh_device_ops_of(d);
    float range[2] = {width > 100 ? INFINITY : 0.5f, width > 100 ? -INFINITY : -0.5f}, want[2],
          got[2];
    int64_t n = 11 * width, first = INT64_MAX, at = n * 2 / 3;
    guarded all = guarded_new(cx, dt, 1, n + shift, 0), g = guarded_new(cx, OSH_F32, 1, 2, 0);
    guarded at_first = guarded_new(cx, OSH_I64, 1, 1, 0);

    guarded_fill(&all, 5, 3);
    memcpy(g.t.data, range, sizeof range), memcpy(want, range, sizeof range);
    memcpy(at_first.t.data, &first, sizeof first);
    for (int64_t i = 2 * width; i < 7 * width; i++) {
        want[0] = fminf(want[0], (float)value_at(&all.t, shift + i));
        want[1] = fmaxf(want[1], (float)value_at(&all.t, shift + i));
    }
    gpu_copy_of c = gpu_put(cx, d, &all.t), m = gpu_put(cx, d, &g.t);
    gpu_copy_of f = gpu_put(cx, d, &at_first.t);
    osh_tensor x = c.t;
    x.ndim = 2, x.shape[0] = 11, x.shape[1] = width, x.data = osh_elem(&c.t, shift);
    assert_int_equal(ops->minmax(cx, m.t.data, (float *)m.t.data + 1, &x, 2, 5), OSH_OK);
    assert_int_equal(osh_tensor_get(cx, got, &m.t, 0, sizeof got), OSH_OK);
    assert_true(got[0] == want[0] && got[1] == want[1]);
    assert_int_equal(ops->finite(cx, f.t.data, &x, 1000), OSH_OK);
    assert_int_equal(osh_tensor_get(cx, &first, &f.t, 0, sizeof first), OSH_OK);
    assert_true(first == INT64_MAX);
    osh_from_f32(osh_elem(&all.t, shift + at), dt, &bad[width % 3], 1);
    osh_from_f32(osh_elem(&all.t, shift + n - 1), dt, &bad[shift], 1);
    assert_int_equal(osh_tensor_copy(cx, &c.t, &all.t), OSH_OK);
    // makes two calls with increasing `base`; the result must be the position that the first call
    // finds, because it is lower
    for (int64_t base = 1000; base <= 2000; base += 1000)
        assert_int_equal(ops->finite(cx, f.t.data, &x, base), OSH_OK);
    assert_int_equal(osh_tensor_get(cx, &first, &f.t, 0, sizeof first), OSH_OK);
    assert_int_equal(first, 1000 + at);
    gpu_take(cx, NULL, &c), gpu_take(cx, NULL, &m), gpu_take(cx, NULL, &f);
    guarded_free(cx, &all), guarded_free(cx, &g), guarded_free(cx, &at_first);
}

/* Checks osh_device_ops.minmax_rows on x [11, width], for the rows of one expert. The batch has 4
 * samples, and the expert gets no token of sample 1. packed: x has only the rows of the expert. */
static void check_rows(osh_ctx *cx, osh_device *d, osh_dtype dt, int64_t width, bool packed)
{
    enum { ROWS = 5, SAMPLES = 4 };
    const int32_t tokens[ROWS] = {0, 3, 7, 8, 10};
    const int64_t offsets[SAMPLES + 1] = {0, 4, 7, 9, 11};
    const osh_seqs seqs = {SAMPLES, offsets};
    float want[2 * SAMPLES], got[2 * SAMPLES];
    guarded x = guarded_new(cx, dt, 2, 11, width), g = guarded_new(cx, OSH_F32, 1, 2 * SAMPLES, 0);
    guarded list = guarded_new(cx, OSH_I32, 1, ROWS, 0);

    guarded_fill(&x, 5, 3);
    memcpy(list.t.data, tokens, sizeof tokens);
    for (int k = 0; k < SAMPLES; k++) want[k] = INFINITY, want[SAMPLES + k] = -INFINITY;
    memcpy(g.t.data, want, sizeof want);
    for (int i = 0, k = 0; i < ROWS; i++) {
        while (tokens[i] >= offsets[k + 1]) k++;
        for (int64_t j = 0; j < width; j++) {
            float v = (float)value_at(&x.t, (packed ? i : tokens[i]) * width + j);
            want[k] = fminf(want[k], v), want[SAMPLES + k] = fmaxf(want[SAMPLES + k], v);
        }
    }
    gpu_copy_of c = gpu_put(cx, d, &x.t), m = gpu_put(cx, d, &g.t), l = gpu_put(cx, d, &list.t);
    osh_sampled_rows of = {{packed ? NULL : l.t.data, ROWS}, l.t.data, &seqs};
    size_t used = osh_arena_used(d->arena);
    assert_int_equal(osh_device_ops_of(d)->minmax_rows(cx, m.t.data, (float *)m.t.data + SAMPLES,
                                                       &c.t, &of),
                     OSH_OK);
    assert_int_equal(osh_arena_used(d->arena), used);
    assert_int_equal(osh_tensor_get(cx, got, &m.t, 0, sizeof got), OSH_OK);
    assert_memory_equal(got, want, sizeof want);
    gpu_take(cx, NULL, &c), gpu_take(cx, NULL, &m), gpu_take(cx, NULL, &l);
    guarded_free(cx, &x), guarded_free(cx, &g), guarded_free(cx, &list);
}

static void test_gpu_search(void **state)
{
    (void)state;
    osh_ctx *cx = NULL;
    const osh_dtype dts[] = {OSH_F32, OSH_BF16, OSH_F16};

    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    osh_device *d = gpu_open(cx, GPU_BYTES);
    for (int k = 0; d && k < 3 * gpu_orders(); k++) {
        gpu_order(k / 3);
        for (int64_t width = 1; width < 1200; width += 257)
            for (int64_t shift = 0; shift < 2; shift++)
                check_search(cx, d, dts[k % 3], width, shift),
                    check_rows(cx, d, dts[k % 3], width % 300, shift);
    }
    osh_device_close(cx, d);
    assert_int_equal(osh_mem_live(cx), 0);
    osh_ctx_free(cx);
}

static void fill_rope(osh_rope_attr *at, int64_t dim)
{
    *at = (osh_rope_attr){.head_dim = dim, .rotary_dim = dim, .attention_scaling = 1};
    for (int64_t i = 0; i < dim / 2; i++)
        at->inv_freq[i] = (float)pow(10000, -2.0 * (double)i / (double)dim);
}

static void fill_rotations(osh_ctx *cx, bool drop)
{
    struct {
        osh_rotation *r;
        osh_rotation_kind kind;
        int64_t n;
    } all[] = {{&hadamard64, OSH_ROTATION_HADAMARD, 64},
               {&hadamard24, OSH_ROTATION_RANDOM_HADAMARD, 24},
               {&matrix24, OSH_ROTATION_RANDOM_MATRIX, 24},
               {&hadamard28672, OSH_ROTATION_RANDOM_HADAMARD, 28672}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (drop) osh_rotation_deinit(cx, all[i].r);
        else if (osh_rotation_init(cx, all[i].r, all[i].kind, all[i].n, SEED, "x")) abort();
    }
}

/* Each op of a model must have a kernel for GPUs or the trait OSH_OP_HOST_ONLY. Otherwise a plan
 * could choose a GPU for a model with the op. */
static void test_host_only(void **state)
{
    bool built = osh_op_linear.run[OSH_CUDA] != NULL;
    (void)state;
    for (size_t i = 0; i < osh_op_count() && built; i++) {
        const osh_op *op = osh_op_at(i);
        if (op->infer && !op->run[OSH_CUDA] && !osh_op_is(op, OSH_OP_HOST_ONLY))
            fail_msg("%s has no kernel for GPUs: want OSH_OP_HOST_ONLY", op->name);
    }
}

int main(void)
{
    osh_ctx *cx = NULL;
    int unable = pin_isa();
    if (unable) return unable;
    fill_rope(&rope64, 64);
    fill_rope(&rope258, 258);
    if (osh_ctx_new(&cx, 1)) return 1;
    fill_rotations(cx, false);
    printf("seed %d\n", SEED);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fast_equals_ref),
        cmocka_unit_test(test_in_pieces),
        cmocka_unit_test(test_same_bytes),
        cmocka_unit_test(test_scratch_and_shapes),
        cmocka_unit_test(test_torture),
        cmocka_unit_test(test_bad_token),
        cmocka_unit_test(test_first_nonfinite),
        cmocka_unit_test(test_experts),
        cmocka_unit_test(test_host_only),
        cmocka_unit_test(test_gpu),
        cmocka_unit_test(test_gpu_spreads),
        cmocka_unit_test(test_gpu_torture),
        cmocka_unit_test(test_gpu_ids),
        cmocka_unit_test(test_gpu_search),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fill_rotations(cx, true);
    osh_ctx_free(cx);
    return failed;
}
