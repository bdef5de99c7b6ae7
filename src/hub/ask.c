/* ask.c - makes requests to the Hub, follows redirects, repeats attempts, and converts refusals to
 * error messages. */
#include "hub/ask.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

enum { MAX_REDIRECTS = 20, MAX_WAIT_S = 600, MAX_WORDS = 64 << 10 };

/* True if the access token may be sent to the address. Its host and port must be those of the
 * endpoint, or its host must be in the list `hosts`. Other hosts of the Hub's domain never get the
 * token. The scheme must be https, or the scheme of the endpoint if the host is that of the
 * endpoint. */
static bool token_may_go(const osh_hub *hub, const char *url)
{
    static const char *const hosts[] = {"https://huggingface.co", "https://hub-ci.huggingface.co",
                                        "https://hf.co"};
    bool safe = !strncasecmp(url, "https:", 6); // true if the scheme is https
    if (osh_http_same_host(url, hub->endpoint)) return safe || !strncasecmp(url, hub->endpoint, 6);
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++)
        if (safe && osh_http_same_host(url, hosts[i])) return true;
    return false;
}

osh_status osh_hub_follow(osh_ctx *cx, osh_http *http, osh_http_reply *r, bool *elsewhere,
                          const osh_hub *hub, const osh_http_request *q)
{
    osh_status rc = OSH_OK;
    osh_http_request at = *q;
    char *url = NULL; // own
    bool plain = !strncasecmp(hub->endpoint, "http:", 5);
    at.with_token = token_may_go(hub, q->url);
    for (int n = 0;; n++) {
        OSH_TRY(osh_http_get(cx, http, r, &at));
        *elsewhere = !osh_http_same_host(at.url, hub->endpoint);
        if (r->status < 300 || r->status >= 400 || !r->redirect) break;
        if (n == MAX_REDIRECTS)
            OSH_FAIL(cx, OSH_E_IO, "%s: more than %d redirects", q->url, MAX_REDIRECTS);
        if (!osh_http_is_url(r->redirect) || (!plain && strncasecmp(r->redirect, "https:", 6)))
            OSH_FAIL(cx, OSH_E_IO, "%s: redirects to '%.200s', wanted https", q->url, r->redirect);
        osh_free(cx, url);
        url = r->redirect, r->redirect = NULL;
        at.url = url;
        // after a redirect to a host that must not get the token, no later host gets it either
        at.with_token = at.with_token && token_may_go(hub, url);
    }
done:
    osh_free(cx, url);
    return rc;
}

bool osh_hub_passes(const osh_http_reply *r)
{
    static const int codes[] = {0, 408, 429, 500, 502, 503, 504};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (r->status == codes[i]) return true;
    return false;
}

osh_status osh_hub_pause(osh_ctx *cx, const osh_http_reply *r, int tried, const atomic_bool *stop)
{
    osh_status rc = OSH_OK;
    static const int waits[] = {1, 2, 4, 8, 8};
    int64_t asked = r->status == 429 || r->status == 503 ? osh_http_wait(r) : -1;
    if (asked > MAX_WAIT_S)
        OSH_FAIL(cx, OSH_E_IO, "the Hub asks for a pause of %lld seconds", (long long)asked);
    double end = osh_now() + (asked >= 0 ? (double)asked : waits[tried < 4 ? tried : 4]);
    if (asked > 10)
        osh_log(cx, OSH_LOG_WARN, "the Hub asks for a pause of %lld seconds: waiting",
                (long long)asked);
    while (osh_now() < end) {
        OSH_TRY(osh_check_interrupt(cx));
        if (stop && atomic_load(stop)) OSH_FAIL(cx, OSH_E_INTERRUPTED, "another file failed");
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    }
done:
    return rc;
}

osh_status osh_hub_walk(osh_ctx *cx, osh_json_walk *w, const osh_http_reply *r, const char *what)
{
    if (r->long_body) return osh_json_walk_file(cx, w, r->long_body, what);
    return osh_json_walk_text(cx, w, r->body.data ? r->body.data : "", r->body.len, what);
}

