/* report.c - shows profile files as a page, as tables or as a drawing (`oneshot report`). */
#include "api/api.h"

#include <string.h>

#include "base/file.h"
#include "match/paths.h"
#include "report/profiles.h"

static osh_status check_format(osh_ctx *cx, const osh_report_options *opt, int n)
{
    osh_status rc = OSH_OK;
    if (!strcmp(opt->format, "svg") && n > 1)
        OSH_FAIL(cx, OSH_E_USAGE, "--format svg draws one profile, got %d", n);
    if (strcmp(opt->format, "html") && opt->output)
        OSH_FAIL(cx, OSH_E_USAGE,
                 "--output is for the page: --format %s writes to standard output",
                 opt->format);
    OSH_TRY(osh_paths_check(cx, osh_report_fields, opt));
done:
    return rc;
}

osh_status osh_report_profiles(osh_ctx *cx, const char *const *files, int n,
                               const osh_report_options *opt, osh_sink sink, void *user)
{
    osh_status rc = OSH_OK;
    osh_profiled *of = NULL;                 // own
    char *text = NULL, *html = NULL, *svg = NULL; // own
    int n_read = 0;
    OSH_TRY(check_format(cx, opt, n));
    OSH_NEW(cx, of, n);
    for (; n_read < n; n_read++) OSH_TRY(osh_profiled_read(cx, &of[n_read], files[n_read]));
    if (!strcmp(opt->format, "svg")) OSH_TRY(osh_profile_svg(cx, &svg, &of[0]));
    if (!strcmp(opt->format, "html")) OSH_TRY(osh_profiles_html(cx, &html, of, n));
    if (!strcmp(opt->format, "text") || opt->output) OSH_TRY(osh_profiles_text(cx, &text, of, n));
    if (opt->output) OSH_TRY(osh_file_write_all(cx, opt->output, html, strlen(html)));
    const char *said = svg ? svg : text ? text : html;
    sink(user, said, strlen(said));
done:
    for (int i = 0; i < n_read; i++) osh_profiled_deinit(cx, &of[i]);
    osh_free(cx, of);
    osh_free(cx, text);
    osh_free(cx, html);
    osh_free(cx, svg);
    return rc;
}
