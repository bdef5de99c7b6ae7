/* http.c - makes one request with libcurl. Redirects are not followed here, because the caller
 * decides whether the next host gets the token. */
#include "hub/http.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/at.h"
#include "hub/curl.h"

enum {
    MAX_HEADER_BYTES = 64 << 10,
    MAX_REFUSAL_BYTES = 64 << 10,
    POLL_MS = 100,
    CONNECT_S = 10,
    IDLE_S = 10
};

struct osh_http {
    const osh_curl *curl; // view
    const osh_hub *hub;   // view
    const atomic_bool *stop;
    CURL *easy;   // own
    CURLM *multi; // own: multi handle, whose poll ends soon after an interrupt
    struct curl_slist *plain, *with_token; // own: lists of headers
    char agent[128], text[CURL_ERROR_SIZE];
    long idle_s;
    bool counted; // true if osh_mem_count has counted OSH_HTTP_BYTES
};

typedef struct transfer { // state of one request, for the callbacks
    osh_ctx *cx;
    osh_http *http;
    const osh_http_request *q;
    osh_http_reply *r;
    osh_status rc;
    bool began;
} transfer;

static struct curl_slist *http_add_header(const osh_http *h, struct curl_slist *list,
                                          const char *line)
{
    struct curl_slist *longer = list || line ? h->curl->curl_slist_append(list, line) : NULL;
    if (!longer) h->curl->curl_slist_free_all(list);
    return longer;
}

osh_status osh_http_open(osh_ctx *cx, osh_http **out, const osh_hub *hub, const atomic_bool *stop)
{
    osh_status rc = OSH_OK;
    osh_http *h = NULL;  // own
    char *bearer = NULL; // own
    const char *idle = hub->env("HF_HUB_DOWNLOAD_TIMEOUT");
    OSH_NEW(cx, h, 1);
    OSH_TRY(osh_curl_open(cx, &h->curl));
    OSH_TRY(osh_mem_count(cx, OSH_HTTP_BYTES));
    h->counted = true;
    h->hub = hub, h->stop = stop;
    h->idle_s = idle && atol(idle) > 0 && atol(idle) < 86400 ? atol(idle) : IDLE_S;
    snprintf(h->agent, sizeof h->agent, "oneshot/%s; %s", osh_version(), h->curl->version);
    h->plain = http_add_header(h, NULL, "Accept-Encoding: identity");
    if (hub->token) {
        if (!(bearer = osh_sprintf(cx, "Authorization: Bearer %s", hub->token)))
            OSH_TRY(OSH_E_NOMEM);
        h->with_token = http_add_header(h, NULL, "Accept-Encoding: identity");
        if (h->with_token) h->with_token = http_add_header(h, h->with_token, bearer);
    }
    h->easy = h->curl->curl_easy_init();
    h->multi = h->curl->curl_multi_init();
    if (!h->plain || (hub->token && !h->with_token) || !h->easy || !h->multi)
        OSH_FAIL(cx, OSH_E_NOMEM, "libcurl has no memory");
    *out = h, h = NULL; // give
done:
    osh_free(cx, bearer);
    osh_http_close(cx, h);
    return rc;
}

void osh_http_close(osh_ctx *cx, osh_http *h)
{
    if (!h) return;
    if (h->easy) h->curl->curl_easy_cleanup(h->easy);
    if (h->multi) h->curl->curl_multi_cleanup(h->multi);
    if (h->plain) h->curl->curl_slist_free_all(h->plain);
    if (h->with_token) h->curl->curl_slist_free_all(h->with_token);
    if (h->counted) osh_mem_uncount(cx, OSH_HTTP_BYTES);
    osh_free(cx, h);
}

void osh_http_reply_deinit(osh_ctx *cx, osh_http_reply *r)
{
    osh_free(cx, r->redirect);
    osh_buf_deinit(cx, &r->headers);
    osh_buf_deinit(cx, &r->body);
    osh_file_close(cx, r->long_body);
    *r = (osh_http_reply){0};
}

const char *osh_http_header(const osh_http_reply *r, const char *name, size_t *n)
{
    const char *found = "";
    size_t key = strlen(name);
    *n = 0;
    for (const char *s = r->headers.data; s && *s; s += strcspn(s, "\n"), s += *s == '\n') {
        if (strncasecmp(s, name, key) || s[key] != ':') continue;
        found = s + key + 1 + strspn(s + key + 1, " \t");
        *n = strcspn(found, "\r\n");
        while (*n && isspace((unsigned char)found[*n - 1])) --*n;
    }
    return found;
}

