/* snapshot.c - a model in the cache: which commit its revision means there, and whether its files are all there. */
#include <ctype.h>
#include <string.h>

#include "base/file.h"
#include "base/map.h"
#include "hub/hub.h"
#include "text/json.h"

enum { MAX_REF_BYTES = 4096, MAX_INDEX_BYTES = 64 << 20, MAX_NAMED = 4 };

/* own; NULL: the cache does not know the revision */
static osh_status find_commit(osh_ctx *cx, char **out, const char *repo, const char *revision)
{
    osh_status rc = OSH_OK;
    char *path = NULL, *text = NULL; // own
    size_t n = 0;
    if (osh_hub_is_commit(revision)) {
        if (!(*out = osh_strdup(cx, revision))) rc = OSH_E_NOMEM;
        goto done;
    }
    if (!(path = osh_sprintf(cx, "%s/refs/%s", repo, revision))) OSH_TRY(OSH_E_NOMEM);
    if (!osh_file_exists(path)) goto done;
    OSH_TRY(osh_file_read_all(cx, &text, &n, path, MAX_REF_BYTES));
    while (n && isspace((unsigned char)text[n - 1])) text[--n] = 0;
    if (!osh_hub_is_commit(text))
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: wanted a commit of 40 hex digits, got '%.60s'", path, text);
    *out = text, text = NULL; // give
done:
    osh_free(cx, text);
    osh_free(cx, path);
    return rc;
}

typedef struct lacking { // names of files that are not there
    osh_buf text;
    int n;
} lacking;

static osh_status look_for(osh_ctx *cx, lacking *l, const char *dir, const char *name, bool *there)
{
    osh_status rc = OSH_OK;
    char *path = osh_path_join(cx, dir, name); // own
    if (!path) OSH_TRY(OSH_E_NOMEM);
    *there = osh_file_exists(path);
    if (*there || !l) goto done;
    if (l->n < MAX_NAMED) OSH_TRY(osh_buf_printf(cx, &l->text, "%s%s", l->n ? ", " : "", name));
    l->n++;
done:
    osh_free(cx, path);
    return rc;
}

/* The shards of the index, each once. */
static osh_status look_for_shards(osh_ctx *cx, lacking *l, const char *dir)
{
    osh_status rc = OSH_OK;
    cJSON *index = NULL;  // own
    osh_map *seen = NULL; // own
    bool there = false;
    int64_t unused;
    char *path = osh_path_join(cx, dir, "model.safetensors.index.json"); // own
    if (!path) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(osh_json_read(cx, &index, path, MAX_INDEX_BYTES, 0));
    const cJSON *map = cJSON_IsObject(index) ? cJSON_GetObjectItemCaseSensitive(index, "weight_map") : NULL;
    OSH_TRY(osh_map_new(cx, &seen, 0));
    for (const cJSON *w = cJSON_IsObject(map) ? map->child : NULL; w; w = w->next) {
        const char *name = cJSON_IsString(w) ? w->valuestring : "";
        if (!osh_hub_file_is_safe(name)) OSH_FAIL(cx, OSH_E_FORMAT, "%s: '%.200s' is no name of a file", path, name);
        if (osh_map_get(seen, name, strlen(name), &unused)) continue;
        OSH_TRY(osh_map_put(cx, seen, name, strlen(name), 0));
        OSH_TRY(look_for(cx, l, dir, name, &there));
    }
done:
    osh_map_free(cx, seen);
    cJSON_Delete(index);
    osh_free(cx, path);
    return rc;
}

static osh_status find_missing(osh_ctx *cx, char **missing, const char *dir)
{
    osh_status rc = OSH_OK;
    lacking l = {0};
    bool there = false, single = false, index = false;
    osh_buf_init(&l.text, 0);
    OSH_TRY(look_for(cx, &l, dir, "config.json", &there));
    OSH_TRY(look_for(cx, NULL, dir, "model.safetensors.index.json", &index));
    OSH_TRY(look_for(cx, index ? NULL : &l, dir, "model.safetensors", &single));
    if (index && !single) OSH_TRY(look_for_shards(cx, &l, dir));
    if (l.n > MAX_NAMED) OSH_TRY(osh_buf_printf(cx, &l.text, " and %d more", l.n - MAX_NAMED));
    if (l.n && !(*missing = osh_strdup(cx, l.text.data))) rc = OSH_E_NOMEM;
done:
    osh_buf_deinit(cx, &l.text);
    return rc;
}

osh_status osh_hub_find(osh_ctx *cx, char **dir, char **missing, const osh_hub *hub, const osh_hub_name *name)
{
    osh_status rc = OSH_OK;
    char *commit = NULL, *path = NULL; // own
    char *repo = osh_hub_repo_dir(cx, hub, name); // own
    *dir = *missing = NULL;
    if (!repo) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(find_commit(cx, &commit, repo, name->revision));
    if (!commit) goto done;
    if (!(path = osh_sprintf(cx, "%s/snapshots/%s", repo, commit))) OSH_TRY(OSH_E_NOMEM);
    if (!osh_dir_exists(path)) goto done;
    OSH_TRY(find_missing(cx, missing, path));
    *dir = path, path = NULL; // give
done:
    osh_free(cx, path);
    osh_free(cx, commit);
    osh_free(cx, repo);
    return rc;
}

osh_status osh_hub_model(osh_ctx *cx, char **dir, const char *model, bool headers, osh_env_fn env)
{
    osh_status rc = OSH_OK;
    osh_hub_name name = {0};                // own
    osh_hub *hub = NULL;                    // own
    char *found = NULL, *missing = NULL;    // own
    bool is_name = false;
    if (!osh_dir_exists(model)) OSH_TRY(osh_hub_name_read(cx, &name, &is_name, model));
    if (!is_name) { // what opens it says what it lacks
        if (!(*dir = osh_strdup(cx, model))) rc = OSH_E_NOMEM;
        goto done;
    }
    OSH_TRY(osh_hub_open(cx, &hub, env));
    OSH_TRY(osh_hub_find(cx, &found, &missing, hub, &name));
    if (!found && hub->offline)
        OSH_FAIL(cx, OSH_E_IO, "%s: is not a directory, and the cache %s has no %s at revision %s", model, hub->cache,
                 name.id, name.revision);
    if (missing && hub->offline) OSH_FAIL(cx, OSH_E_IO, "%s: its snapshot lacks %s, in %s", model, missing, found);
    if (!found || missing) {
        osh_free(cx, found), found = NULL;
        rc = (headers ? osh_hub_pull_headers : osh_hub_pull)(cx, &found, hub, &name);
        if (rc) osh_note(cx, "looking for a model that is no directory here and not whole in %s", hub->cache);
        OSH_TRY(rc);
    }
    osh_log(cx, OSH_LOG_INFO, "%s is %s", model, found);
    *dir = found, found = NULL; // give
done:
    osh_free(cx, found);
    osh_free(cx, missing);
    osh_hub_close(cx, hub);
    osh_hub_name_deinit(cx, &name);
    return rc;
}
