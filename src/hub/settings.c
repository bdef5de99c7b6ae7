/* settings.c - reads the settings of the Hub from environment variables, by the rules of
 * huggingface_hub. */
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "base/file.h"
#include "hub/hub.h"

/* True if the value is 1, on, yes or true, in upper or lower case. */
static bool setting_is_true(const char *value)
{
    static const char *const words[] = {"1", "on", "yes", "true"};
    for (size_t i = 0; value && i < sizeof words / sizeof *words; i++)
        if (!strcasecmp(value, words[i])) return true;
    return false;
}

/* Returns the value of an environment variable, or NULL if the variable is not set or is empty. */
static const char *env_text(osh_env_fn env, const char *name)
{
    const char *value = env(name);
    return value && *value ? value : NULL;
}

/* Sets *out (own) to the path after the expansion of a leading ~, and of each $NAME or ${NAME}. A
 * variable that does not exist stays as it is, as in Python's expandvars. */
static osh_status path_expand(osh_ctx *cx, char **out, const char *path, osh_env_fn env)
{
    osh_status rc = OSH_OK;
    osh_buf b; // own
    osh_buf_init(&b, 0);
    const char *home = env_text(env, "HOME");
    if (home && path[0] == '~' && (!path[1] || path[1] == '/')) {
        OSH_TRY(osh_buf_printf(cx, &b, "%s", home));
        path++;
    }
    while (*path) {
        size_t plain = strcspn(path, "$");
        OSH_TRY(osh_buf_append(cx, &b, path, plain));
        path += plain;
        if (!*path) break;
        bool braces = path[1] == '{';
        const char *name = path + 1 + braces;
        size_t n = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_");
        char key[256] = "";
        if (n < sizeof key) memcpy(key, name, n);
        const char *value = n && (!braces || name[n] == '}') ? env(key) : NULL;
        size_t whole = value ? (size_t)(name - path) + n + braces : 1;
        if (value) OSH_TRY(osh_buf_printf(cx, &b, "%s", value));
        else OSH_TRY(osh_buf_append(cx, &b, path, 1));
        path += whole;
    }
    if (!(*out = osh_strdup(cx, b.data ? b.data : ""))) rc = OSH_E_NOMEM;
done:
    osh_buf_deinit(cx, &b);
    return rc;
}

static osh_status hub_find_home(osh_ctx *cx, char **out, osh_env_fn env)
{
    osh_status rc = OSH_OK;
    char *path = NULL; // own
    const char *home = env_text(env, "HF_HOME"), *xdg = env_text(env, "XDG_CACHE_HOME");
    if (!home && !(path = osh_path_join(cx, xdg ? xdg : "~/.cache", "huggingface")))
        OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(path_expand(cx, out, home ? home : path, env));
done:
    osh_free(cx, path);
    return rc;
}

enum { MAX_TOKEN_BYTES = 4096 };

/* Copies the token to *out (own). Drops all control characters, and white space around the token,
 * because the token becomes part of a header. *out is NULL if the token is empty. */
static osh_status token_clean(osh_ctx *cx, char **out, const char *text)
{
    osh_status rc = OSH_OK;
    size_t n = 0;
    char *token = osh_strdup(cx, text + strspn(text, " \t\r\n")); // own
    if (!token) OSH_TRY(OSH_E_NOMEM);
    for (const char *s = token; *s; s++)
        if ((unsigned char)*s >= ' ') token[n++] = *s;
    while (n && token[n - 1] == ' ') n--;
    token[n] = 0;
    if (n) *out = token, token = NULL; // give
done:
    osh_free(cx, token);
    return rc;
}

static osh_status hub_find_token(osh_ctx *cx, char **out, const char *home, osh_env_fn env)
{
    osh_status rc = OSH_OK;
    char *path = NULL, *text = NULL; // own
    size_t n = 0;
    const char *value = env_text(env, "HF_TOKEN"), *named = env_text(env, "HF_TOKEN_PATH");
    if (setting_is_true(env("HF_HUB_DISABLE_IMPLICIT_TOKEN"))) goto done;
    if (!value) value = env_text(env, "HUGGING_FACE_HUB_TOKEN");
    if (!value) {
        if (named) OSH_TRY(path_expand(cx, &path, named, env));
        else if (!(path = osh_path_join(cx, home, "token"))) OSH_TRY(OSH_E_NOMEM);
        if (!osh_file_exists(path)) goto done;
        OSH_TRY(osh_file_read_all(cx, &text, &n, path, MAX_TOKEN_BYTES));
        value = text;
    }
    OSH_TRY(token_clean(cx, out, value));
done:
    osh_free(cx, text);
    osh_free(cx, path);
    return rc;
}

/* Returns the address (own) of the datasets server for an endpoint:
 * https://datasets-server.huggingface.co for https://huggingface.co. */
static char *hub_rows_server(osh_ctx *cx, const char *endpoint, osh_env_fn env)
{
    const char *given = env_text(env, "HF_DATASETS_SERVER"), *host = strstr(endpoint, "://");
    size_t n = given ? strlen(given) : 0;
    while (n && given[n - 1] == '/') n--;
    if (given || !host) return osh_sprintf(cx, "%.*s", (int)n, given ? given : "");
    return osh_sprintf(cx, "%.*s://datasets-server.%s", (int)(host - endpoint), endpoint, host + 3);
}

osh_status osh_hub_open(osh_ctx *cx, osh_hub **out, osh_env_fn env)
{
    osh_status rc = OSH_OK;
    osh_hub *hub = NULL; // own
    char *home = NULL;   // own
    const char *cache = env_text(env, "HF_HUB_CACHE"), *endpoint = env_text(env, "HF_ENDPOINT");
    const char *offline = env("HF_HUB_OFFLINE");
    OSH_NEW(cx, hub, 1);
    hub->env = env;
    hub->offline = setting_is_true(offline ? offline : env("TRANSFORMERS_OFFLINE"));
    hub->no_links = setting_is_true(env("HF_HUB_DISABLE_SYMLINKS"));
    if (!cache) cache = env_text(env, "HUGGINGFACE_HUB_CACHE");
    OSH_TRY(hub_find_home(cx, &home, env));
    if (cache) OSH_TRY(path_expand(cx, &hub->cache, cache, env));
    else if (!(hub->cache = osh_path_join(cx, home, "hub"))) OSH_TRY(OSH_E_NOMEM);
    if (!(hub->endpoint = osh_strdup(cx, endpoint ? endpoint : "https://huggingface.co")))
        OSH_TRY(OSH_E_NOMEM);
    for (size_t n = strlen(hub->endpoint); n && hub->endpoint[n - 1] == '/'; n--)
        hub->endpoint[n - 1] = 0;
    if (!(hub->rows = hub_rows_server(cx, hub->endpoint, env))) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(hub_find_token(cx, &hub->token, home, env));
    hub->home = home, home = NULL; // give
    *out = hub, hub = NULL; // give
done:
    osh_free(cx, home);
    osh_hub_close(cx, hub);
    return rc;
}

void osh_hub_close(osh_ctx *cx, osh_hub *hub)
{
    if (!hub) return;
    osh_free(cx, hub->home);
    osh_free(cx, hub->cache);
    osh_free(cx, hub->rows);
    osh_free(cx, hub->endpoint);
    osh_free(cx, hub->token);
    osh_free(cx, hub);
}
