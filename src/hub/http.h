/* http.h - one request at a time over libcurl, which is opened when the first one is made.
 *
 * What a server says, a refusal too, is a reply and no failure; so is a server that is not reached (status 0). */
#ifndef OSH_HUB_HTTP_H
#define OSH_HUB_HTTP_H
#include <stdatomic.h>

#include "base/buf.h"
#include "base/file.h"
#include "hub/hub.h"

typedef struct osh_http osh_http; // connections of one thread
/* Host memory that libcurl takes for them, with certificates; osh_http_open counts it. */
enum { OSH_HTTP_BYTES = 2 << 20, OSH_HTTP_BODY_BYTES = 256 << 10 };
/* stop: ends a request when it becomes true; NULL: nothing but an interrupt does. */
osh_status osh_http_open(osh_ctx *cx, osh_http **out, const osh_hub *hub, const atomic_bool *stop);
void osh_http_close(osh_ctx *cx, osh_http *http);

typedef struct osh_http_reply {
    long status;         // 200, 404, ...; 0: no answer, or one that was cut
    bool unreached;      // no connection came about
    char why[256];       // of status 0
    char *redirect;      // own: where a 3xx points, absolute; NULL: nowhere
    int64_t range_from, range_total; // of Content-Range; -1: none
    osh_buf headers, body; // own. body: what no one took, up to a cap
    osh_file *long_body; // own: a body of more than OSH_HTTP_BODY_BYTES, on the disk; else NULL
    size_t n_body;       // bytes of either
} osh_http_reply;
void osh_http_reply_deinit(osh_ctx *cx, osh_http_reply *r);
/* The header's value, without white space around it; of several the last. *n 0: none. View of r. */
const char *osh_http_header(const osh_http_reply *r, const char *name, size_t *n);
bool osh_http_header_is(const osh_http_reply *r, const char *name, const char *value);

typedef struct osh_http_request {
    const char *url;
    bool with_token;       // sends it
    int64_t from, to;      // bytes [from, to); to 0: no range is asked for, or from `from` to the end
    size_t max_body;  // of the reply; more is a failure of an answer, and dropped of a refusal
    /* A body of 200 or 206: begin once, then take. NULL: it becomes reply.body. */
    osh_status (*begin)(osh_ctx *cx, void *user, const osh_http_reply *r);
    osh_status (*take)(osh_ctx *cx, void *user, const void *p, size_t n);
    void *user;
} osh_http_request;
osh_status osh_http_get(osh_ctx *cx, osh_http *http, osh_http_reply *r, const osh_http_request *q);

bool osh_http_same_host(const char *a, const char *b); // whole host names and ports are compared
bool osh_http_is_url(const char *url); // http or https, with a host and no name or password
/* Appends text, %XX for all but letters, digits, "-._~" and those of keep. */
osh_status osh_http_encode(osh_ctx *cx, osh_buf *b, const char *text, const char *keep);
/* Seconds of Retry-After, or of an exhausted RateLimit; -1: neither. */
int64_t osh_http_wait(const osh_http_reply *r);
#endif
