/* scan.h - declares the attributes and kernels of the ops of recurrent layers. Such layers have a
 * state instead of keys and values.
 *
 * Letters:
 *   all ops        N tokens
 *   conv1d         C channels, K tokens of the window
 *   delta_rule     Nk key heads [Dk], Nv value heads [Dv]
 *   channel_delta, lightning, gated_norm   H heads [D]
 *   ssm_scan       H heads [P], G groups of states [S]
 *   mamba_scan     I channels, each with a state [S]
 *
 *   conv1d      in x [N, C], w [C, K], bias [C] optional                    out [N, C]
 *   delta_rule  in x [N, 2 Nk Dk + Nv Dv], a, b [N, Nv], A_log, dt_bias [Nv]  out [N, Nv*Dv]
 *   channel_delta  in x [N, 3 H D], a [N, H D], b [N, H], A_log [H], dt_bias [H D]  out [N, H D]
 *   lightning   in x [N, H 3 D]                                             out [N, H D]
 *   ssm_scan    in x [N, H P + 2 G S], dt [N, H], A_log, D, dt_bias [H]     out [N, H*P] F32
 *   mamba_scan  in x, dt [N, I], B, C [N, S], A_log [I, S], D, dt_bias [I]  out [N, I]
 *   gated_norm  in x, z [N, H*D], w [D] or [H*D]                            out [N, H*D] */
#ifndef OSH_SCAN_H
#define OSH_SCAN_H
#include "ops/op.h"

/* f32: true if weights and sums are f32, whatever the dtype of x is. */
typedef struct { int64_t kernel; bool silu, bias, f32; } osh_conv1d_attr;
/* beta: factor of sigmoid(b). The value 2 allows negative eigenvalues. */
typedef struct { int64_t k_heads, v_heads, k_dim, v_dim; double beta; } osh_delta_rule_attr;
/* lower_bound: lower bound of the logarithm of the decay. 0: no bound, and the gate is a softplus.
 * f32: true if A_log and dt_bias are f32, whatever the dtype of x is. */
typedef struct { int64_t heads, dim; double lower_bound; bool f32; } osh_channel_delta_attr;
typedef struct { int64_t heads, dim; double decay; } osh_lightning_attr;
typedef struct { int64_t heads, head_dim, state, groups; double dt_min, dt_max; } osh_ssm_scan_attr;
typedef struct { int64_t state; } osh_mamba_scan_attr;
/* before: true if the gate is applied before the norm.
 * whole: true if w has an element for each element of the row.
 * sigmoid: true if the gate is a sigmoid, false if it is silu. */
typedef struct {
    double eps;
    int64_t head_dim;
    bool before, whole, sigmoid;
} osh_gated_norm_attr;

/* Declares the kernel of delta_rule, its gradient, and the sizes of its scratch and state, as in
 * osh_op and osh_op_grads (op.h). */
osh_status osh_delta_rule_cpu(osh_ctx *cx, const osh_op_args *a); // in cpu/delta_rule.c
size_t osh_delta_rule_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                              int64_t n_tokens, int n_threads);
size_t osh_delta_rule_state(const void *attr, const int64_t *in_width, int64_t n_tokens,
                            osh_dtype dt);
osh_status osh_delta_rule_grad_cpu(osh_ctx *cx, const osh_grad_args *a); // in cpu/delta_rule_grad.c
size_t osh_delta_rule_grad_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                   int64_t n_tokens, int n_threads);
/* Computes the gates of one head for one token. gates[0]: the decay of the head's state. gates[1]:
 * beta * sigmoid(b), the factor by which the state is corrected. `in`: `a` and `b` of the token,
 * A_log and dt_bias of the head. dt: dtype of x. */
void osh_delta_gates(float gates[2], const float in[4], const osh_delta_rule_attr *at,
                     osh_dtype dt);
/* Computes `to`, the gradients of the four inputs `in` (a, b, A_log and dt_bias), from `d`, the
 * gradients of the two gates. */
void osh_delta_gates_back(double to[4], const float gates[2], const double d[2], const float in[4],
                          const osh_delta_rule_attr *at);
/* Computes the backward pass of `f(x) = by * x / sqrt(x x + 1e-6)`, which scales x [n] to the
 * length `by`. Adds the gradient of x to dx. d: the gradient of f(x). Does nothing if dx is
 * NULL. */
void osh_delta_unit_back(float *dx, const float *x, const float *d, int64_t n, double by);

/* Declares the kernel of ssm_scan, its gradient, and the sizes of its scratch and state, as in
 * osh_op and osh_op_grads (op.h). */
osh_status osh_ssm_scan_cpu(osh_ctx *cx, const osh_op_args *a); // in cpu/ssm_scan.c
size_t osh_ssm_scan_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                            int64_t n_tokens, int n_threads);
size_t osh_ssm_scan_state(const void *attr, const int64_t *in_width, int64_t n_tokens,
                          osh_dtype dt);
osh_status osh_ssm_scan_grad_cpu(osh_ctx *cx, const osh_grad_args *a); // in cpu/ssm_scan_grad.c
size_t osh_ssm_scan_grad_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                 int64_t n_tokens, int n_threads);
/* Computes two numbers of one head for one token. *decay: the factor of the head's state. *step:
 * the factor d of the token's x (the step size). weights: A_log, D and dt_bias of the head. */
void osh_ssm_gates(float *decay, float *step, const osh_ssm_scan_attr *at, float dt,
                   const float weights[3], osh_dtype dtype);
/* Computes two gradients from `d`, the gradients of the gates (decay, step). to[0]: the gradient of
 * dt, and of dt_bias. to[1]: the gradient of A_log. */
void osh_ssm_gates_back(double to[2], const osh_ssm_scan_attr *at, const float gates[2],
                        const double d[2], float dt, const float weights[3]);
#endif
