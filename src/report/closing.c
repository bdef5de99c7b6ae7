/* closing.c - prints the last lines of a run.
 *
 *   loss       outputs of 28 modules: 21.3 % of the loss with rounding to nearest
 *   report     OUT/oneshot-report.html
 *   next       oneshot verify OUT --model MODEL
 *              ...
 */
#include "report/closing.h"

#include <string.h>

#include "base/buf.h"
#include "base/shell.h"
#include "output/tuned.h"

enum { LABEL = 11 };

int osh_closing_share(double *share, const osh_run *r)
{
    double lost = 0, nearest = 0;
    int n = 0;
    for (int i = 0; i < r->plan->match.n_linears; i++) {
        const osh_result *x = &r->results[i];
        if (x->objective < 0 || x->nearest <= 0) continue;
        lost += x->objective, nearest += x->nearest, n++;
    }
    if (n) *share = lost / nearest;
    return n;
}

osh_status osh_closing_loss(osh_ctx *cx, osh_buf *b, const osh_run *r)
{
    osh_status rc = OSH_OK;
    double share = 0;
    int n = osh_closing_share(&share, r);
    const osh_tuned *t = osh_emit_tuned(r->emitter);
    if (!n) goto done;
    OSH_TRY(osh_buf_printf(cx, b,
                           "%-*soutputs of %d modules: %.1f %% of the loss with rounding to "
                           "nearest\n",
                           LABEL, "loss", n, 100 * share));
    if (t->known && t->kept)
        OSH_TRY(osh_buf_printf(cx, b,
                               "%-*sthen tuning changed the KL divergence from %.5f to %.5f\n",
                               LABEL, "", t->before, t->after));
done:
    return rc;
}

/* Appends a command. In `words`, %O is the output, %M the model, and %D the data of the
 * evaluation. */
static osh_status closing_command(osh_ctx *cx, osh_buf *b, const char *label, const char *words,
                                  const osh_options *o)
{
    osh_status rc = OSH_OK;
    OSH_TRY(osh_buf_printf(cx, b, "%-*s", LABEL, label));
    for (const char *s = words; *s; s++) {
        if (*s != '%') {
            OSH_TRY(osh_buf_append(cx, b, s, 1));
            continue;
        }
        s++;
        if (*s == 'O') OSH_TRY(osh_shell_path(cx, b, o->output));
        else if (*s == 'M') OSH_TRY(osh_shell_path(cx, b, o->said ? o->said : o->model));
        else OSH_TRY(o->eval ? osh_shell_path(cx, b, o->eval) : osh_buf_printf(cx, b, "TEXT"));
    }
    OSH_TRY(osh_buf_append(cx, b, "\n", 1));
done:
    return rc;
}

osh_status osh_closing_next(osh_ctx *cx, osh_buf *b, const osh_options *o)
{
    osh_status rc = OSH_OK;
    OSH_TRY(osh_buf_line(cx, b, "%-*s%s/oneshot-report.html", LABEL, "report", o->output));
    OSH_TRY(closing_command(cx, b, "next", "oneshot verify %O --model %M", o));
    OSH_TRY(closing_command(cx, b, "", "oneshot eval --model %O --reference %M --dataset %D", o));
    OSH_TRY(closing_command(cx, b, "", "vllm serve %O", o));
done:
    return rc;
}
