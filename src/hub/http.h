/* http.h - makes HTTP requests with libcurl, one at a time per osh_http. libcurl is opened for the
 * first request.
 *
 * Every answer of a server is a reply and not a failure, even if the server refuses the request. If
 * there is no connection to the server, the reply has status 0. */
#ifndef OSH_HUB_HTTP_H
#define OSH_HUB_HTTP_H
#include <stdatomic.h>

#include "base/buf.h"
#include "base/file.h"
#include "hub/hub.h"

typedef struct osh_http osh_http; // connections of one thread to servers
/* OSH_HTTP_BYTES: number of bytes of host memory that libcurl needs for connections and
 * certificates; osh_http_open counts them. OSH_HTTP_BODY_BYTES: largest body that is stored in
 * memory. */
enum { OSH_HTTP_BYTES = 2 << 20, OSH_HTTP_BODY_BYTES = 256 << 10 };
/* Makes the object for connections. A request ends early if *stop becomes true or the job is
 * interrupted. `stop` may be NULL. */
osh_status osh_http_open(osh_ctx *cx, osh_http **out, const osh_hub *hub, const atomic_bool *stop);
/* Closes the connections. Accepts NULL. */
void osh_http_close(osh_ctx *cx, osh_http *http);

typedef struct osh_http_reply {
    long status;         // status such as 200 or 404; 0: no answer or an incomplete answer
    bool unreached;      // true if no connection was made
    char why[256];       // text that explains status 0
    char *redirect;      // own: absolute address to which a status 3xx redirects; NULL: none
    int64_t range_from, range_total; // values of the header Content-Range; -1: there is none
    /* body: the body, unless the request's `take` got it or it is in long_body. If the status is
     * neither 200 nor 206, only the first 64 KiB are stored. */
    osh_buf headers, body; // own
    osh_file *long_body; // own: body of more than OSH_HTTP_BODY_BYTES, in a file; else NULL
    size_t n_body;       // number of bytes in `body` or in `long_body`
} osh_http_reply;
/* Frees the strings, the buffers and the file of a reply, and sets *r to zero. */
void osh_http_reply_deinit(osh_ctx *cx, osh_http_reply *r);
/* Returns the value of a header (a view of r), without the white space around the value. Sets *n to
 * the length of the value. If there are several headers of this name, returns the value of the last
 * one. *n is 0 if there is no such header. */
const char *osh_http_header(const osh_http_reply *r, const char *name, size_t *n);
/* True if the header of the reply has exactly this value. */
bool osh_http_header_is(const osh_http_reply *r, const char *name, const char *value);

typedef struct osh_http_request {
    const char *url;
    bool with_token;       // true if the access token is sent with the request
    int64_t from, to;      // range of bytes to get, [from, to); if `to` is 0: up to the end
    /* Largest number of bytes of a body that is stored in the reply. A longer body of an answer
     * with status 200 or 206 is a failure. */
    size_t max_body;
    /* Callbacks for the body of an answer with status 200 or 206. `begin` is called once, then
     * `take` for each chunk. If `take` is NULL, the body is stored in the reply. */
    osh_status (*begin)(osh_ctx *cx, void *user, const osh_http_reply *r);
    osh_status (*take)(osh_ctx *cx, void *user, const void *p, size_t n);
    void *user;
} osh_http_request;
/* Requests q->url. Clears *r first and fills it with the answer, also if the status is an error. If
 * no answer arrives, r->status is 0 and r->why says why. Fails if the URL is not http or https, if
 * the certificate is bad, or if a callback fails. */
osh_status osh_http_get(osh_ctx *cx, osh_http *http, osh_http_reply *r, const osh_http_request *q);

/* True if both addresses have the same host name and port. */
bool osh_http_same_host(const char *a, const char *b);
/* True for an http or https address that has a host and no user name or password. */
bool osh_http_is_url(const char *url);
/* Appends `text`. Each byte becomes %XX, except letters, digits, "-._~" and the characters in
 * `keep`. */
osh_status osh_http_encode(osh_ctx *cx, osh_buf *b, const char *text, const char *keep);
/* Returns the number of seconds to wait, plus 1, or -1 if the reply does not say how long. If the
 * header RateLimit says that its limit is exhausted, the seconds are those of RateLimit. Otherwise
 * they are those of the header Retry-After. */
int64_t osh_http_wait(const osh_http_reply *r);
#endif
