/* snapshot.c - finds a model in the cache: the commit of the revision, and the files that the
 * snapshot of this commit lacks. */
#include <ctype.h>
#include <string.h>

#include "base/file.h"
#include "base/inode.h"
#include "base/map.h"
#include "hub/pull.h"

enum { MAX_REF_BYTES = 4096, MAX_NAME = 4096, MAX_SHARDS = 16384, MAX_NAMED = 4 };

/* Sets *out (own) to the commit of the revision, or to NULL if the cache does not have the
 * revision. */
static osh_status snapshot_find_commit(osh_ctx *cx, char **out, const char *repo,
                                       const char *revision)
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

typedef struct lacking { // list of missing files
    osh_buf text;
    int n;
} lacking;

static osh_status lacking_add(osh_ctx *cx, lacking *l, const char *name)
{
    osh_status rc = OSH_OK;
    if (l->n < MAX_NAMED) rc = osh_buf_printf(cx, &l->text, "%s%s", l->n ? ", " : "", name);
    l->n++;
    return rc;
}

/* Sets *there to true if the file exists. If the file is missing and l is not NULL, adds the name
 * to the list l. */
static osh_status look_for(osh_ctx *cx, lacking *l, const char *dir, const char *name, bool *there)
{
    osh_status rc = OSH_OK;
    char *path = osh_path_join(cx, dir, name); // own
    if (!path) OSH_TRY(OSH_E_NOMEM);
    *there = osh_file_exists(path);
    if (!*there && l) OSH_TRY(lacking_add(cx, l, name));
done:
    osh_free(cx, path);
    return rc;
}

/* Adds the name to the list l if the file is missing or its size is not n_bytes. */
static osh_status look_for_size(osh_ctx *cx, lacking *l, const char *dir, const char *name,
                                int64_t n_bytes)
{
    osh_status rc = OSH_OK;
    int64_t has = -1, unused;
    char *path = osh_path_join(cx, dir, name); // own
    if (!path) OSH_TRY(OSH_E_NOMEM);
    if (osh_file_exists(path)) OSH_TRY(osh_file_stat(cx, &has, &unused, path));
    if (has != n_bytes) OSH_TRY(lacking_add(cx, l, name));
done:
    osh_free(cx, path);
    return rc;
}

typedef struct index_names { // state while a list of file names is read
    lacking *l;
    const char *dir;
    osh_map *seen; // own
    osh_buf name;  // own
} index_names;

static osh_status look_for_shard(osh_ctx *cx, void *user, osh_json_walk *w, const char *key)
{
    osh_status rc = OSH_OK;
    index_names *s = user;
    bool there;
    int64_t unused;
    OSH_TRY(osh_json_walk_string(w, &s->name, key));
    const char *name = s->name.data ? s->name.data : "";
    if (!osh_hub_file_is_safe(name))
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: '%.200s' is not a file name", w->s.what, name);
    if (osh_map_get(s->seen, name, s->name.len, &unused)) goto done;
    if (osh_map_count(s->seen) == MAX_SHARDS)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: names more than %d files", w->s.what, MAX_SHARDS);
    OSH_TRY(osh_map_put(cx, s->seen, name, s->name.len, 0));
    OSH_TRY(look_for(cx, s->l, s->dir, name, &there));
done:
    return rc;
}

static osh_status look_in_index(osh_ctx *cx, void *user, osh_json_walk *w, const char *key)
{
    (void)cx;
    bool wanted = !strcmp(key, "weight_map") && osh_json_walk_peek(w) == '{';
    return wanted ? osh_json_walk_members(w, look_for_shard, user) : osh_json_walk_skip(w);
}

/* Calls `member` for each member of the JSON object in the file. */
static osh_status json_file_members(osh_ctx *cx, const char *path, osh_json_walk_fn member,
                                    void *user)
{
    osh_status rc = OSH_OK;
    osh_file *file = NULL; // own
    osh_json_walk w = {0}; // own
    OSH_TRY(osh_file_open(cx, &file, path));
    OSH_TRY(osh_json_walk_file(cx, &w, file, path));
    OSH_TRY(osh_json_walk_members(&w, member, user));
    OSH_TRY(osh_json_walk_end(&w));
done:
    osh_json_walk_deinit(cx, &w);
    osh_file_close(cx, file);
    return rc;
}

