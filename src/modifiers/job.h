/* job.h - a job: one Linear that a modifier quantizes or prunes. A job holds the weight, the
 * statistics of its input, and the results. */
#ifndef OSH_JOB_H
#define OSH_JOB_H
#include "quant/arith.h"
#include "solver/gptq_scales.h"
#include "tensor/device.h"

enum { // statistics of a value, as bits that can be combined
    OSH_STAT_HESSIAN = 1, // X^T X, f32 [I, I], lower triangle
    OSH_STAT_RANGE = 2,   // ranges for the observer of static inputs
    OSH_STAT_SHIFT = 4,   // (X0 - X)^T X, f32 [I, I]; X0 is the value in the original model
    /* Sum of X^2 per channel, f64 [I], for observers that weight errors by channel. */
    OSH_STAT_SQUARES = 8,
    /* Ranges of the keys and values of the attention whose output the Linear (o_proj) reads, or
     * ranges of the Linear's output. */
    OSH_STAT_CACHE = 16,
    /* Sum over all tokens of the token's largest X^2; for a survey (survey.h). */
    OSH_STAT_PEAKS = 64,
    /* Used instead of HESSIAN and SHIFT: stored inputs of a block of the model (such as a decoder
     * layer), and stored outputs of the block in the original model (schedule/blocks.h). */
    OSH_STAT_BLOCK = 32
};

enum { OSH_LOSSES = 9 };
/* Losses after each step of a solve; `step` of an osh_quantizer returns the name of each step. */
typedef struct osh_losses {
    int n;
    double of[OSH_LOSSES];
    /* Loss with all weights 0. After a survey, loss with weights of OSH_SURVEY_BITS bits. */
    double all;
} osh_losses;

typedef struct osh_linear_job osh_linear_job;
struct osh_linear_job { // one Linear to quantize
    const char *name;           // view: name of the module
    const osh_q_scheme *scheme; // view
    osh_tensor *w;              // view: the weight [O, I] in its stored dtype, in host memory
    /* Copy of w on the device that has the Hessian in its memory; NULL: the Hessian is in host
     * memory, or there is no Hessian. */
    osh_tensor *device_w;       // view
    /* View: OSH_STAT_SHIFT of the input, in the same memory as the Hessian; may be overwritten.
     * NULL: the shift is 0, or no modifier needs it. */
    osh_tensor *shift;          // view
    /* Temporary, in the same memory as the Hessian: F32 [O, I] weight that a solve approximates;
     * NULL: w. */
    osh_tensor *target;         // own
    bool keep_w;                // true: w must not change, even if the modifier propagates
    /* True: zeros of w must remain 0. In this case w must become the dequantized weight, even if
     * the modifier does not propagate. */
    bool pruned;
    double sparsity; // for a modifier that prunes: fraction of the weights that becomes 0
    /* Increase of the model's loss per squared error of each output; NULL: 1. */
    const double *care;         // view [O]
    /* Increase of the model's loss per squared error of each element of the input, summed over all
     * Linears that read the input; NULL: unknown. */
    const double *care_in;      // view [I]
    double peaks;               // OSH_STAT_PEAKS of the input; 0: unknown
    /* Scales and zero points of keys and values, one after the other, in the form in which the
     * output stores them. NULL: this Linear has no such scales. */
    void *cache;                // own
    void *bias; // own, result: the learned bias in its stored dtype; NULL: no bias was learned
    /* Memory for codes, [O, I] bytes, which the caller of a modifier with by_rows passes. NULL: the
     * modifier allocates memory for codes. */
    void *room;                 // view
    /* Result, view: |w - dq|^2 and |w|^2 of each row, [O, 2], where dq is the dequantized weight;
     * NULL: not stored. */
    double *sums;
    int64_t n_tokens;           // number of tokens of the statistics
    /* Read only in the first job of a call. True: there is memory for osh_jobs_at_once jobs at the
     * same time. */
    bool apart;
    bool pack;                  // true: codes may be packed, because the output is pack-quantized
    bool packed;                // result: codes are packed
    /* Result, own: codes, [O, I] bytes, or if `packed` is true the bytes of the first output
     * tensor; NULL: the codes are in `room`. */
    void *codes;
    osh_qparams params;         // own, result
    double nmse;                // result: |w - dq|^2 / |w|^2, dq: dequantized weight
    /* Sum of the squares of the weights that pruning set to 0, divided by |w|^2 before pruning. 0:
     * pruning set no weight to 0, or pruning also changed other weights. */
    double removed;
    /* Result: tr(dW H dW^T), where H is damped and dW is the dequantized weight minus the target. <
     * 0: there is no Hessian. */
    double objective;
    /* Result: the objective that rounding the target to nearest would have, with the scales before
     * any search. If there are more than 255 rows, `nearest` is estimated from some of the rows
     * (solver/gptq_solve.h). < 0: unknown. */
    double nearest;
    osh_losses losses; // result: objective after each step; empty if the solve has only one step
    /* Result, static text: the method that was used instead of the modifier's method, and the
     * reason; NULL: the modifier's method was used. */
    const char *fallback;
    /* Called when the results of the job are complete. The callback may take ownership of the
     * results, but not of w. Thus the results of many jobs need not be in memory at the same time.
     * NULL: the job keeps the results. */
    osh_status (*done)(osh_ctx *cx, osh_linear_job *j);
    void *user;                 // view: passed to `done`
};
osh_status osh_linear_job_done(osh_ctx *cx, osh_linear_job *j);
/* True if the n jobs of `a` and the n jobs of `b` have the same shapes, dtypes and schemes in the
 * same order. The solves of `a` and of `b` then need the same memory. */
