/* gptq_needs.c - computes the bytes that a solve of GPTQModifier needs in host memory and in a
 * device's arena. gptq.c runs the solve. */
#include "modifiers/gptq.h"
#include "modifiers/target.h"
#include "solver/columns.h"

typedef osh_gptq gptq;
typedef osh_gptq_job solve;

static size_t needs_larger(size_t a, size_t b) { return a > b ? a : b; }

/* Returns the number of host bytes of the members perm, dead and diag of osh_gptq_factor. */
static size_t needs_of_order(int64_t I)
{
    return osh_mem_gross((size_t)I * 4) + osh_mem_gross((size_t)I) + osh_mem_gross((size_t)I * 4);
}

/* Returns the number of bytes of host scratch for the computation of a factor. `device`: true if
 * the Hessian is on a device. */
static size_t needs_of_factor(int64_t I, int n_threads, bool device)
{
    size_t ranks = osh_mem_gross((size_t)I * sizeof(osh_gptq_ranked)),
           damped = osh_mem_gross((size_t)I * 4);
    size_t work = device ? 0
                         : needs_larger(osh_gptq_permute_bytes(I, n_threads),
                                        osh_gptq_factor_bytes(I, n_threads));
    return damped + needs_larger(ranks, work);
}

size_t osh_gptq_costs_bytes(int64_t I, int n_threads)
{
    size_t column = osh_mem_gross((size_t)I * 4);
    // three arrays [I]: the damped diagonal, the diagonal and the cost
    return needs_of_order(I) + needs_larger(needs_of_factor(I, n_threads, false), 3 * column);
}

/* Returns the sizes of all weights that the call *p on a device solves (osh_gptq_group). */
static osh_gptq_group group_of_piece(const gptq *g, const osh_linear_job *jobs,
                                     const osh_gptq_piece *p)
{
    osh_gptq_group all = {.I = jobs[p->lead].w->shape[1], .block_size = g->block_size};
    for (int k = p->from; k < p->end; k++)
        if (osh_gptq_together(&jobs[p->lead], &jobs[k]))
            osh_gptq_group_add(&all, jobs[k].w->shape[0],
                               osh_gptq_scale_columns(&jobs[k].scheme->weights, all.I));
    return all;
}

static bool has_target(const gptq *g, const osh_linear_job *j)
{
    return osh_gptq_is_original(g) && j->shift;
}

/* Returns the number of device bytes for all targets W + W S of a call. Sets *scratch to the number
 * of device bytes that the computation of the largest target needs as scratch. */
static size_t needs_of_targets(const gptq *g, const osh_linear_job *jobs, const osh_gptq_piece *p,
                               size_t *scratch)
{
    size_t sum = 0;
    *scratch = 0;
    for (int k = p->from; k < p->end; k++) {
        if (!has_target(g, &jobs[k]) || !osh_gptq_together(&jobs[p->lead], &jobs[k])) continue;
        sum += osh_target_bytes(&jobs[k], true);
        *scratch = needs_larger(*scratch, osh_target_scratch(&jobs[k], 1, true));
    }
    return sum;
}

/* Returns the sizes (osh_gptq_group) for a call that solves only job j. */
static osh_gptq_group group_of_one(const gptq *g, const osh_linear_job *j)
{
    osh_gptq_group one = {.I = j->w->shape[1], .block_size = g->block_size};
    osh_gptq_group_add(&one, j->w->shape[0], osh_gptq_scale_columns(&j->scheme->weights, one.I));
    return one;
}

/* Returns the number of bytes that `compress` uses in the arena of a device if it solves the jobs
 * one by one. `room`: number of free bytes of the arena. */
static size_t needs_one_by_one(const gptq *g, const osh_linear_job *jobs, int n, size_t room)
{
    size_t peak = 0;
    for (int k = 0; k < n; k++) {
        if (!jobs[k].scheme->weights.present) continue;
        osh_gptq_group one = group_of_one(g, &jobs[k]);
        bool shift = has_target(g, &jobs[k]);
        size_t beside, target = shift ? osh_target_bytes(&jobs[k], true) : 0;
        osh_gptq_quality_bytes(g, &jobs[k], 1, &beside);
        if (shift) beside = needs_larger(beside, osh_target_scratch(&jobs[k], 1, true));
        size_t solving = osh_gptq_solve_device_bytes(&one, room > target ? room - target : 0);
        peak = needs_larger(peak, target + needs_larger(beside, solving));
    }
    return peak;
}

