/* compress.c - shows the library on one page: arguments by name, callbacks for progress and
 * messages, and stages and checkpoints of this program in the profile.
 *
 * Usage: compress MODEL DATASET OUTPUT PROFILE
 * Runs GPTQ with 4-bit weights on 16 samples, and prints a line for each finished step. */
#include <oneshot.h>
#include <stdio.h>

typedef struct watch {
    oneshot *o;
    int n_steps;
} watch;

/* The library calls this function often, on the job's thread, so it must be quick. */
static void on_progress(void *user, const oneshot_progress *p)
{
    watch *w = user;
    if (!p->finished) return;
    printf("%lld of %lld: %s\n", (long long)p->step, (long long)p->n_steps, p->name);
    if (++w->n_steps == 2) oneshot_checkpoint(w->o, "two steps are done");
}

static void on_log(void *user, int level, const char *text) // the default level is warnings
{
    (void)user;
    fprintf(stderr, "level %d: %s\n", level, text);
}

// the text that the program prints on standard output
static void on_text(void *user, const char *text, size_t n)
{
    (void)user;
    fwrite(text, 1, n, stdout);
}

static int compress(oneshot *o, char **argv)
{
    int stage = oneshot_stage_begin(o, "choose arguments"); // a stage of this program
    const oneshot_argument args[] = {
        {"model", argv[1]},        {"dataset", argv[2]},  {"output", argv[3]},
        {"scheme", "W4A16"},       {"method", "gptq"},    {"num_calibration_samples", "16"},
        {"max_seq_length", "128"}, {"overwrite", "true"}, {NULL, NULL}};
    oneshot_stage_end(o, stage);
    int rc = oneshot_compress(o, args); // the running profile also records the stages of the job
    if (!rc) oneshot_checkpoint(o, "compressed");
    return rc;
}

int main(int argc, char **argv)
{
    watch w = {NULL, 0};
    oneshot_options options = ONESHOT_OPTIONS_INIT;
    if (argc != 5) {
        fprintf(stderr, "usage: %s MODEL DATASET OUTPUT PROFILE\n", argv[0]);
        return 2;
    }
    options.on_progress = on_progress;
    options.on_log = on_log;
    options.on_text = on_text;
    options.user = &w;
    options.owns_process = 1;
    if (oneshot_new(&w.o, &options)) return 1;
    int rc = oneshot_profile_start(w.o, argv[4]);
    if (!rc) rc = compress(w.o, argv);
    oneshot_profile_stop(w.o); // also after a failure
    if (rc) fprintf(stderr, "%s: %s\n", argv[0], oneshot_error(w.o));
    oneshot_free(w.o);
    return rc ? 1 : 0;
}
