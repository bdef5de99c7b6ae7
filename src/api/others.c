/* others.c - finds the host memory that the passes before and after a run need. */
#include "api/others.h"

#include "api/evaluate.h"
#include "api/measured.h"
#include "api/mixed.h"
#include "api/sample.h"

void osh_others_deinit(osh_ctx *cx, osh_others *o) { osh_free(cx, o->of); }

/* Adds a pass (such as the survey) that needs `host` bytes of host memory. Takes ownership of `of`,
 * the name of the pass. */
static void others_add(osh_ctx *cx, osh_others *o, int64_t host, char *of)
{
    if (host > o->opt.others_host) {
        osh_free(cx, o->of);
        o->opt.others_host = host, o->opt.others = o->of = of, of = NULL;
    }
    osh_free(cx, of);
}

osh_status osh_others_find(osh_ctx *cx, osh_others *o, const osh_options *opt, bool chosen,
                           bool measured)
{
    osh_status rc = OSH_OK;
    int64_t host = 0;
    char *of = NULL; // own
    *o = (osh_others){.opt = *opt};
    if (opt->only_largest_layer) goto done;
    if (chosen) {
        OSH_TRY(osh_choice_least(cx, &host, &of, opt));
        others_add(cx, o, host, of), of = NULL;
    }
    if (measured) {
        OSH_TRY(osh_measure_least(cx, &host, &of, opt));
        others_add(cx, o, host, of), of = NULL;
    }
    if (opt->sample) {
        OSH_TRY(osh_sample_least(cx, &host, opt));
        if (!(of = osh_strdup(cx, "source and output answer --sample after the run")))
            OSH_TRY(OSH_E_NOMEM);
        others_add(cx, o, host, of), of = NULL;
    }
    if (opt->eval) {
        // only rank 0 evaluates the output, so only rank 0 opens its GPU here
        if (!osh_ranks_me(opt->ranks)) rc = osh_evaluate_least(cx, &host, opt);
        if (rc)
            osh_note(cx, "checking the model and the data of --eval %s before the run", opt->eval);
        OSH_TRY(rc);
        OSH_TRY(osh_ranks_broadcast(cx, opt->ranks, &host, sizeof host, 0));
        if (!(of = osh_strdup(cx, "the output is evaluated after the run"))) OSH_TRY(OSH_E_NOMEM);
        others_add(cx, o, host, of), of = NULL;
    }
done:
    osh_free(cx, of);
    return rc;
}
