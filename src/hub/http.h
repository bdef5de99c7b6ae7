/* http.h - one HTTP request at a time over libcurl, which is opened for the first one.
 *
 * Every answer of a server, also a refusal, is a reply and not a failure. If there is no connection
 * to the server, the reply has status 0. */
#ifndef OSH_HUB_HTTP_H
#define OSH_HUB_HTTP_H
#include <stdatomic.h>

#include "base/buf.h"
#include "base/file.h"
#include "hub/hub.h"

typedef struct osh_http osh_http; // connections of one thread
/* OSH_HTTP_BYTES: host memory that libcurl needs for connections and certificates; osh_http_open
 * counts it. OSH_HTTP_BODY_BYTES: largest body that stays in memory. */
enum { OSH_HTTP_BYTES = 2 << 20, OSH_HTTP_BODY_BYTES = 256 << 10 };
/* Opens the connections. A request ends when *stop becomes true or the job is interrupted. `stop`
 * may be NULL. */
osh_status osh_http_open(osh_ctx *cx, osh_http **out, const osh_hub *hub, const atomic_bool *stop);
void osh_http_close(osh_ctx *cx, osh_http *http);

typedef struct osh_http_reply {
    long status;         // such as 200 or 404; 0: no answer, or an incomplete one
    bool unreached;      // no connection was made
    char why[256];       // reason for status 0
    char *redirect;      // own: absolute address to which a 3xx redirects; NULL: none
    int64_t range_from, range_total; // values of Content-Range; -1: there is none
    osh_buf headers, body; // own; body: bytes that q->take did not get, up to a limit
    osh_file *long_body; // own: body of more than OSH_HTTP_BODY_BYTES, in a file; else NULL
    size_t n_body;       // bytes of body or long_body
} osh_http_reply;
void osh_http_reply_deinit(osh_ctx *cx, osh_http_reply *r);
/* Returns the value of the header without white space around it (a view of r). If there are several
 * such headers, it is the last one. *n is 0 if there is none. */
const char *osh_http_header(const osh_http_reply *r, const char *name, size_t *n);
bool osh_http_header_is(const osh_http_reply *r, const char *name, const char *value);

typedef struct osh_http_request {
    const char *url;
    bool with_token;       // the request has the token
    int64_t from, to;      // bytes [from, to); to 0: up to the end
    size_t max_body;  // limit of the body: a longer answer is a failure, a longer refusal is cut
    /* Receive the body of a 200 or 206: `begin` is called once, then `take` for each piece. NULL:
     * the body is stored in reply.body. */
    osh_status (*begin)(osh_ctx *cx, void *user, const osh_http_reply *r);
    osh_status (*take)(osh_ctx *cx, void *user, const void *p, size_t n);
    void *user;
} osh_http_request;
osh_status osh_http_get(osh_ctx *cx, osh_http *http, osh_http_reply *r, const osh_http_request *q);

/* True if both addresses have the same host name and port. */
bool osh_http_same_host(const char *a, const char *b);
/* True for an http or https address with a host and without user name or password. */
bool osh_http_is_url(const char *url);
/* Appends text. Each byte becomes %XX, except letters, digits, "-._~" and the characters of
 * `keep`. */
osh_status osh_http_encode(osh_ctx *cx, osh_buf *b, const char *text, const char *keep);
/* Returns the seconds of Retry-After or of an exhausted RateLimit. Returns -1 if the reply has
 * neither. */
int64_t osh_http_wait(const osh_http_reply *r);
#endif
