/* compare.c - implements `oneshot compare`, a table of output directories and of files that
 * `oneshot eval --panel` wrote. */
#include "api/api.h"

#include <string.h>

#include "base/file.h"
#include "match/paths.h"
#include "report/compare.h"

osh_status osh_compare(osh_ctx *cx, const char *const *files, int n, const osh_compare_options *opt,
                       osh_sink sink, void *user)
{
    osh_status rc = OSH_OK;
    osh_panel *of = NULL;             // own
    char *text = NULL, *html = NULL;  // own
    int n_read = 0;
    OSH_TRY(osh_paths_check(cx, osh_compare_fields, opt));
    OSH_NEW(cx, of, n);
    while (n_read < n) {
        osh_panel *p = &of[n_read];
        /* n_read is increased before the read, so that a panel is freed even if its read fails */
        const char *file = files[n_read++];
        OSH_TRY((osh_dir_exists(file) ? osh_compare_output : osh_panel_read)(cx, p, file));
    }
    OSH_TRY(osh_compare_check(cx, of, n));
    OSH_TRY(osh_compare_text(cx, &text, of, n));
    if (opt->output) {
        OSH_TRY(osh_compare_html(cx, &html, of, n));
        OSH_TRY(osh_file_write_all(cx, opt->output, html, strlen(html)));
    }
    sink(user, text, strlen(text));
done:
    for (int i = 0; i < n_read; i++) osh_panel_deinit(cx, &of[i]);
    osh_free(cx, of);
    osh_free(cx, text);
    osh_free(cx, html);
    return rc;
}
