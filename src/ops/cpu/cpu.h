/* cpu.h - declares the fast CPU kernels of the ops. For each op, the file declares the kernel, and
 * a function that returns the bytes of scratch that the kernel needs. */
#ifndef OSH_OPS_CPU_H
#define OSH_OPS_CPU_H
#include "ops/op.h"

osh_status osh_rms_norm_cpu(osh_ctx *cx, const osh_op_args *a);
osh_status osh_linear_cpu(osh_ctx *cx, const osh_op_args *a);
osh_status osh_rope_cpu(osh_ctx *cx, const osh_op_args *a);
osh_status osh_attention_cpu(osh_ctx *cx, const osh_op_args *a);
osh_status osh_glu_cpu(osh_ctx *cx, const osh_op_args *a);
osh_status osh_add_cpu(osh_ctx *cx, const osh_op_args *a);
osh_status osh_layer_norm_cpu(osh_ctx *cx, const osh_op_args *a);
osh_status osh_scale_cpu(osh_ctx *cx, const osh_op_args *a);
osh_status osh_act_cpu(osh_ctx *cx, const osh_op_args *a);
osh_status osh_hessian_accum_cpu(osh_ctx *cx, const osh_op_args *a);
osh_status osh_shift_accum_cpu(osh_ctx *cx, const osh_op_args *a);
osh_status osh_nll_cpu(osh_ctx *cx, const osh_op_args *a);
osh_status osh_kl_cpu(osh_ctx *cx, const osh_op_args *a);
osh_status osh_gptq_factor_cpu(osh_ctx *cx, const osh_op_args *a);
osh_status osh_gptq_shift_cpu(osh_ctx *cx, const osh_op_args *a);
osh_status osh_gptq_target_cpu(osh_ctx *cx, const osh_op_args *a);

/* CPU kernels for gradients. The gradients of all other ops are computed by reference kernels. */
osh_status osh_linear_grad_cpu(osh_ctx *cx, const osh_grad_args *a);
osh_status osh_add_grad_cpu(osh_ctx *cx, const osh_grad_args *a);
osh_status osh_glu_grad_cpu(osh_ctx *cx, const osh_grad_args *a);
osh_status osh_rms_norm_grad_cpu(osh_ctx *cx, const osh_grad_args *a);
osh_status osh_rope_grad_cpu(osh_ctx *cx, const osh_grad_args *a);
osh_status osh_attention_grad_cpu(osh_ctx *cx, const osh_grad_args *a);
osh_status osh_kl_grad_cpu(osh_ctx *cx, const osh_grad_args *a);
osh_status osh_nll_grad_cpu(osh_ctx *cx, const osh_grad_args *a);

/* These functions return an upper bound of the scratch of a kernel in bytes. They have the
 * parameters of osh_op.scratch. A comment says where in_width and out_width have another
 * meaning. */
size_t osh_linear_grad_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                               int64_t n_tokens, int n_threads);
size_t osh_attention_grad_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                  int64_t n_tokens, int n_threads);
/* in_width is {D, not used, D2}. D: hidden_size of the model. D2: hidden_size of the reference
 * model. out_width is V, the vocabulary size. */
size_t osh_kl_grad_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                           int64_t n_tokens, int n_threads);
size_t osh_nll_grad_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                            int64_t n_tokens, int n_threads);
size_t osh_rms_norm_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                            int64_t n_tokens, int n_threads);
size_t osh_layer_norm_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                              int64_t n_tokens, int n_threads);
size_t osh_linear_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                          int64_t n_tokens, int n_threads);
size_t osh_rope_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                        int64_t n_tokens, int n_threads);
size_t osh_attention_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                             int64_t n_tokens, int n_threads);
/* Returns 0, because all ops of elementwise.c use only the stack. */
size_t osh_elementwise_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                               int64_t n_tokens, int n_threads);
size_t osh_hessian_accum_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                 int64_t n_tokens, int n_threads);
size_t osh_shift_accum_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                               int64_t n_tokens, int n_threads);
/* The result includes the allocator's overhead. */
size_t osh_gptq_shift_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                              int64_t n_tokens, int n_threads);
/* The result includes the allocator's overhead. n_tokens: number of rows of w. */
size_t osh_gptq_target_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                               int64_t n_tokens, int n_threads);
/* out_width is V, the vocabulary size. */
size_t osh_nll_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                       int64_t n_tokens, int n_threads);
/* in_width is {D, not used, D2}. D: hidden_size of the model. D2: hidden_size of the reference
 * model. out_width is V, the vocabulary size. */
size_t osh_kl_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                      int64_t n_tokens, int n_threads);
#endif