bool osh_jobs_are_alike(const osh_linear_job *a, const osh_linear_job *b, int n);
typedef struct osh_job_group { // the jobs of one input; all pointers are views
    osh_linear_job *jobs;      // [n]
    int n;
    osh_tensor *h;
} osh_job_group;
void osh_linear_job_deinit(osh_ctx *cx, osh_linear_job *j);

/* Largest number of groups in a call of compress_groups. This number of groups uses all
 * multiprocessors of a GPU, and the results still need little memory. */
enum { OSH_GROUPS_AT_ONCE = 32 };
/* Sets j->nmse to |w - decode(codes)|^2 / |w|^2. If `store` is true, overwrites w and device_w with
 * decode(codes). Works row by row, without a second copy of the weight. */
osh_status osh_job_finish(osh_ctx *cx, osh_linear_job *j, bool store);
/* Returns 1 if all threads solve one job together. Small Linears, such as those of experts, have
 * too few chunks for all threads, so each is solved on one thread. For small Linears the function
 * returns the largest number of jobs that are in memory at the same time. This number exceeds the
 * number of threads, because results are used in the order of the jobs, and a finished job waits
 * for earlier jobs. With 128 experts and 2 threads, at most 8 jobs are in memory. */
int osh_jobs_at_once(const osh_linear_job *jobs, int n, int n_threads);
/* True if there are enough small Linears to solve each on one thread. all, largest: number of
 * weights of all Linears together, and of the largest Linear. */
bool osh_jobs_are_many(int64_t all, int64_t largest, int n_threads);
static inline int osh_jobs_waiting(int n_threads) { return 2 * n_threads + 4; }
// returns the bytes of scratch of osh_job_finish
size_t osh_job_finish_bytes(const osh_linear_job *j, int n_threads);
/* Returns a rule with the grid of the job's codes and the scales that the job's format can store.
 * Dequantized weights are rounded to the dtype of the scales, or to F32 if the scales are FP8.
 * Requires j->params. */
osh_scale_rule osh_job_scale_rule(const osh_linear_job *j);
size_t osh_job_codes_bytes(const osh_linear_job *j, bool packed);
// returns the bytes of codes and params
size_t osh_job_result_bytes(const osh_linear_job *j);
size_t osh_job_scales_bytes(const osh_linear_job *j);                // returns the bytes of params
/* Returns the bytes of scratch of osh_q_weight_params, without the scratch of the observer's search
 * (osh_job_search_bytes). */
size_t osh_job_params_bytes(const osh_linear_job *j);
/* Returns the OSH_STAT_* bits that the observers of s need. */
unsigned osh_scheme_wants(const osh_q_scheme *s);
/* Returns the bytes of scratch of the observer's search of ranges. */
size_t osh_job_search_bytes(const osh_linear_job *j);
#endif
