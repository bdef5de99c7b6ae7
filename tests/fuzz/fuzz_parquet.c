/* fuzz_parquet.c - reads a Parquet file, first with all columns, then with the columns that samples
 * need. Each row must be a JSON object. A second reading must give equal rows. All memory must be
 * freed. */
#include <unistd.h>

#include "base/file.h"
#include "data/parquet.h"
#include "data/shape.h"
#include "fuzz/fuzz.h"
#include "text/json.h"

enum { ENOUGH = 1 << 20 }; // the test reads no more rows after this number of bytes

/* Appends rows to `to` until there are enough. */
static osh_status rows_read(osh_ctx *cx, osh_buf *to, const char *path, const char *column)
{
    osh_status rc = OSH_OK;
    osh_file *f = NULL;    // own
    osh_parquet *p = NULL; // own
    OSH_TRY(osh_file_open(cx, &f, path));
    OSH_TRY(osh_parquet_open(cx, &p, f, column));
    for (size_t had = 0, first = 1; (first || to->len > had) && to->len < ENOUGH; first = 0) {
        had = to->len;
        OSH_TRY(osh_parquet_rows(cx, p, to));
    }
done:
    osh_parquet_close(cx, p);
    osh_file_close(cx, f);
    return rc;
}

static void rows_check(const osh_buf *b)
{
    size_t n = 0;
    int parsed = 0;
    const char *past = b->data + b->len;
    for (const char *s = b->data; b->len && s < past && parsed < 20; s += n + 1, parsed++) {
        const char *end = memchr(s, '\n', b->len - (size_t)(s - b->data));
        if (!end) break; // after an error the last row is incomplete
        n = (size_t)(end - s);
        cJSON *row = n < 100000 ? cJSON_ParseWithLength(s, n) : NULL;
        /* cJSON refuses a row with 1000 nested lists. So the test accepts a refused row if the row
         * has a list. */
        CHECK(n >= 100000 || row || memchr(s, '[', n));
        cJSON_Delete(row);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    osh_ctx *cx = fuzz_ctx();
    osh_buf one, two;
    char path[64];
    osh_buf_init(&one, 0);
    osh_buf_init(&two, 0);
    snprintf(path, sizeof path, "fuzz_parquet_%ld.parquet", (long)getpid());
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(data, 1, n, f) == n && !fclose(f));
    osh_status rc = rows_read(cx, &one, path, osh_all_columns);
    osh_error_clear(cx);
    CHECK(rows_read(cx, &two, path, osh_all_columns) == rc);
    CHECK(one.len == two.len && (!one.len || !memcmp(one.data, two.data, one.len)));
    osh_error_clear(cx);
    rows_check(&one);
    osh_buf_clear(&two);
    rows_read(cx, &two, path, NULL);
    osh_buf_deinit(cx, &one);
    osh_buf_deinit(cx, &two);
    fuzz_ctx_free(cx);
    unlink(path);
    return 0;
}
