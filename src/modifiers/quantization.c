/* quantization.c - implements QuantizationModifier, which rounds weights to nearest (RTN), like
 * llmcompressor/modifiers/quantization/quantization/base.py. Scales are computed from the whole
 * weight: all minmax observers use the minimum and maximum of the weight. Codes are computed when
 * the checkpoint is written. Rounding errors are not propagated: later layers get inputs from
 * unrounded weights. The modifier needs data only for the observers of static input activations,
 * and for imatrix_mse. */
#include "modifiers/modifier.h"

static unsigned nearest_wants(const osh_modifier *m, const osh_q_scheme *s)
{
    (void)m;
    return osh_scheme_wants(s);
}

static osh_status compress(osh_ctx *cx, const osh_modifier *m, osh_linear_job *jobs, int n,
                           osh_tensor *h, int64_t n_samples)
{
    osh_status rc = OSH_OK;
    (void)h, (void)n_samples;
    for (int k = 0; k < n; k++) {
        osh_linear_job *j = &jobs[k];
        const osh_q_args *a = &j->scheme->weights;
        j->objective = j->nearest = -1;
        if (!a->present) continue;
        OSH_TRY(osh_q_weight_params(cx, &j->params, j->w, a, m->arithmetic, j->name));
        if (!j->room && !(j->codes = osh_alloc(cx, (size_t)osh_tensor_numel(j->w))))
            OSH_FAIL(cx, OSH_E_NOMEM, "no memory for the codes of %s", j->name);
        OSH_TRY(osh_q_encode(cx, j->room ? j->room : j->codes, j->w, &j->params, a, m->arithmetic));
        OSH_TRY(osh_job_finish(cx, j, j->pruned && !j->keep_w));
        OSH_TRY(osh_linear_job_done(cx, j));
    }
done:
    return rc;
}

static size_t needs(const osh_modifier *m, const osh_linear_job *jobs, int n, int n_threads,
                    size_t *device)
{
    size_t kept = 0, peak = 0;
    (void)m;
    if (device) *device = 0;
    for (int k = 0; k < n; k++) {
        if (!jobs[k].scheme->weights.present) continue;
        size_t params = osh_job_params_bytes(&jobs[k]) + osh_job_search_bytes(&jobs[k]);
        size_t result = osh_job_result_bytes(&jobs[k]),
               codes = osh_mem_gross(osh_job_codes_bytes(&jobs[k], false));
        size_t scales = result - (jobs[k].room ? 0 : codes),
               round = result + osh_job_finish_bytes(&jobs[k], n_threads);
        // the peak may be reached before the codes are allocated, while scales and ranges are in
        // memory
        if (scales + params > round) round = scales + params;
        if (kept + round > peak) peak = kept + round;
        if (!jobs[k].done) kept += result;
    }
    return peak;
}

static const osh_field fields[] = {{0}};

static const osh_solver nearest_solver = {
    .wants = nearest_wants, .compress = compress, .needs = needs, .by_rows = true,
};
static const osh_quantizer nearest_quantizer = {0};
const osh_modifier_type osh_modifier_quantization = {
    .name = "QuantizationModifier", .fields = fields, .bytes = 1,
    .solver = &nearest_solver, .quantizer = &nearest_quantizer,
};
