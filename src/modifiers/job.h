/* job.h - declares osh_linear_job: one Linear that a modifier quantizes or prunes, with the weight,
 * the statistics of its input, and the results. */
#ifndef OSH_JOB_H
#define OSH_JOB_H
#include "quant/arith.h"
#include "solver/gptq_scales.h"
#include "tensor/device.h"

enum { // statistics of a value X, as bits that can be combined
    OSH_STAT_HESSIAN = 1, // X^T X, f32 [I, I], lower triangle
    OSH_STAT_RANGE = 2,   // ranges for the observer of static inputs
    OSH_STAT_SHIFT = 4,   // (X0 - X)^T X, f32 [I, I]; X0 is the value in the original model
    /* Sum of X^2 for each channel, f64 [I], for observers that weight errors by channel. */
    OSH_STAT_SQUARES = 8,
    /* For a Linear that reads the output of attention (o_proj): ranges of the keys and values. For
     * a Linear whose outputs are quantized: range of the outputs. */
    OSH_STAT_CACHE = 16,
    /* Sum over all tokens, for a survey (survey.h). Each token adds its largest X^2. */
    OSH_STAT_PEAKS = 64,
    /* A Linear that is learned by block has this bit instead of HESSIAN and SHIFT. The run then
     * stores the inputs of the Linear's block (such as a decoder layer), and the outputs of this
     * block in the original model (schedule/blocks.h). */
    OSH_STAT_BLOCK = 32
};

enum { OSH_LOSSES = 9 };
/* Losses after each step of a solve. The function `step` of osh_quantizer returns the name of a
 * step. */
typedef struct osh_losses {
    int n;
    double of[OSH_LOSSES];
    /* Loss if all weights were 0. After a survey: loss if all weights were rounded to
     * OSH_SURVEY_BITS bits. */
    double all;
} osh_losses;

typedef struct osh_linear_job osh_linear_job;
struct osh_linear_job { // one Linear to quantize or prune
    const char *name;           // view: name of the module
    const osh_q_scheme *scheme; // view
    osh_tensor *w;              // view: the weight [O, I] in its stored dtype, in host memory
    /* View: copy of w on the device that has the Hessian in its memory. NULL: there is no Hessian
     * on a device. */
    osh_tensor *device_w;       // view
    /* View: statistic OSH_STAT_SHIFT of the input, in the same memory as the Hessian. May be
     * overwritten. NULL: the statistic is 0, or no modifier needs it. */
    osh_tensor *shift;          // view
    /* Weight [O, I] in F32, which the solve approximates. Own, only during a solve. It is in the
     * same memory as the Hessian. NULL: the solve approximates w. */
    osh_tensor *target;         // own
    /* True: the modifier must not change w, even if osh_solver.propagates is true. */
    bool keep_w;
    /* True: zeros of w must remain 0, and w must become the dequantized weight even if
     * osh_solver.propagates is false. */
    bool pruned;
    double sparsity; // for a modifier that prunes: fraction of the weights that become 0
    /* For each output of the Linear: increase of the model's loss per squared error of the output.
     * NULL: 1. */
    const double *care;         // view [O]
    /* For each channel of the input: increase of the model's loss per squared error of the channel.
     * All Linears that read the input contribute to the increase. NULL: unknown. */
    const double *care_in;      // view [I]
    double peaks;               // statistic OSH_STAT_PEAKS of the input; 0: unknown
    /* Scales and zero points of keys and values, one after the other, in their stored form. NULL:
     * the Linear has none. */
    void *cache;                // own
    /* Own, result: the learned bias of the Linear in its stored dtype. NULL: no bias was
     * learned. */
    void *bias;
    /* Memory for codes, [O, I] bytes. The caller gives it to a modifier whose osh_solver.by_rows is
     * true. NULL: the modifier allocates memory for codes. */
    void *room;                 // view
    /* Result, view [O, 2]: |w - dq|^2 and |w|^2 of each row; dq: dequantized weight. NULL: not
     * stored. */
    double *sums;
    int64_t n_tokens;           // number of tokens from which the statistics are computed
    /* True: there is enough memory for osh_jobs_at_once jobs at the same time. A solver reads this
     * member only in the first job of a call. */
    bool apart;
    bool pack; // true: the modifier may pack the codes, because the output is pack-quantized
    bool packed;                // result: true if the codes are packed
    /* Result, own: codes, [O, I] bytes. If `packed` is true: the bytes of the first output tensor.
     * NULL: the codes are in `room`. */
    void *codes;
    osh_qparams params;         // own, result
    double nmse;                // result: |w - dq|^2 / |w|^2; dq: dequantized weight
    /* Result: the sum of the squares of the weights that pruning made 0, divided by |w|^2 before
     * pruning. 0: pruning made no weight 0, or it also changed other weights. */
    double removed;
    /* Result: tr(dW H dW^T), with the damped H and dW = dequantized weight - target. Negative:
     * there is no Hessian. */
    double objective;
    /* Result: the value that the objective would have if the target were rounded to nearest with
     * the scales that it has before any search of scales. If the weight has 128 rows or more, this
     * value is estimated from some of the rows (solver/gptq_solve.h). Negative: unknown. */
    double nearest;
    /* Result: the objective after each step. Empty if the solve has only one step. */
    osh_losses losses;
    /* Result, static text: the method that was used instead of the modifier's method, and the
     * reason. NULL: the method of the modifier was used. */
    const char *fallback;
    /* Is called when the results of the job are complete. The function may take ownership of the
     * results, but not of w. So the results of many jobs need not be in memory at the same time.
     * NULL: the job keeps the results. */
    osh_status (*done)(osh_ctx *cx, osh_linear_job *j);
    void *user;                 // view: data for the function `done`
};
/* Calls j->done, if there is such a function, and returns its status. */
osh_status osh_linear_job_done(osh_ctx *cx, osh_linear_job *j);
/* True if a[k] and b[k] have the same shapes, dtypes and schemes for all k < n. Solving the jobs of
 * `a` then needs as much memory as solving those of `b`. */