/* Returns the number of bytes that `compress` uses in the arena of a device. `room`: number of free
 * bytes of the arena. */
static size_t needs_of_device(const gptq *g, const osh_linear_job *jobs, int n, size_t room)
{
    int64_t I = n ? jobs[0].w->shape[1] : 0;
    bool shift = n && has_target(g, jobs);
    size_t factor_kept = 0;
    size_t peak = needs_larger(osh_gptq_permute_device_bytes(I), osh_gptq_factor_device_bytes(I)),
           copy = 0;
    int count[2];
    if (shift) peak = needs_larger(peak, osh_target_shift_bytes(I, 1, true));
    osh_gptq_count_orderings(count, jobs, n);
    bool both = count[0] && count[1];
    if (both) copy = osh_arena_gross((size_t)(I * I) * sizeof(float)) * (1 + shift);
    osh_gptq_kept_bytes(g, I, &factor_kept);
    copy += factor_kept;
    if (!osh_gptq_is_plain(g))
        return copy +
               needs_larger(peak, needs_one_by_one(g, jobs, n, room > copy ? room - copy : 0));
    for (int k = 0; k < n; k++) {
        if (!jobs[k].scheme->weights.present || !osh_gptq_is_first(jobs, k)) continue;
        for (int from = k, end; from < n; from = end) {
            end = osh_gptq_piece_end(jobs, n, k, from);
            osh_gptq_piece piece = {k, from, end};
            osh_gptq_group all = group_of_piece(g, jobs, &piece);
            size_t scratch, there = needs_of_targets(g, jobs, &piece, &scratch);
            size_t left = room > copy + there ? room - copy - there : 0;
            peak = needs_larger(
                peak, there + needs_larger(scratch, osh_gptq_solve_device_bytes(&all, left)));
        }
    }
    return peak + copy;
}

/* Returns the number of host bytes that the solve of one weight needs, without the bytes of its
 * results. If `device` is true, all jobs of a call need their bytes at the same time, so the caller
 * must add up the numbers of all jobs. */
static size_t needs_of_job(const gptq *g, const osh_linear_job *j, int n_threads, bool device)
{
    int64_t O = j->w->shape[0], I = j->w->shape[1];
    size_t run = osh_job_params_bytes(j); // scales and zero points in f32
    run += osh_mem_gross((size_t)I * 4) + osh_mem_gross((size_t)O * sizeof(double));
    int64_t n_cols = osh_gptq_scale_columns(&j->scheme->weights, I);
    if (!device) run += osh_gptq_solve_bytes(O, I, n_cols, g->block_size, n_threads);
    size_t arena;
    run = needs_larger(run, osh_gptq_quality_bytes(g, j, n_threads, device ? &arena : NULL));
    if (!device && has_target(g, j))
        run =
            osh_target_bytes(j, false) + needs_larger(run, osh_target_scratch(j, n_threads, false));
    return run;
}

/* Returns the number of host bytes that the computation of a job's scales needs. Scales are
 * computed before memory for the job's codes is allocated. */
static size_t needs_of_params(const gptq *g, const osh_linear_job *j)
{
    return osh_job_scales_bytes(j) + osh_job_params_bytes(j) + osh_job_search_bytes(j) +
           (has_target(g, j) ? osh_target_bytes(j, false) : 0);
}

static size_t needs_of_parts(size_t n)
{
    return osh_mem_gross(n * sizeof(solve)) + osh_mem_gross(n * sizeof(osh_gptq_solve_args)) +
           osh_mem_gross(n * sizeof(osh_gptq_part));
}

/* Returns the number of host bytes of a call on a device (compress_together). *kept: number of
 * bytes of the results that earlier calls have left in memory. If the results of this call also
 * stay in memory, adds their number of bytes to *kept. */