/* Adds to the list l the shards that the index names and the snapshot lacks. */
static osh_status look_for_shards(osh_ctx *cx, lacking *l, const char *dir)
{
    osh_status rc = OSH_OK;
    index_names s = {.l = l, .dir = dir};                                // own
    char *path = osh_path_join(cx, dir, "model.safetensors.index.json"); // own
    osh_buf_init(&s.name, MAX_NAME);
    if (!path) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(osh_map_new(cx, &s.seen, 0));
    OSH_TRY(json_file_members(cx, path, look_in_index, &s));
done:
    osh_map_free(cx, s.seen);
    osh_buf_deinit(cx, &s.name);
    osh_free(cx, path);
    return rc;
}

/* True if an output would be incomplete without the file. False for licence, README and code. */
static bool file_is_needed(const char *path)
{
    size_t n = strlen(path);
    return osh_hub_is_side_file(path) && strncmp(path, "LICENSE", 7) && strcmp(path, "README.md") &&
           strcmp(path + n - 3, ".py");
}

static osh_status look_for_entry(osh_ctx *cx, void *user, osh_json_walk *w, const char *key)
{
    osh_status rc = OSH_OK;
    index_names *s = user;
    bool there;
    if (osh_hub_file_is_safe(key) && file_is_needed(key))
        OSH_TRY(look_for(cx, s->l, s->dir, key, &there));
    OSH_TRY(osh_json_walk_skip(w));
done:
    return rc;
}

static osh_status look_in_list(osh_ctx *cx, void *user, osh_json_walk *w, const char *key)
{
    (void)cx;
    bool wanted = !strcmp(key, "files") && osh_json_walk_peek(w) == '{';
    return wanted ? osh_json_walk_members(w, look_for_entry, user) : osh_json_walk_skip(w);
}

/* huggingface_hub may have stored a list of the commit's files. If a file of that list is missing,
 * adds it to the list l. Does nothing if there is no such list. */
static osh_status look_for_listed(osh_ctx *cx, lacking *l, const char *repo, const char *commit,
                                  const char *dir)
{
    osh_status rc = OSH_OK;
    index_names s = {.l = l, .dir = dir};
    char *path = osh_sprintf(cx, "%s/trees/%s.json", repo, commit); // own
    if (!path) OSH_TRY(OSH_E_NOMEM);
    if (osh_file_exists(path)) OSH_TRY(json_file_members(cx, path, look_in_list, &s));
done:
    osh_free(cx, path);
    return rc;
}

/* Looks at the links in the root of the snapshot. If the target of a link does not exist, adds the
 * name of the link to the list l. */
static osh_status look_for_targets(osh_ctx *cx, lacking *l, const char *dir)
{
    osh_status rc = OSH_OK;
    char **names = NULL, *path = NULL; // own
    size_t n = 0;
    bool there = false;
    OSH_TRY(osh_dir_list(cx, &names, &n, dir));
    for (size_t i = 0; i < n; i++) {
        if (!(path = osh_path_join(cx, dir, names[i]))) OSH_TRY(OSH_E_NOMEM);
        bool dangles = osh_inode_at(path).kind == OSH_INODE_LINK && !osh_file_exists(path) &&
                       !osh_dir_exists(path);
        /* The caller has already checked config.json and the safetensors files, and listed them if
         * they are missing. */
        bool known = !strcmp(names[i], "config.json") || strstr(names[i], ".safetensors");
        if (dangles && !known) OSH_TRY(look_for(cx, l, dir, names[i], &there));
        osh_free(cx, path), path = NULL;
    }
done:
    osh_free(cx, path);
    osh_strings_free(cx, names, n);
    return rc;
}

/* Adds an incomplete download in the directory blobs to the list l. The name of its file in the
 * snapshot is unknown. */
static osh_status look_for_partial(osh_ctx *cx, lacking *l, const char *repo)
{
    osh_status rc = OSH_OK;
    char **names = NULL; // own
    size_t n = 0;
    char *blobs = osh_path_join(cx, repo, "blobs"); // own
    if (!blobs) OSH_TRY(OSH_E_NOMEM);
    if (!osh_dir_exists(blobs)) goto done;
    OSH_TRY(osh_dir_list(cx, &names, &n, blobs));
    for (size_t i = 0; i < n; i++) {
        size_t k = strlen(names[i]);
        if (k < sizeof ".incomplete" ||
            strcmp(names[i] + k - (sizeof ".incomplete" - 1), ".incomplete"))
            continue;
        OSH_TRY(osh_buf_printf(cx, &l->text,
                               "%sthe file of blobs/%s (its download was interrupted)",
                               l->n ? ", " : "", names[i]));
        l->n++;
        break;
    }
done:
    osh_strings_free(cx, names, n);
    osh_free(cx, blobs);
    return rc;
}