bool osh_jobs_are_alike(const osh_linear_job *a, const osh_linear_job *b, int n);
typedef struct osh_job_group { // the jobs of one input, and its Hessian h; all pointers are views
    osh_linear_job *jobs;      // [n]
    int n;
    osh_tensor *h;
} osh_job_group;
void osh_linear_job_deinit(osh_ctx *cx, osh_linear_job *j);

/* Largest number of groups in one call of compress_groups. This number is enough for all
 * multiprocessors of a GPU, and the results still need little memory. */
enum { OSH_GROUPS_AT_ONCE = 32 };
/* Sets j->nmse to |w - dq|^2 / |w|^2, where dq is the weight decoded from the codes. If `store` is
 * true, overwrites w and device_w with dq. Works row by row, so it needs no second copy of the
 * weight. */
osh_status osh_job_finish(osh_ctx *cx, osh_linear_job *j, bool store);
/* Returns the number of jobs that are in memory at the same time: 1 if all threads solve one job
 * together.
 * Small Linears, such as those of experts, have too few chunks for all threads. So each small
 * Linear is solved on one thread. The returned number exceeds the number of threads, because
 * finished jobs are taken in order: a finished job stays in memory until all earlier jobs are
 * finished. With 128 experts and 2 threads, at most 8 jobs are in memory. */
int osh_jobs_at_once(const osh_linear_job *jobs, int n, int n_threads);
/* True if there are enough Linears, and all are small enough, to solve each on one thread. all:
 * number of weights of all Linears together. largest: number of weights of the largest Linear. */
bool osh_jobs_are_many(int64_t all, int64_t largest, int n_threads);
static inline int osh_jobs_waiting(int n_threads) { return 2 * n_threads + 4; }
/* Returns the number of bytes of scratch of osh_job_finish. */
size_t osh_job_finish_bytes(const osh_linear_job *j, int n_threads);
/* Returns the grid of the job's codes, and how the job's format stores scales. The member `dtype`
 * of the result is the dtype to which dequantized weights are rounded: the dtype of the scales, or
 * F32 if the scales are FP8. j->params must be set. */
osh_scale_rule osh_job_scale_rule(const osh_linear_job *j);
/* Returns the number of bytes of the codes: one per code, or packed words (quant/format.h) if
 * `packed` is true. */
size_t osh_job_codes_bytes(const osh_linear_job *j, bool packed);
/* Returns the number of bytes of the codes and the params of a job. */
size_t osh_job_result_bytes(const osh_linear_job *j);
size_t osh_job_scales_bytes(const osh_linear_job *j); // returns the number of bytes of j->params
/* Returns how many bytes of scratch osh_q_weight_params needs for the job. Does not include the
 * bytes that osh_job_search_bytes counts. */
size_t osh_job_params_bytes(const osh_linear_job *j);
/* Returns the statistics that the observers of s need, as OSH_STAT_* bits. */
unsigned osh_scheme_wants(const osh_q_scheme *s);
/* Returns the number of bytes of scratch that the observer of the job needs to search ranges; 0 if
 * it does not search. */
size_t osh_job_search_bytes(const osh_linear_job *j);
#endif