bool osh_http_header_is(const osh_http_reply *r, const char *name, const char *value)
{
    size_t n;
    const char *text = osh_http_header(r, name, &n);
    return n == strlen(value) && !memcmp(text, value, n);
}

/* Reads Content-Range: "bytes 100-199/1000". */
static void http_read_range(osh_http_reply *r)
{
    size_t n;
    long long from, to, total;
    char text[100];
    const char *value = osh_http_header(r, "Content-Range", &n);
    r->range_from = r->range_total = -1;
    snprintf(text, sizeof text, "%.*s", (int)(n < 99 ? n : 99), value);
    if (sscanf(text, "bytes %18lld-%18lld/%18lld", &from, &to, &total) != 3 || from < 0 ||
        to < from || total <= to)
        return;
    r->range_from = from, r->range_total = total;
}

int64_t osh_http_wait(const osh_http_reply *r)
{
    size_t n;
    long long left = 1, wait = -1;
    char text[200];
    /* The header has the form "resolvers";r=0;t=55. */
    const char *value = osh_http_header(r, "RateLimit", &n);
    snprintf(text, sizeof text, "%.*s", (int)(n < 199 ? n : 199), value);
    const char *at = strstr(text, "r=");
    if (at) sscanf(at, "r=%9lld;t=%9lld", &left, &wait);
    if (left == 0 && wait >= 0) return wait + 1;
    value = osh_http_header(r, "Retry-After", &n);
    if (!n || n > 9 || strspn(value, "0123456789") < n) return -1;
    return atoll(value) + 1;
}

static size_t http_on_header(char *p, size_t size, size_t n, void *user)
{
    transfer *t = user;
    n *= size;
    /* The answer of a proxy and an answer with status 100 have headers, too. Only the headers of
     * the last answer are stored. */
    if (n > 5 && !memcmp(p, "HTTP/", 5)) osh_buf_clear(&t->r->headers);
    if (!t->rc && t->r->headers.len + n > MAX_HEADER_BYTES)
        t->rc = osh_fail(t->cx, OSH_E_FORMAT, "%s: headers of more than %d bytes", t->q->url,
                         MAX_HEADER_BYTES);
    if (!t->rc) t->rc = osh_buf_append(t->cx, &t->r->headers, p, n);
    return t->rc ? 0 : n;
}

/* Opens a temporary file without a name, in HF_HOME, or in the cache if HF_HOME is not writable. */
static osh_status spool_open(osh_ctx *cx, osh_file **out, const osh_hub *hub)
{
    osh_at *dir = NULL; // own
    char *name = NULL;  // own
    osh_status rc = osh_at_open(cx, &dir, hub->home, "oneshot");
    if (rc == OSH_E_IO) osh_error_clear(cx), rc = osh_at_open(cx, &dir, hub->cache, "");
    if (!rc) rc = osh_at_create(cx, out, &name, dir, "answer-");
    if (name) rc = rc ? rc : osh_at_remove(cx, dir, name);
    osh_at_close(cx, dir);
    osh_free(cx, name);
    return rc;
}

/* Appends bytes to the body of an answer. A body of more than OSH_HTTP_BODY_BYTES is moved to a
 * file. */
static osh_status body_put(transfer *t, const char *p, size_t n)
{
    osh_status rc = OSH_OK;
    osh_http_reply *r = t->r;
    if (n > t->q->max_body - r->n_body)
        OSH_FAIL(t->cx, OSH_E_FORMAT, "%s: an answer of more than %zu bytes", t->q->url,
                 t->q->max_body);
    if (!r->long_body && r->n_body + n <= OSH_HTTP_BODY_BYTES) {
        OSH_TRY(osh_buf_append(t->cx, &r->body, p, n));
    } else {
        if (!r->long_body) {
            OSH_TRY(spool_open(t->cx, &r->long_body, t->http->hub));
            OSH_TRY(osh_file_pwrite(t->cx, r->long_body, r->body.data ? r->body.data : "",
                                    r->body.len, 0));
            osh_buf_clear(&r->body);
        }
        OSH_TRY(osh_file_pwrite(t->cx, r->long_body, p, n, (int64_t)r->n_body));
    }
    r->n_body += n;
done:
    return rc;
}

