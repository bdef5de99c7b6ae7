/* http.h - one HTTP request at a time over libcurl, which is opened for the first one.
 *
 * Every answer of a server is a reply, not a failure, also a refusal. If the server is not reached,
 * the reply has status 0. */
#ifndef OSH_HUB_HTTP_H
#define OSH_HUB_HTTP_H
#include <stdatomic.h>

#include "base/buf.h"
#include "base/file.h"
#include "hub/hub.h"

typedef struct osh_http osh_http; // the connections of one thread
/* Host memory that libcurl takes for the connections and the certificates; osh_http_open counts it.
 * Then the largest body that is kept in memory. */
enum { OSH_HTTP_BYTES = 2 << 20, OSH_HTTP_BODY_BYTES = 256 << 10 };
/* stop ends a request when it becomes true. With NULL only an interrupt does. */
osh_status osh_http_open(osh_ctx *cx, osh_http **out, const osh_hub *hub, const atomic_bool *stop);
void osh_http_close(osh_ctx *cx, osh_http *http);

typedef struct osh_http_reply {
    long status;         // 200, 404, ...; 0: no answer, or a cut one
    bool unreached;      // no connection was made
    char why[256];       // reason for status 0
    char *redirect;      // own: target of a 3xx, absolute; NULL: none
    int64_t range_from, range_total; // from Content-Range; -1: none
    osh_buf headers, body; // own. body: the bytes that q->take did not get, up to a cap
    osh_file *long_body; // own: a body of more than OSH_HTTP_BODY_BYTES, on the disk; else NULL
    size_t n_body;       // bytes of body or long_body
} osh_http_reply;
void osh_http_reply_deinit(osh_ctx *cx, osh_http_reply *r);
/* Returns the value of the header without white space around it; the last one if there are several.
 * *n is 0 if there is none. The value is a view of r. */
const char *osh_http_header(const osh_http_reply *r, const char *name, size_t *n);
bool osh_http_header_is(const osh_http_reply *r, const char *name, const char *value);

typedef struct osh_http_request {
    const char *url;
    bool with_token;       // send the token
    int64_t from, to;      // bytes [from, to); to 0: no range, or from `from` to the end
    size_t max_body;  // limit for the body: a longer answer is a failure, a longer refusal is cut
    /* Get the body of a 200 or 206: begin is called once, then take. If NULL, the body is
     * reply.body. */
    osh_status (*begin)(osh_ctx *cx, void *user, const osh_http_reply *r);
    osh_status (*take)(osh_ctx *cx, void *user, const void *p, size_t n);
    void *user;
} osh_http_request;
osh_status osh_http_get(osh_ctx *cx, osh_http *http, osh_http_reply *r, const osh_http_request *q);

/* True if both have the same host name and port. */
bool osh_http_same_host(const char *a, const char *b);
/* True for http or https with a host and without user name or password. */
bool osh_http_is_url(const char *url);
/* Appends text, with %XX for every byte but letters, digits, "-._~" and the characters of keep. */
osh_status osh_http_encode(osh_ctx *cx, osh_buf *b, const char *text, const char *keep);
/* Returns the seconds of Retry-After or of an exhausted RateLimit; -1 if there is neither. */
int64_t osh_http_wait(const osh_http_reply *r);
#endif