static osh_status error_member(osh_ctx *cx, void *user, osh_json_walk *w, const char *key)
{
    (void)cx;
    bool wanted = !strcmp(key, "error") && osh_json_walk_peek(w) == '"';
    return wanted ? osh_json_walk_string(w, user, "error") : osh_json_walk_skip(w);
}

/* Writes the server's error message to `to`: the header X-Error-Message, or the "error" of the JSON
 * body. `to` is empty if there is no message. */
static void reply_words(osh_ctx *cx, char to[300], const osh_http_reply *r)
{
    size_t n;
    osh_json_walk w; // own
    osh_buf text;    // own
    const char *header = osh_http_header(r, "X-Error-Message", &n);
    to[0] = 0;
    if (n) snprintf(to, 300, "%.*s", (int)(n < 280 ? n : 280), header);
    if (n || !r->body.data) return;
    osh_buf_init(&text, MAX_WORDS);
    osh_json_walk_text(cx, &w, r->body.data, r->body.len, "");
    if (osh_json_walk_peek(&w) == '{' && !osh_json_walk_members(&w, error_member, &text) &&
        text.data)
        snprintf(to, 300, "%.280s", text.data);
    osh_error_clear(cx); // a body that is not JSON counts as no message
    osh_json_walk_deinit(cx, &w);
    osh_buf_deinit(cx, &text);
}

osh_status osh_hub_refused(osh_ctx *cx, const osh_hub *hub, const osh_http_reply *r,
                           const char *what)
{
    char words[300], request[100] = "";
    size_t n;
    const char *id = osh_http_header(r, "X-Request-Id", &n),
               *token = hub->token ? "" : "; no token was given";
    if (n) snprintf(request, sizeof request, ", request %.*s", (int)(n < 60 ? n : 60), id);
    if (!r->status)
        return osh_fail(cx, OSH_E_IO, "%s: %s does not answer: %s", what, hub->endpoint, r->why);
    reply_words(cx, words, r);
    if (osh_http_header_is(r, "X-Error-Code", "RevisionNotFound"))
        return osh_fail(cx, OSH_E_IO, "%s: there is no such revision at %s%s", what, hub->endpoint,
                        request);
    if (osh_http_header_is(r, "X-Error-Code", "EntryNotFound"))
        return osh_fail(cx, OSH_E_IO, "%s: there is no such file at %s%s", what, hub->endpoint,
                        request);
    if (osh_http_header_is(r, "X-Error-Code", "GatedRepo"))
        return osh_fail(cx, OSH_E_IO,
                        "%s is gated: want its terms accepted on its page at %s, and HF_TOKEN of "
                        "that account%s%s",
                        what, hub->endpoint, token, request);
    if (!strcmp(words, "Invalid credentials in Authorization header"))
        return osh_fail(cx, OSH_E_IO, "%s: %s rejects the token of HF_TOKEN or of its file%s", what,
                        hub->endpoint, request);
    if (r->status == 401 || osh_http_header_is(r, "X-Error-Code", "RepoNotFound") ||
        osh_http_header_is(r, "X-Error-Code", "ExternalAuthenticatedError"))
        return osh_fail(
            cx, OSH_E_IO,
            "%s: not found at %s, or private: want its name, and HF_TOKEN of an account that may "
            "read it%s%s",
            what, hub->endpoint, token, request);
    return osh_fail(cx, OSH_E_IO, "%s: %s answers with status %ld%s%s%s", what, hub->endpoint,
                    r->status, *words ? ": " : "", words, request);
}

osh_status osh_hub_ask(osh_ctx *cx, osh_http *http, osh_http_reply *r, const osh_hub *hub,
                       const osh_http_request *q, const char *what)
{
    osh_status rc = OSH_OK;
    bool elsewhere;
    for (int tried = 0;; tried++) {
        OSH_TRY(osh_hub_follow(cx, http, r, &elsewhere, hub, q));
        if (r->status == 200) break;
        // one more attempt is enough if there is no network
        int most = r->unreached ? 1 : OSH_HUB_RETRIES;
        if (!osh_hub_passes(r) || tried == most) OSH_TRY(osh_hub_refused(cx, hub, r, what));
        OSH_TRY(osh_hub_pause(cx, r, tried, NULL));
    }
done:
    return rc;
}