static size_t http_on_body(char *p, size_t size, size_t n, void *user)
{
    transfer *t = user;
    long status = 0;
    n *= size;
    t->http->curl->curl_easy_getinfo(t->http->easy, CURLINFO_RESPONSE_CODE, &status);
    bool wanted = status == 200 || status == 206;
    if (wanted && t->q->take) {
        t->r->status = status;
        if (!t->began) http_read_range(t->r), t->rc = t->q->begin(t->cx, t->q->user, t->r);
        t->began = true;
        if (!t->rc) t->rc = t->q->take(t->cx, t->q->user, p, n);
        return t->rc ? 0 : n;
    }
    if (wanted)
        t->rc = body_put(t, p, n);
    else if (t->r->body.len + n <= MAX_REFUSAL_BYTES)
        t->rc = osh_buf_append(t->cx, &t->r->body, p, n);
    return t->rc ? 0 : n;
}

/* Sets the proxy that the variable HTTP_PROXY names. libcurl itself reads the other variables of
 * proxies. It ignores HTTP_PROXY, because in a CGI program a client could set this variable. */
static void http_set_proxy(osh_http *h, const char *url)
{
    const char *proxy = h->hub->env("HTTP_PROXY");
    if (strncasecmp(url, "http:", 5) || !proxy || !*proxy || h->hub->env("http_proxy")) return;
    h->curl->curl_easy_setopt(h->easy, CURLOPT_PROXY, proxy);
}

/* Returns the path of the file with the system's trusted certificates, or NULL if libcurl uses its
 * default. */
static const char *http_certificates(const osh_http *h)
{
    static const char *const places[] = {"/etc/ssl/certs/ca-certificates.crt",
                                         "/etc/pki/tls/certs/ca-bundle.crt",
                                         "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"};
    const char *file = h->hub->env("SSL_CERT_FILE");
    if (file && *file) return file;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (osh_file_exists(places[i])) return places[i];
    return NULL;
}

