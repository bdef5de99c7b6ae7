/* record.c - records the results of Linears, and updates the errors that the progress line
 * shows. */
#include "run/run.h"

void osh_run_record(osh_ctx *cx, osh_run *r, int linear, const osh_linear_job *j)
{
    const osh_linear *l = &r->budget->match->linears[linear];
    r->results[linear] = (osh_result){.nmse = j->nmse,
                                      .objective = j->objective,
                                      .nearest = j->nearest,
                                      .losses = j->losses,
                                      .fallback = j->fallback,
                                      .done = true};
    if (j->fallback) osh_log(cx, OSH_LOG_WARN, "%s: %s", l->name, j->fallback);
    if (j->objective < 0)
        osh_log(cx, OSH_LOG_DEBUG, "%s: relative squared weight error %.3e", l->name, j->nmse);
    else
        osh_log(cx, OSH_LOG_DEBUG,
                "%s: relative squared weight error %.3e, objective %.3e, rounded to nearest %.3e",
                l->name, j->nmse, j->objective, j->nearest);
    if (j->nmse > r->progress.error) r->progress.error = j->nmse;
    if (j->objective < 0 || j->nearest <= 0) return;
    r->lost += j->objective, r->lost_nearest += j->nearest;
    r->progress.loss = r->lost / r->lost_nearest;
}

void osh_run_no_error(osh_run *r)
{
    r->progress.error = -1, r->progress.loss = 0;
    r->lost = r->lost_nearest = 0;
}
