/* compress.c - the C API in one page: options by name, progress through a callback, stages and checkpoints of one's own
 * in the profile.
 *
 * Usage: compress MODEL DATASET OUTPUT PROFILE
 * GPTQ with 4-bit weights on 16 samples. Prints a line for each finished step. */
#include <stdio.h>
#include <string.h>

#include "api/api.h"

typedef struct watch {
    osh_ctx *cx;
    int n_steps;
} watch;

/* Called on the job's thread, often: it must be quick. */
static void on_progress(void *user, const osh_progress *p)
{
    watch *w = user;
    if (!p->finished) return;
    printf("%lld of %lld: %s\n", (long long)p->step, (long long)p->n_steps, p->name);
    if (++w->n_steps == 2) osh_profile_checkpoint(w->cx, "two steps are done");
}

static void on_text(void *user, const char *text, size_t n) // what the program prints on standard output
{
    (void)user;
    fwrite(text, 1, n, stdout);
}

static osh_status compress(osh_ctx *cx, char **argv)
{
    osh_status rc = OSH_OK;
    osh_options opt = {0};
    watch w = {.cx = cx};
    const char *const set[][2] = {{"model", argv[1]},    {"dataset", argv[2]}, {"output", argv[3]},
                                  {"scheme", "W4A16"},   {"method", "gptq"},   {"ignore", "lm_head"},
                                  {"num_calibration_samples", "16"},           {"max_seq_length", "128"},
                                  {"overwrite", "true"}};
    osh_scope scope = osh_profile_begin(cx, "choose options", NULL); // a stage of this program
    OSH_TRY(osh_fields_default(cx, osh_option_fields, &opt));
    for (size_t i = 0; i < sizeof set / sizeof *set; i++) OSH_TRY(osh_option_set(cx, &opt, set[i][0], set[i][1]));
    osh_profile_end(cx, scope);

    osh_progress_tell(cx, on_progress, &w);
    OSH_TRY(osh_oneshot(cx, &opt, on_text, NULL)); // its stages go into the profile that is running
    osh_profile_checkpoint(cx, "compressed");
done:
    osh_fields_deinit(cx, osh_option_fields, &opt);
    return rc;
}

int main(int argc, char **argv)
{
    osh_ctx *cx = NULL;
    if (argc != 5) {
        fprintf(stderr, "usage: %s MODEL DATASET OUTPUT PROFILE\n", argv[0]);
        return 2;
    }
    if (osh_ctx_new(&cx, 0)) return 1; // 0: a thread for each core
    osh_log_setup(cx, OSH_LOG_WARN, OSH_PROGRESS_NONE);
    osh_status rc = osh_profile_start(cx, argv[4]);
    if (!rc) rc = compress(cx, argv);
    osh_profile_stop(cx); // also after a failure
    if (rc) fprintf(stderr, "%s: %s\n", argv[0], osh_error_text(cx));
    osh_ctx_free(cx);
    return rc ? 1 : 0;
}