static void http_set_options(osh_http *h, transfer *t, const char *range)
{
    const osh_curl *c = h->curl;
    const char *file = http_certificates(h), *dir = h->hub->env("SSL_CERT_DIR");
    c->curl_easy_reset(h->easy);
    c->curl_easy_setopt(h->easy, CURLOPT_URL, t->q->url);
    c->curl_easy_setopt(h->easy, CURLOPT_NOSIGNAL, 1L);
    c->curl_easy_setopt(h->easy, CURLOPT_USERAGENT, h->agent);
    c->curl_easy_setopt(h->easy, CURLOPT_HTTPHEADER,
                        t->q->with_token && h->with_token ? h->with_token : h->plain);
    /* With CURLHEADER_SEPARATE the headers (such as the token) are not sent to a proxy. */
    c->curl_easy_setopt(h->easy, CURLOPT_HEADEROPT, (long)CURLHEADER_SEPARATE);
    c->curl_easy_setopt(h->easy, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_S);
    c->curl_easy_setopt(h->easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
    c->curl_easy_setopt(h->easy, CURLOPT_LOW_SPEED_TIME, h->idle_s);
    c->curl_easy_setopt(h->easy, CURLOPT_BUFFERSIZE, 262144L);
    c->curl_easy_setopt(h->easy, CURLOPT_ERRORBUFFER, h->text);
    c->curl_easy_setopt(h->easy, CURLOPT_HEADERFUNCTION, http_on_header);
    c->curl_easy_setopt(h->easy, CURLOPT_HEADERDATA, t);
    c->curl_easy_setopt(h->easy, CURLOPT_WRITEFUNCTION, http_on_body);
    c->curl_easy_setopt(h->easy, CURLOPT_WRITEDATA, t);
    if (*range) c->curl_easy_setopt(h->easy, CURLOPT_RANGE, range);
    if (file) c->curl_easy_setopt(h->easy, CURLOPT_CAINFO, file);
    if (dir && *dir) c->curl_easy_setopt(h->easy, CURLOPT_CAPATH, dir);
    http_set_proxy(h, t->q->url);
}

/* Runs the request until it is complete, or *stop is true, or the job is interrupted. */
static osh_status http_perform(osh_ctx *cx, osh_http *h, CURLcode *code)
{
    osh_status rc = OSH_OK;
    int running = 1, left = 0;
    *code = CURLE_FAILED_INIT;
    if (h->curl->curl_multi_add_handle(h->multi, h->easy))
        OSH_FAIL(cx, OSH_E_NOMEM, "libcurl has no memory");
    while (running) {
        CURLMcode m = h->curl->curl_multi_perform(h->multi, &running);
        if (!m && running) m = h->curl->curl_multi_poll(h->multi, NULL, 0, POLL_MS, NULL);
        if (m) OSH_FAIL(cx, OSH_E_IO, "libcurl: %s", h->curl->curl_multi_strerror(m));
        OSH_TRY(osh_check_interrupt(cx));
        if (h->stop && atomic_load(h->stop)) OSH_FAIL(cx, OSH_E_INTERRUPTED, "another file failed");
    }
    for (CURLMsg *m; (m = h->curl->curl_multi_info_read(h->multi, &left));)
        if (m->msg == CURLMSG_DONE) *code = m->data.result;
done:
    h->curl->curl_multi_remove_handle(h->multi, h->easy);
    return rc;
}

osh_status osh_http_get(osh_ctx *cx, osh_http *h, osh_http_reply *r, const osh_http_request *q)
{
    osh_status rc = OSH_OK;
    CURLcode code;
    char range[64] = "", *url = NULL;
    transfer t = {.cx = cx, .http = h, .q = q, .r = r};
    osh_http_reply_deinit(cx, r);
    osh_buf_init(&r->headers, 0), osh_buf_init(&r->body, 0);
    if (!osh_http_is_url(q->url))
        OSH_FAIL(cx, OSH_E_FORMAT, "'%.200s' is not an address that begins with http", q->url);
    if (q->to) snprintf(range, sizeof range, "%lld-%lld", (long long)q->from, (long long)q->to - 1);
    else if (q->from) snprintf(range, sizeof range, "%lld-", (long long)q->from);
    h->text[0] = 0;
    http_set_options(h, &t, range);
    rc = http_perform(cx, h, &code);
    if (t.rc) rc = t.rc; // status of a callback that has failed
    if (rc) goto done;
    r->status = 0;
    if (!code) h->curl->curl_easy_getinfo(h->easy, CURLINFO_RESPONSE_CODE, &r->status);
    else
        snprintf(r->why, sizeof r->why, "%s",
                 *h->text ? h->text : h->curl->curl_easy_strerror(code));
    r->unreached = code == CURLE_COULDNT_CONNECT || code == CURLE_COULDNT_RESOLVE_HOST ||
                   code == CURLE_COULDNT_RESOLVE_PROXY;
    if (code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE)
        OSH_FAIL(cx, OSH_E_IO, "%s: %s", q->url, r->why);
    http_read_range(r);
    // an empty file has no first byte, so `begin` was not called yet
    if (!code && q->take && !t.began && (r->status == 200 || r->status == 206))
        OSH_TRY(q->begin(cx, q->user, r));
    if (!code) h->curl->curl_easy_getinfo(h->easy, CURLINFO_REDIRECT_URL, &url);
    if (url && !(r->redirect = osh_strdup(cx, url))) rc = OSH_E_NOMEM;
done:
    return rc;
}

/* Returns a pointer to "host:port" in the address and sets *n to its length. *n is 0 if the address
 * is not http or https. */
static const char *url_host(const char *url, size_t *n)
{
    size_t scheme = !strncasecmp(url, "http://", 7) ? 7 : !strncasecmp(url, "https://", 8) ? 8 : 0;
    *n = scheme ? strcspn(url + scheme, "/?#") : 0;
    return url + scheme;
}

bool osh_http_is_url(const char *url)
{
    size_t n;
    const char *host = url_host(url, &n);
    for (const char *s = url; *s; s++)
        if ((unsigned char)*s <= ' ' || *s == 127 || *s == '\\') return false;
    return n && host[0] != ':' && !memchr(host, '@', n);
}

bool osh_http_same_host(const char *a, const char *b)
{
    size_t n, k;
    const char *x = url_host(a, &n), *y = url_host(b, &k);
    return n && n == k && !strncasecmp(x, y, n);
}

osh_status osh_http_encode(osh_ctx *cx, osh_buf *b, const char *text, const char *keep)
{
    osh_status rc = OSH_OK;
    for (const unsigned char *s = (const unsigned char *)text; *s; s++) {
        bool plain = isalnum(*s) || strchr("-._~", *s) || strchr(keep, *s);
        OSH_TRY(osh_buf_printf(cx, b, plain ? "%c" : "%%%02X", *s));
    }
done:
    return rc;
}