static size_t needs_of_call(const gptq *g, const osh_linear_job *jobs, const osh_gptq_piece *p,
                            int n_threads, size_t *kept)
{
    osh_gptq_group all = group_of_piece(g, jobs, p);
    size_t n = (size_t)(p->end - p->from), finish = 0, results = 0, copy = 0;
    size_t run = needs_of_parts(n);
    for (int k = p->from; k < p->end; k++) {
        if (!osh_gptq_together(&jobs[p->lead], &jobs[k])) continue;
        results += osh_job_result_bytes(&jobs[k]);
        // needs_of_params is not added, because computing scales needs less memory than the solve
        run += needs_of_job(g, &jobs[k], n_threads, true);
        finish = needs_larger(finish, osh_job_finish_bytes(&jobs[k], n_threads));
        copy = needs_larger(copy, osh_job_search_bytes(&jobs[k]) +
                                (has_target(g, &jobs[k]) ? osh_target_bytes(&jobs[k], false) : 0));
    }
    size_t peak =
        *kept + results +
        needs_larger(run + needs_larger(copy, osh_gptq_solve_device_host_bytes(&all)), finish);
    if (!jobs[p->lead].done) *kept += results;
    return peak;
}

/* The next two functions are for a job that one thread solves. apart_result returns the number of
 * bytes of the result, and apart_run the number of all other bytes. */
static size_t apart_result(const osh_linear_job *j)
{
    return j->scheme->weights.present ? osh_job_result_bytes(j) : 0;
}

static size_t apart_run(const gptq *g, const osh_linear_job *j)
{
    if (!j->scheme->weights.present) return 0;
    // the bytes of the scales are subtracted, because apart_result counts them
    size_t found = needs_of_params(g, j) - osh_job_scales_bytes(j);
    return needs_larger(found,
                        needs_larger(needs_of_job(g, j, 1, false), osh_job_finish_bytes(j, 1)));
}

/* Returns the number of host bytes of a solve in which each job runs on one thread. At most at_once
 * adjacent jobs are in memory at the same time, and at most n_threads of them run. The result is
 * the maximum over all sequences of at_once adjacent jobs. If the jobs have no function `done`, all
 * results stay in memory.
 * kept: number of bytes that are in use during all jobs. */
static size_t needs_apart(const gptq *g, const osh_linear_job *jobs, int n, int at_once,
                          int n_threads, size_t kept)
{
    size_t peak = 0, results = 0, run = 0, largest = 0;
    for (int k = 0; k < n; k++) largest = needs_larger(largest, apart_run(g, &jobs[k]));
    for (int k = 0; k < n; k++) {
        results += apart_result(&jobs[k]), run += apart_run(g, &jobs[k]);
        if (k >= at_once) run -= apart_run(g, &jobs[k - at_once]);
        if (k >= at_once && jobs->done) results -= apart_result(&jobs[k - at_once]);
        size_t most = (size_t)n_threads * largest;
        peak = needs_larger(peak, kept + results + (run < most ? run : most));
    }
    return peak + osh_apart_bytes(at_once);
}

