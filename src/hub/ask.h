/* ask.h - requests to the Hub: what passes by is tried again, redirects are followed without the token leaving its
 * host, refusals become messages. */
#ifndef OSH_HUB_ASK_H
#define OSH_HUB_ASK_H
#include "hub/http.h"
#include "text/json_walk.h"

enum { OSH_HUB_RETRIES = 5 };
/* One request with its redirects; the status is of the last answer, *elsewhere: that came from another host. */
osh_status osh_hub_follow(osh_ctx *cx, osh_http *http, osh_http_reply *r, bool *elsewhere, const osh_hub *hub,
                          const osh_http_request *q);
bool osh_hub_passes(const osh_http_reply *r); // a later attempt may succeed
/* Sleeps before attempt `tried` + 1: what the reply asks for, else 1, 2, 4, 8, 8 seconds. */
osh_status osh_hub_pause(osh_ctx *cx, const osh_http_reply *r, int tried, const atomic_bool *stop);
/* An answer of 200, at most q->max_body bytes; anything else becomes a failure that says what `what` is. */
osh_status osh_hub_ask(osh_ctx *cx, osh_http *http, osh_http_reply *r, const osh_hub *hub, const osh_http_request *q,
                       const char *what);
/* The JSON of the answer; what: of messages. w and r go together. */
osh_status osh_hub_walk(osh_ctx *cx, osh_json_walk *w, const osh_http_reply *r, const char *what);
/* The failure that the answer means, of a repository or a file. */
osh_status osh_hub_refused(osh_ctx *cx, const osh_hub *hub, const osh_http_reply *r, const char *what);
#endif
