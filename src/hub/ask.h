/* ask.h - makes requests to the Hub. A request is repeated after a failure that may be temporary.
 * Redirects are followed, but the access token is sent only to hosts of the Hub (ask.c). Refusals
 * become error messages. */
#ifndef OSH_HUB_ASK_H
#define OSH_HUB_ASK_H
#include "hub/http.h"
#include "text/json_walk.h"

enum { OSH_HUB_RETRIES = 5 };
/* Makes one request and follows its redirects. *r is the last answer. *elsewhere is true if the
 * last answer came from another host than the endpoint. */
osh_status osh_hub_follow(osh_ctx *cx, osh_http *http, osh_http_reply *r, bool *elsewhere,
                          const osh_hub *hub, const osh_http_request *q);
/* True if the reply shows a failure that may be temporary, so that a later attempt may succeed. */
bool osh_hub_passes(const osh_http_reply *r);
/* Sleeps after attempt number `tried`, counted from 0. Sleeps as long as the reply requests. If the
 * reply requests nothing, sleeps 1, 2, 4, 8, 8, ... seconds. Fails if *stop becomes true. */
osh_status osh_hub_pause(osh_ctx *cx, const osh_http_reply *r, int tried, const atomic_bool *stop);
/* Makes a request, with repeated attempts. Only an answer of status 200 with at most q->max_body
 * bytes is a success. `what` names the request in messages. */
osh_status osh_hub_ask(osh_ctx *cx, osh_http *http, osh_http_reply *r, const osh_hub *hub,
                       const osh_http_request *q, const char *what);
/* Opens the walker w over the JSON body of the reply. The reply must outlive w. `what` names the
 * body in messages. */
osh_status osh_hub_walk(osh_ctx *cx, osh_json_walk *w, const osh_http_reply *r, const char *what);
/* Returns a failure. Its message says why the Hub has not sent `what`, a repository or file. `r` is
 * the answer of the Hub. */
osh_status osh_hub_refused(osh_ctx *cx, const osh_hub *hub, const osh_http_reply *r,
                           const char *what);
#endif