size_t osh_gptq_needs(const osh_modifier *m, const osh_linear_job *jobs, int n, int n_threads,
                      size_t *device)
{
    const gptq *g = m->args;
    int64_t I = n ? jobs[0].w->shape[1] : 0;
    if (device && n && jobs->pruned) { // the host solves with a copy of the Hessian
        *device = 0;
        return osh_tensor_gross((size_t)(I * I) * sizeof(float)) +
               osh_gptq_needs(m, jobs, n, n_threads, NULL);
    }
    size_t arena, order = needs_of_order(I) + osh_gptq_kept_bytes(g, I, device ? &arena : NULL);
    size_t kept = order, peak = order + needs_of_factor(I, n_threads, device);
    int count[2];
    osh_gptq_count_orderings(count, jobs, n);
    if (count[0] && count[1] && !device)
        kept += osh_mem_gross((size_t)(I * I) * sizeof(float)) * (1 + has_target(g, jobs)),
            peak += kept;
    if (!device && n && has_target(g, jobs))
        peak = needs_larger(peak, kept + osh_target_shift_bytes(I, n_threads, false));
    int at_once = device ? 1 : osh_jobs_at_once(jobs, n, n_threads);
    if (at_once > 1) return needs_larger(peak, needs_apart(g, jobs, n, at_once, n_threads, kept));
    for (int k = 0; k < n; k++) {
        const osh_linear_job *j = &jobs[k];
        bool together_there = device && osh_gptq_is_plain(g);
        if (!j->scheme->weights.present || (together_there && !osh_gptq_is_first(jobs, k)))
            continue;
        for (int from = k, end; together_there && from < n; from = end) {
            end = osh_gptq_piece_end(jobs, n, k, from);
            peak = needs_larger(
                peak, needs_of_call(g, jobs, &(osh_gptq_piece){k, from, end}, n_threads, &kept));
        }
        if (together_there) continue;
        size_t result = osh_job_result_bytes(j), run = needs_of_job(g, j, n_threads, device);
        osh_gptq_group one = group_of_one(g, j);
        if (device)
            run += needs_larger(osh_gptq_solve_device_host_bytes(&one), osh_job_search_bytes(j)) +
                   (has_target(g, j) ? osh_target_bytes(j, false) : 0);
        else
            peak = needs_larger(peak, kept + needs_of_params(g, j));
        peak = needs_larger(peak,
                            kept + result + needs_larger(run, osh_job_finish_bytes(j, n_threads)));
        if (!j->done) kept += result;
    }
    if (device) *device = needs_of_device(g, jobs, n, *device);
    return peak;
}

/* Returns the number of host bytes of osh_gptq_gathered for n groups. These bytes are in use until
 * all groups are solved. */
static size_t needs_of_gathered(int64_t I, size_t n)
{
    size_t list = osh_mem_gross(n * (size_t)I * 4);
    return osh_mem_gross(n * sizeof(osh_gptq_factor)) + 2 * list +
           osh_mem_gross(n * sizeof(float *)) + 2 * osh_mem_gross(n * sizeof(int)) +
           n * needs_of_order(I);
}

static osh_gptq_group group_of_some(const gptq *g, const osh_job_group *like, int n)
{
    int64_t I = like->jobs->w->shape[1];
    osh_gptq_group all = {.I = I, .block_size = g->block_size, .n_inputs = n};
    for (int k = 0; k < n * like->n; k++) {
        const osh_linear_job *j = &like->jobs[k % like->n];
        osh_gptq_group_add(&all, j->w->shape[0], osh_gptq_scale_columns(&j->scheme->weights, I));
    }
    return all;
}

size_t osh_gptq_needs_groups(const osh_modifier *m, const osh_job_group *like, int n, int n_threads,
                             size_t *device)
{
    const gptq *g = m->args;
    const osh_linear_job *jobs = like->jobs;
    int64_t I = jobs->w->shape[1];
    size_t results = 0, run = needs_of_parts((size_t)(n * like->n)), finish = 0, search = 0,
           every = (size_t)n;
    size_t ranks = (size_t)n_threads * osh_mem_gross((size_t)I * sizeof(osh_gptq_ranked));
    for (int k = 0; k < like->n; k++) {
        results += every * osh_job_result_bytes(&jobs[k]);
        run += every * needs_of_job(g, &jobs[k], n_threads, true);
        finish = needs_larger(finish, osh_job_finish_bytes(&jobs[k], n_threads));
        search = needs_larger(search, osh_job_search_bytes(&jobs[k]));
    }
    size_t room = *device, host = 0;
    *device = osh_gptq_diags_device_bytes(I, n);
    /* If some Hessians cannot be factored, only i < n groups are solved together. The sizes of
     * tiles depend on i, so the result is the maximum over all i. */
    for (int i = 1; i <= n; i++) {
        osh_gptq_group all = group_of_some(g, like, i);
        *device = needs_larger(*device, osh_gptq_factors_device_bytes(I, i, room));
        *device = needs_larger(*device, osh_gptq_solve_device_bytes(&all, room));
        host = needs_larger(host, osh_gptq_solve_device_host_bytes(&all));
    }
    run += needs_larger(search, host);
    return needs_of_gathered(I, every) + needs_larger(ranks, results + needs_larger(run, finish));
}
