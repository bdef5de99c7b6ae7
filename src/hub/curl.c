/* curl.c - opens libcurl for the first request. A run that reads only local directories does not
 * load libcurl. */
#include "hub/curl.h"

#include <stdio.h>
#include <string.h>

#include "base/library.h"

#define SYMBOL(name) {#name, offsetof(osh_curl, name)},
static const osh_symbol symbols[] = {OSH_CURL_FUNCTIONS(SYMBOL)};
#undef SYMBOL
static const osh_library library = {.sonames = {"libcurl.so.4", "libcurl-gnutls.so.4"},
                                    .use = "requests to a network",
                                    .package = "libcurl4",
                                    .symbols = symbols,
                                    .n = sizeof symbols / sizeof *symbols};
static osh_curl curl; // one table for the process, because libcurl's own state is global
static osh_once_state once = OSH_ONCE;

static osh_status open_curl(osh_ctx *cx)
{
    osh_status rc = OSH_OK;
    void *handle;
    OSH_TRY(osh_library_open(cx, &handle, &curl, &library));
    if (curl.curl_global_init(CURL_GLOBAL_DEFAULT))
        OSH_FAIL(cx, OSH_E_NOMEM, "libcurl does not start");
    // returns a text such as "libcurl/7.88.1 OpenSSL/..."
    const char *version = curl.curl_version();
    snprintf(curl.version, sizeof curl.version, "%.*s", (int)strcspn(version, " "), version);
done:
    return rc;
}

osh_status osh_curl_open(osh_ctx *cx, const osh_curl **out)
{
    *out = &curl;
    return osh_once(cx, &once, open_curl);
}
