/* fuzz_journal.c - reads any bytes as the journal of an interrupted run.
 *
 * Reading must end at the first bad record, and records can be appended after the good records. A
 * run that resumes must refuse the records with a message, or reach a valid state.
 *
 *   byte 0   bit 0 is 1: the other bytes of the input are the file
 *            bit 0 is 0: the other bytes are records, which the test writes with right checksums
 *            bit 1: the first record names another run
 *            bit 2: the last 3 bytes of the file are lost
 *   record   has a type, a length and a payload; if the length is 255, two more bytes have the
 *            real length */
#include "fuzz/fuzz.h"
#include "output/emit_impl.h"

#include <unistd.h>

static osh_ctx *cx;      // own; never freed, like the variables below
static osh_options opt;  // own
static osh_plan *plan;   // own
static osh_identity *id; // own
static char *id_json;    // own
static char dir[64], final_dir[80], partial[96], journal_path[128];

static void ok(osh_status rc)
{
    if (rc) fprintf(stderr, "%s\n", osh_error_text(cx));
    CHECK(!rc);
}

static void remove_all(void)
{
    osh_dir_remove(cx, dir);
}

static void make_once(void)
{
    static const char *const set[][2] = {
        {"model", OSH_SOURCE_DIR "/examples/docs-llama-3m"},
        {"dataset", OSH_SOURCE_DIR "/examples/docs-llama-3m/data/calibration.jsonl"},
        {"scheme", "W4A16"},
        {"method", "gptq"},
        {"ignore", "lm_head"},
        {"num-calibration-samples", "1"},
        {"max-seq-length", "8"},
        {"max-shard-size", "2MB"},
    };
    if (cx) return;
    cx = fuzz_ctx();
    strcpy(dir, access("/dev/shm", W_OK) ? "fuzz_journal.XXXXXX" : "/dev/shm/fuzz_journal.XXXXXX");
    CHECK(mkdtemp(dir));
    atexit(remove_all);
    snprintf(final_dir, sizeof final_dir, "%s/out", dir);
    snprintf(partial, sizeof partial, "%s.oneshot-partial", final_dir);
    snprintf(journal_path, sizeof journal_path, "%s/" OSH_JOURNAL_NAME, partial);
    ok(osh_fields_default(cx, osh_option_fields, &opt));
    for (size_t i = 0; i < sizeof set / sizeof *set; i++)
        ok(osh_option_set(cx, &opt, set[i][0], set[i][1]));
    ok(osh_option_set(cx, &opt, "output", final_dir));
    ok(osh_plan_new(cx, &plan, &opt));
    ok(osh_identity_new(cx, &id, plan));
    ok(osh_identity_json(cx, &id_json, id, OSH_IDENTITY_ALL));
    CHECK(plan->manifest.n_shards > 1 && plan->schedule.parts->n > 1);
}

/* Makes the partial directory of a killed run: its shards have headers, but no tensor is
 * written. */
static void dir_reset(void)
{
    ok(osh_dir_remove(cx, partial));
    ok(osh_dir_make(cx, partial));
    for (int s = 0; s < plan->manifest.n_shards; s++) {
        const osh_shard *sh = &plan->manifest.shards[s];
        char path[256];
        snprintf(path, sizeof path, "%s/%s", partial, sh->name);
        FILE *f = fopen(path, "wb");
        CHECK(f && fwrite(sh->header, 1, sh->header_bytes, f) == sh->header_bytes);
        CHECK(!fflush(f) && !ftruncate(fileno(f), sh->n_bytes) && !fclose(f));
    }
}

static void write_records(const uint8_t *data, size_t n, bool other)
{
    osh_journal *j = NULL;
    bool busy;
    ok(osh_journal_open(cx, &j, journal_path, &busy));
    CHECK(!busy);
    ok(osh_journal_append(cx, j, OSH_REC_IDENTITY, other ? "{}" : id_json,
                          other ? 2 : strlen(id_json)));
    while (n >= 2) {
        size_t len = data[1], head = 2;
        if (len == 255 && n >= 4) len = data[2] | (size_t)data[3] << 8, head = 4;
        if (len > n - head) len = n - head;
        ok(osh_journal_append(cx, j, data[0], data + head, len));
        data += head + len, n -= head + len;
    }
    osh_journal_close(cx, j);
}

static void write_journal(const uint8_t *data, size_t n)
{
    if (data[0] & 1) {
        FILE *f = fopen(journal_path, "wb");
        CHECK(f && fwrite(data + 1, 1, n - 1, f) == n - 1 && !fclose(f));
        return;
    }
    write_records(data + 1, n - 1, data[0] & 2);
    if (data[0] & 4) {
        int64_t size, mtime;
        ok(osh_file_stat(cx, &size, &mtime, journal_path));
        CHECK(size > 3 && !truncate(journal_path, size - 3));
    }
}

/* Reads the journal, appends a record, and reads the journal again. The second reading must find
 * all records, and no bad bytes after the last record. */
static void check_file(void)
{
    osh_journal *j = NULL;
    bool busy;
    ok(osh_journal_open(cx, &j, journal_path, &busy));
    int64_t n = osh_journal_count(j);
    size_t bytes = 0;
    for (int64_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < osh_journal_at(j, i)->n; k++)
            bytes += osh_journal_at(j, i)->data[k] & 1;
    ok(osh_journal_append(cx, j, 77, "more", 4));
    osh_journal_close(cx, j);
    ok(osh_journal_open(cx, &j, journal_path, &busy));
    CHECK(osh_journal_count(j) == n + 1 && osh_journal_damaged(j) == 0);
    const osh_journal_record *last = osh_journal_at(j, n);
    CHECK(last->type == 77 && last->n == 4 && !memcmp(last->data, "more", 4));
    CHECK(bytes <= (size_t)1 << 20);
    osh_journal_close(cx, j);
}

static void check_resumed(const osh_emitter *e, const osh_result *results)
{
    int64_t generation = 0;
    int boundary = osh_emit_boundary(e, &generation);
    CHECK(boundary >= -1 && boundary < plan->schedule.parts->n &&
          (boundary < 0 || generation >= 0));
    for (int i = 0; i < plan->match.n_linears; i++) {
        const osh_linear *l = &plan->match.linears[i];
        if (!results[i].done) CHECK(!results[i].fallback);
        for (int k = 0; results[i].done && k < l->out.n; k++) CHECK(e->written[l->out.first + k]);
        if (results[i].fallback) CHECK(strlen(results[i].fallback) < (size_t)1 << 20);
    }
}

static void run_resume(void)
{
    osh_emitter *e = NULL;
    bool finished = false;
    osh_result *results = calloc((size_t)plan->match.n_linears, sizeof *results);
    CHECK(results);
    if (osh_emitter_new(cx, &e, plan, results, &finished)) CHECK(!e && *osh_error_text(cx));
    else {
        CHECK(e && !finished);
        check_resumed(e, results);
    }
    osh_emitter_free(cx, e);
    osh_error_clear(cx);
    free(results);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (!n) return 0;
    make_once();
    size_t before = osh_mem_live(cx);
    dir_reset();
    write_journal(data, n);
    run_resume();
    dir_reset();
    write_journal(data, n);
    check_file();
    CHECK(osh_mem_live(cx) == before);
    return 0;
}
