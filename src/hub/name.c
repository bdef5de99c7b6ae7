/* name.c - checks names of repositories and of files, and finds the directory of a repository in
 * the cache.
 *
 *   "org/name"                  a repository at revision main
 *   "org/name@refs/pr/1"        a repository at a branch, a tag or a commit of 40 hex digits
 *   "models/x/y" "./a" "/a/b"   paths */
#include <ctype.h>
#include <string.h>

#include "hub/hub.h"

/* Largest lengths in bytes: of a part of a name, of a revision, of the path of a file, and of a
 * part of this path (which file systems limit). */
enum { MAX_PART = 96, MAX_REVISION = 200, MAX_FILE = 1000, MAX_FILE_PART = 255 };

static bool name_part_is_valid(const char *s, size_t n)
{
    if (!n || n > MAX_PART || (!isalnum((unsigned char)s[0]) && s[0] != '_')) return false;
    if (!isalnum((unsigned char)s[n - 1]) && s[n - 1] != '_') return false;
    for (size_t i = 0; i < n; i++) {
        if (!isalnum((unsigned char)s[i]) && !strchr("_.-", s[i])) return false;
        /* A name must not contain ".." or "--". In the cache, "--" separates the parts of a
         * name. */
        if (i && s[i] == s[i - 1] && (s[i] == '-' || s[i] == '.')) return false;
    }
    return !(n > 4 && !memcmp(s + n - 4, ".git", 4));
}

bool osh_hub_file_is_safe(const char *name)
{
    size_t n = strlen(name);
    if (!n || n > MAX_FILE || strchr(name, '\\')) return false;
    for (const char *s = name; *s; s++)
        if ((unsigned char)*s < ' ' || *s == 127) return false;
    for (const char *s = name;; s++) { // checks each part between slashes
        size_t k = strcspn(s, "/");
        if (!k || k > MAX_FILE_PART || (k == 1 && s[0] == '.') ||
            (k == 2 && s[0] == '.' && s[1] == '.'))
            return false;
        s += k;
        if (!*s) return true;
    }
}

bool osh_hub_is_commit(const char *text)
{
    return strlen(text) == 40 && strspn(text, "0123456789abcdef") == 40;
}

osh_status osh_hub_name_read(osh_ctx *cx, osh_hub_name *out, bool *is, const char *text)
{
    osh_status rc = OSH_OK;
    const char *slash = strchr(text, '/'), *at = strchr(text, '@');
    size_t n = at ? (size_t)(at - text) : strlen(text);
    *out = (osh_hub_name){0};
    *is = slash && slash < text + n && name_part_is_valid(text, (size_t)(slash - text)) &&
          name_part_is_valid(slash + 1, n - 1 - (size_t)(slash - text)) &&
          (!at || (strlen(at + 1) <= MAX_REVISION && osh_hub_file_is_safe(at + 1)));
    if (!*is) goto done;
    out->id = osh_sprintf(cx, "%.*s", (int)n, text);
    out->revision = osh_strdup(cx, at ? at + 1 : "main");
    if (!out->id || !out->revision) rc = OSH_E_NOMEM;
done:
    if (rc) osh_hub_name_deinit(cx, out);
    return rc;
}

void osh_hub_name_deinit(osh_ctx *cx, osh_hub_name *name)
{
    osh_free(cx, name->id);
    osh_free(cx, name->revision);
    *name = (osh_hub_name){0};
}

osh_status osh_hub_id_of_dir(osh_ctx *cx, char **id, const char *dir)
{
    osh_status rc = OSH_OK;
    static const char models[] = "models--", snapshots[] = "/snapshots/";
    char *path = osh_strdup(cx, dir), *name, *at; // own: path
    osh_hub_name hub = {0};                       // own
    bool is = false;
    *id = NULL;
    if (!path) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a path");
    for (size_t n = strlen(path); n > 1 && path[n - 1] == '/'; n--) path[n - 1] = 0;
    at = strrchr(path, '/');
    if (!at || !osh_hub_is_commit(at + 1)) goto done;
    at -= at - path < (ptrdiff_t)sizeof snapshots ? 0 : sizeof snapshots - 2;
    if (strncmp(at, snapshots, sizeof snapshots - 1)) goto done;
    *at = 0;
    name = strrchr(path, '/');
    name = name ? name + 1 : path;
    if (strncmp(name, models, sizeof models - 1)) goto done;
    name += sizeof models - 1;
    if (!(at = strstr(name, "--"))) goto done;
    at[0] = '/', memmove(at + 1, at + 2, strlen(at + 2) + 1);
    OSH_TRY(osh_hub_name_read(cx, &hub, &is, name));
    if (is) *id = hub.id, hub.id = NULL; // give
done:
    osh_hub_name_deinit(cx, &hub);
    osh_free(cx, path);
    return rc;
}

char *osh_hub_repo_dir(osh_ctx *cx, const osh_hub *hub, const osh_hub_name *name)
{
    int n = (int)strcspn(name->id, "/");
    return osh_sprintf(cx, "%s/%s--%.*s--%s", hub->cache,
                       name->kind == OSH_HUB_DATASET ? "datasets" : "models", n, name->id,
                       name->id + n + 1);
}
