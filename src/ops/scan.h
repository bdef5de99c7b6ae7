/* scan.h - attributes of the ops of layers that keep a state instead of keys and values.
 *
 *   conv1d      in x [N, C], w [C, K], bias [C] optional                    out [N, C]     each channel's last K tokens
 *   delta_rule  in x [N, 2 Nk Dk + Nv Dv], a, b [N, Nv], A_log, dt_bias [Nv]  out [N, Nv*Dv] gated DeltaNet
 *   ssm_scan    in x [N, H P + 2 G S], dt [N, H], A_log, D, dt_bias [H]     out [N, H*P]   Mamba 2's scan, F32
 *   gated_norm  in x, z [N, H*D], w [D]                                     out [N, H*D]   w norm(x) silu(z) */
#ifndef OSH_SCAN_H
#define OSH_SCAN_H
#include "ops/op.h"

typedef struct { int64_t kernel; bool silu, bias; } osh_conv1d_attr;
typedef struct { int64_t k_heads, v_heads, k_dim, v_dim; } osh_delta_rule_attr;
typedef struct { int64_t heads, head_dim, state, groups; double dt_min, dt_max; } osh_ssm_scan_attr;
typedef struct { double eps; int64_t head_dim; bool before; } osh_gated_norm_attr; /* before: the gate, then the norm */

osh_status osh_delta_rule_cpu(osh_ctx *cx, const osh_op_args *a); // cpu/delta_rule.c
size_t osh_delta_rule_scratch(const void *attr, const int64_t *in_width, int64_t out_width, int64_t n_tokens,
                              int n_threads);
osh_status osh_delta_rule_grad_cpu(osh_ctx *cx, const osh_grad_args *a); // cpu/delta_rule_grad.c
size_t osh_delta_rule_grad_scratch(const void *attr, const int64_t *in_width, int64_t out_width, int64_t n_tokens,
                                   int n_threads);
/* By what a head's matrix fades, and how much of a correction it takes. */
void osh_delta_gates(float gates[2], float a, float b, const float weights[2], osh_dtype dt);
/* Where these got d: what a, b, A_log, dt_bias get. w: A_log, dt_bias. */
void osh_delta_gates_back(double to[4], const float gates[2], const double d[2], float a, float b, const float w[2]);
/* x [n] was divided by its length and multiplied by `by`, which got d: what x gets is added to dx, NULL: not wanted. */
void osh_delta_unit_back(float *dx, const float *x, const float *d, int64_t n, double by);

osh_status osh_ssm_scan_cpu(osh_ctx *cx, const osh_op_args *a); // cpu/ssm_scan.c
size_t osh_ssm_scan_scratch(const void *attr, const int64_t *in_width, int64_t out_width, int64_t n_tokens,
                            int n_threads);
osh_status osh_ssm_scan_grad_cpu(osh_ctx *cx, const osh_grad_args *a); // cpu/ssm_scan_grad.c
size_t osh_ssm_scan_grad_scratch(const void *attr, const int64_t *in_width, int64_t out_width, int64_t n_tokens,
                                 int n_threads);
/* By what a head's vectors fade, and how much of a token they take. weights: its A_log, D, dt_bias. */
void osh_ssm_gates(float *decay, float *step, const osh_ssm_scan_attr *at, float dt, const float weights[3],
                   osh_dtype dtype);
/* Where decay and step got d: what dt (and dt_bias) and A_log get. */
void osh_ssm_gates_back(double to[2], const osh_ssm_scan_attr *at, const float gates[2], const double d[2], float dt,
                        const float weights[3]);
#endif