/* Checks a snapshot without a mark (mark.h), which another program has made. */
static osh_status look_for_unmarked(osh_ctx *cx, lacking *l, const char *repo, const char *commit,
                                    const char *dir)
{
    osh_status rc = OSH_OK;
    bool there = false, single = false, index = false;
    OSH_TRY(look_for(cx, l, dir, "config.json", &there));
    OSH_TRY(look_for(cx, NULL, dir, "model.safetensors.index.json", &index));
    OSH_TRY(look_for(cx, index ? NULL : l, dir, "model.safetensors", &single));
    if (index && !single) OSH_TRY(look_for_shards(cx, l, dir));
    OSH_TRY(look_for_targets(cx, l, dir));
    if (!l->n) OSH_TRY(look_for_listed(cx, l, repo, commit, dir));
    if (!l->n) OSH_TRY(look_for_partial(cx, l, repo));
done:
    return rc;
}

/* Checks a snapshot with a mark, which this program has made: each file that the mark lists must
 * exist and have the right size. */
static osh_status look_for_marked(osh_ctx *cx, lacking *l, osh_mark *m, const char *dir)
{
    osh_status rc = OSH_OK;
    osh_hub_file f;
    while (osh_mark_file(m, &f)) OSH_TRY(look_for_size(cx, l, dir, f.path, f.n_bytes));
    if (m->state == OSH_MARK_OPEN && !l->n) {
        OSH_TRY(osh_buf_printf(cx, &l->text, "files: its download was interrupted"));
        l->n++;
    }
done:
    return rc;
}

static osh_status snapshot_find_missing(osh_ctx *cx, char **missing, const char *repo,
                                        const char *commit, const char *dir)
{
    osh_status rc = OSH_OK;
    osh_mark mark = {0}; // own
    lacking l = {0};
    osh_buf_init(&l.text, 0);
    OSH_TRY(osh_mark_read(cx, &mark, repo, commit));
    OSH_TRY(mark.state ? look_for_marked(cx, &l, &mark, dir)
                       : look_for_unmarked(cx, &l, repo, commit, dir));
    if (l.n > MAX_NAMED) OSH_TRY(osh_buf_printf(cx, &l.text, " and %d more", l.n - MAX_NAMED));
    if (l.n && !(*missing = osh_strdup(cx, l.text.data))) rc = OSH_E_NOMEM;
done:
    osh_mark_deinit(cx, &mark);
    osh_buf_deinit(cx, &l.text);
    return rc;
}

/* Finds the snapshot of a model in the cache. *dir (own): its path, or NULL if there is no
 * snapshot. *missing (own): a list of the files that the snapshot lacks, or NULL if it lacks
 * none. */
static osh_status snapshot_find(osh_ctx *cx, char **dir, char **missing, const osh_hub *hub,
                                const osh_hub_name *name)
{
    osh_status rc = OSH_OK;
    char *commit = NULL, *path = NULL;            // own
    char *repo = osh_hub_repo_dir(cx, hub, name); // own
    *dir = *missing = NULL;
    if (!repo) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(snapshot_find_commit(cx, &commit, repo, name->revision));
    if (!commit) goto done;
    if (!(path = osh_sprintf(cx, "%s/snapshots/%s", repo, commit))) OSH_TRY(OSH_E_NOMEM);
    if (!osh_dir_exists(path)) goto done;
    OSH_TRY(snapshot_find_missing(cx, missing, repo, commit, path));
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
    osh_hub_name name = {0};             // own
    osh_hub *hub = NULL;                 // own
    char *found = NULL, *missing = NULL; // own
    bool is_name = false;
    if (!osh_dir_exists(model)) OSH_TRY(osh_hub_name_read(cx, &name, &is_name, model));
    if (!is_name) { // the code that opens the directory reports missing files
        if (!(*dir = osh_strdup(cx, model))) rc = OSH_E_NOMEM;
        goto done;
    }
    OSH_TRY(osh_hub_open(cx, &hub, env));
    OSH_TRY(snapshot_find(cx, &found, &missing, hub, &name));
    if (!found && hub->offline)
        OSH_FAIL(cx, OSH_E_IO, "%s: is not a directory, and the cache %s has no %s at revision %s",
                 model, hub->cache, name.id, name.revision);
    if (missing && hub->offline)
        OSH_FAIL(cx, OSH_E_IO, "%s: its snapshot lacks %s, in %s", model, missing, found);
    if (!found || missing) {
        osh_free(cx, found), found = NULL;
        rc = (headers ? osh_hub_pull_headers : osh_hub_pull)(cx, &found, hub, &name);
        if (rc)
            osh_note(cx, "looking for a model that is not a local directory and not complete in %s",
                     hub->cache);
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
