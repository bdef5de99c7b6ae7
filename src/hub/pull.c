/* pull.c - downloads the files of a model that this program reads, several at a time. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/map.h"
#include "hub/pull.h"

enum { AT_ONCE = 8, MAX_NAME = 4096 };
/* Number of bytes of host memory of a thread, without its connections. */
enum { WORK_BYTES = 1 << 20 };
static const char index_name[] = "model.safetensors.index.json",
                  single_name[] = "model.safetensors";

typedef struct batch {
    osh_hub_place *p;
    osh_status (*one)(osh_ctx *, osh_http *, osh_hub_place *, const osh_hub_file *);
    const osh_hub_file **files;
    size_t n;
    int64_t n_bytes; // sum of the sizes of the files
    /* next: index of the next file.
     * finished: number of complete files; protected by p->lock, like at_work. */
    size_t next, finished;
    int at_work;
    double began; // time at which the first thread starts (osh_now, seconds)
} batch;

typedef struct worker {
    pthread_t thread;
    osh_ctx *cx;    // own
    osh_http *http; // own
    batch *b;
} worker;

/* Does the work of one thread, until all files are complete or one has failed. Downloads the next
 * file. If no file is left, helps another thread: downloads a part of the file that this other
 * thread downloads. */
static osh_status pull_work(osh_ctx *cx, batch *b, osh_http *http)
{
    osh_status rc = OSH_OK;
    osh_hub_place *p = b->p;
    pthread_mutex_lock(&p->lock);
    while (!rc && !p->rc && b->finished < b->n) {
        const osh_hub_file *f = b->next < b->n ? b->files[b->next++] : NULL;
        bool did = true;
        pthread_mutex_unlock(&p->lock);
        rc = f ? b->one(cx, http, p, f) : osh_hub_fetch_help(cx, http, p, &did);
        pthread_mutex_lock(&p->lock);
        b->finished += f && !rc;
        if (!did && !p->rc && b->finished < b->n) osh_hub_place_wait(p);
    }
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    return rc;
}

static void *pull_worker_main(void *user)
{
    worker *w = user;
    osh_hub_place *p = w->b->p;
    osh_status rc = pull_work(w->cx, w->b, w->http);
    if (rc) osh_hub_place_fail(w->cx, p, rc);
    pthread_mutex_lock(&p->lock);
    w->b->at_work--;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

static void pull_show(osh_ctx *cx, batch *b, bool last)
{
    pthread_mutex_lock(&b->p->lock);
    int64_t done = atomic_load(&b->p->done);
    size_t at = b->finished < b->n ? b->finished + 1 : b->n;
    pthread_mutex_unlock(&b->p->lock);
    osh_progress_show(cx, &(osh_progress){.step = (int64_t)at,
                                          .n_steps = (int64_t)b->n,
                                          .name = b->p->name->id,
                                          .phase = b->n_bytes ? "MB" : "headers",
                                          .done = (done + 999999) / 1000000,
                                          .total = (b->n_bytes + 999999) / 1000000,
                                          .work_done = (double)done,
                                          .work_total = (double)b->n_bytes,
                                          .bytes_per_s = (double)done / (osh_now() - b->began),
                                          .error = -1,
                                          .finished = last});
}

/* Shows the progress until all threads have ended. */
static void pull_wait(osh_ctx *cx, batch *b)
{
    pthread_mutex_lock(&b->p->lock);
    while (b->at_work) {
        osh_hub_place_wait(b->p);
        pthread_mutex_unlock(&b->p->lock);
        pull_show(cx, b, false);
        pthread_mutex_lock(&b->p->lock);
    }
    pthread_mutex_unlock(&b->p->lock);
}

/* Computes b->n_bytes. Fails if the disk does not have space for the missing bytes. */
static osh_status pull_check_disk(osh_ctx *cx, batch *b)
{
    osh_status rc = OSH_OK;
    int64_t need = 0, one, has = osh_disk_free(b->p->hub->cache);
    for (size_t i = 0; i < b->n; i++) {
        OSH_TRY(osh_hub_file_lacks(cx, &one, b->p, b->files[i]));
        if (__builtin_add_overflow(b->n_bytes, b->files[i]->n_bytes, &b->n_bytes))
            OSH_FAIL(cx, OSH_E_FORMAT,
                     "%s: its files have more than 2^63 bytes together, by the list of %s",
                     b->p->name->id, b->p->hub->endpoint);
        need += one; // no overflow: `need` is at most the sum of all file sizes
    }
    if (has >= 0 && need > has)
        OSH_FAIL(cx, OSH_E_IO, "%s needs %.1f MB more, and the disk of %s has %.1f MB free",
                 b->p->name->id, (double)need / 1e6, b->p->hub->cache, (double)has / 1e6);
done:
    return rc;
}

/* Opens connections for as many workers as host memory permits, at least 1 and at most `most`. *n
 * is the number of workers. */
static osh_status pull_open_workers(osh_ctx *cx, batch *b, worker w[AT_ONCE], int *n, int most)
{
    osh_status rc = OSH_OK;
    for (*n = 0; *n < most; ++*n) {
        worker *one = &w[*n];
        one->b = b;
        OSH_TRY(osh_ctx_fork(&one->cx, cx));
        osh_ctx_alone(one->cx);
        rc = osh_mem_count(one->cx, WORK_BYTES);
        if (!rc && (rc = osh_http_open(one->cx, &one->http, b->p->hub, &b->p->stop)))
            osh_mem_uncount(one->cx, WORK_BYTES);
        if (rc == OSH_E_NOMEM && *n) break;
        if (rc) OSH_FAIL(cx, rc, "%s", osh_error_text(one->cx));
    }
    rc = OSH_OK;
done:
    // the bytes were counted only to find how many workers fit into the memory limit
    osh_mem_uncount(cx, (size_t)*n * WORK_BYTES);
    return rc;
}

/* Downloads all files of the batch on several threads. If `visible` is true, shows the final
 * progress. */
static osh_status pull_run_batch(osh_ctx *cx, batch *b, bool visible)
{
    osh_status rc = OSH_OK;
    worker w[AT_ONCE] = {0};
    int n = 0, n_open = 0, most = b->n < AT_ONCE ? (int)b->n : AT_ONCE;
    pthread_mutex_init(&b->p->lock, NULL);
    pthread_cond_init(&b->p->changed, NULL);
    b->next = b->finished = 0, b->p->rc = 0, b->at_work = 0, b->n_bytes = 0, b->began = osh_now();
    for (size_t i = 0; i < b->n; i++)
        if (b->one == osh_hub_file_pull && osh_hub_fetch_has_parts(b->files[i])) most = AT_ONCE;
    atomic_store(&b->p->stop, false), atomic_store(&b->p->done, 0);
    if (b->one == osh_hub_file_pull) OSH_TRY(pull_check_disk(cx, b));
    OSH_TRY(pull_open_workers(cx, b, w, &n_open, most));
    for (; n < n_open; n++) {
        pthread_mutex_lock(&b->p->lock);
        bool made = !pthread_create(&w[n].thread, NULL, pull_worker_main, &w[n]);
        b->at_work += made;
        pthread_mutex_unlock(&b->p->lock);
        if (made) continue;
        if (!n) OSH_FAIL(cx, OSH_E_NOMEM, "cannot start a thread");
        break;
    }
    pull_wait(cx, b);
    if (b->p->rc) OSH_FAIL(cx, b->p->rc, "%s", b->p->text);
    if (visible) pull_show(cx, b, true);
done:
    if (rc) atomic_store(&b->p->stop, true);
    for (int i = 0; i < n; i++) pthread_join(w[i].thread, NULL);
    for (int i = 0; i < AT_ONCE; i++) {
        if (w[i].cx) osh_http_close(w[i].cx, w[i].http);
        osh_ctx_free(w[i].cx);
    }
    pthread_mutex_destroy(&b->p->lock);
    pthread_cond_destroy(&b->p->changed);
    return rc;
}

typedef struct shards { // state of the loop that lists the shards of the index
    batch *b;
    const osh_hub_tree *t;
    osh_map *seen; // own
    osh_buf name;  // own
    bool has_map;
} shards;

static osh_status shards_add(osh_ctx *cx, void *user, osh_json_walk *w, const char *key)
{
    osh_status rc = OSH_OK;
    shards *s = user;
    int64_t unused;
    OSH_TRY(osh_json_walk_string(w, &s->name, key));
    const char *name = s->name.data ? s->name.data : "";
    if (osh_map_get(s->seen, name, s->name.len, &unused)) goto done;
    const osh_hub_file *f = osh_hub_tree_find(s->t, name);
    if (!f)
        OSH_FAIL(cx, OSH_E_FORMAT,
                 "%s: its %s names '%.200s', but it has no such .safetensors file",
                 s->b->p->name->id, index_name, name);
    OSH_TRY(osh_map_put(cx, s->seen, name, s->name.len, 0));
    s->b->files[s->b->n++] = f;
done:
    return rc;
}

static osh_status index_member(osh_ctx *cx, void *user, osh_json_walk *w, const char *key)
{
    shards *s = user;
    if (strcmp(key, "weight_map")) return osh_json_walk_skip(w);
    if (s->has_map)
        return osh_fail(cx, OSH_E_FORMAT, "%s: has the key weight_map twice", w->s.what);
    s->has_map = true;
    return osh_json_walk_members(w, shards_add, s);
}

/* Adds to b->files the shards that the index names. The index is already in the cache. */
static osh_status pull_add_shards(osh_ctx *cx, batch *b, const osh_hub_tree *t)
{
    osh_status rc = OSH_OK;
    osh_file *file = NULL;                                      // own
    osh_json_walk w = {0};                                      // own
    shards s = {.b = b, .t = t};                                // own
    char *path = osh_path_join(cx, b->p->snapshot, index_name); // own
    osh_buf_init(&s.name, MAX_NAME);
    if (!path) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(osh_map_new(cx, &s.seen, 0));
    OSH_TRY(osh_file_open(cx, &file, path));
    OSH_TRY(osh_json_walk_file(cx, &w, file, path));
    OSH_TRY(osh_json_walk_members(&w, index_member, &s));
    OSH_TRY(osh_json_walk_end(&w));
    if (!s.has_map) OSH_FAIL(cx, OSH_E_FORMAT, "%s: has no weight_map", path);
done:
    osh_json_walk_deinit(cx, &w);
    osh_file_close(cx, file);
    osh_map_free(cx, s.seen);
    osh_buf_deinit(cx, &s.name);
    osh_free(cx, path);
    return rc;
}

static osh_status config_member(osh_ctx *cx, void *user, osh_json_walk *w, const char *key)
{
    (void)cx;
    bool *compressed = user;
    if (!strcmp(key, "quantization_config")) *compressed = true;
    if (!strcmp(key, "text_config") && osh_json_walk_peek(w) == '{')
        return osh_json_walk_members(w, config_member, user);
    return osh_json_walk_skip(w);
}

/* Reads config.json. If the weights are compressed, sets p->headers to NULL, so that whole files
 * are downloaded. The plan then needs the contents of files, because the shapes of compressed
 * weights are stored as tensors. */
static osh_status pull_look_at_config(osh_ctx *cx, osh_hub_place *p)
{
    osh_status rc = OSH_OK;
    osh_file *file = NULL; // own
    osh_json_walk w = {0}; // own
    bool compressed = false;
    char *path = osh_path_join(cx, p->snapshot, "config.json"); // own
    if (!path) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(osh_file_open(cx, &file, path));
    OSH_TRY(osh_json_walk_file(cx, &w, file, path));
    w.s.allow_nan = true;
    if (osh_json_walk_peek(&w) == '{')
        OSH_TRY(osh_json_walk_members(&w, config_member, &compressed));
    if (compressed) p->headers = NULL;
done:
    osh_json_walk_deinit(cx, &w);
    osh_file_close(cx, file);
    osh_free(cx, path);
    return rc;
}

/* Writes the mark before the first download, so that a later process knows which files the snapshot
 * must have. Writes nothing if all files exist. */
static osh_status pull_mark_begin(osh_ctx *cx, const batch *b, osh_mark_state state)
{
    osh_status rc = OSH_OK;
    osh_at *dir = NULL; // own
    bool there = true;
    for (size_t i = 0; there && i < b->n; i++)
        OSH_TRY(osh_hub_file_is_there(cx, &there, b->p, b->files[i]));
    if (there) goto done;
    b->p->lacked = true;
    OSH_TRY(osh_hub_place_dir(cx, &dir, b->p, ".oneshot"));
    OSH_TRY(osh_mark_write(cx, dir, b->p->commit, state, b->files, b->n));
done:
    osh_at_close(cx, dir);
    return rc;
}

/* Writes the mark with the state `whole`. A cache that is not writable is an error only if a file
 * was missing. */
static osh_status pull_mark_end(osh_ctx *cx, const batch *b)
{
    osh_at *dir = NULL; // own
    osh_status rc = osh_hub_place_dir(cx, &dir, b->p, ".oneshot");
    if (!rc) rc = osh_mark_write(cx, dir, b->p->commit, OSH_MARK_WHOLE, b->files, b->n);
    if (rc == OSH_E_IO && !b->p->lacked) {
        osh_log(cx, OSH_LOG_INFO, "%s: %s", b->p->name->id, osh_error_text(cx));
        osh_error_clear(cx);
        rc = OSH_OK;
    }
    osh_at_close(cx, dir);
    return rc;
}

/* Fails if the repository has no config.json or no weights as safetensors. */
static osh_status pull_check_tree(osh_ctx *cx, const osh_hub_place *p, const osh_hub_tree *t)
{
    osh_status rc = OSH_OK;
    if (!osh_hub_tree_find(t, "config.json"))
        OSH_FAIL(cx, OSH_E_FORMAT, "%s has no config.json: wanted a model as transformers saves it",
                 p->name->id);
    if (!osh_hub_tree_find(t, single_name) && !osh_hub_tree_find(t, index_name))
        OSH_FAIL(cx, OSH_E_FORMAT, "%s has no %s and no %s%s", p->name->id, single_name, index_name,
                 t->has_pickles ? ", but pickled weights: convert them to safetensors first" : "");
done:
    return rc;
}

/* Lists the files to download in b->files: first the side files (*n_side of them), then the
 * weights. Before that, downloads config.json and the index; the index names the weights. */
static osh_status pull_list_files(osh_ctx *cx, batch *b, const osh_hub_tree *t, size_t *n_side)
{
    osh_status rc = OSH_OK;
    const osh_hub_file *single = osh_hub_tree_find(t, single_name),
                       *index = osh_hub_tree_find(t, index_name);
    const osh_hub_file **files = b->files,
                       *first[2] = {osh_hub_tree_find(t, "config.json"), single ? NULL : index};
    for (size_t i = 0; i < t->n; i++)
        if (osh_hub_is_side_file(t->files[i].path)) files[b->n++] = &t->files[i];
    *n_side = b->n;
    OSH_TRY(pull_mark_begin(cx, b, OSH_MARK_OPEN));
    batch begin = {.p = b->p, .one = osh_hub_file_pull, .files = first, .n = first[1] ? 2 : 1};
    OSH_TRY(pull_run_batch(cx, &begin, false));
    if (single)
        files[b->n++] = single;
    else
        OSH_TRY(pull_add_shards(cx, b, t));
    OSH_TRY(pull_mark_begin(cx, b, OSH_MARK_ALL));
done:
    return rc;
}

/* Downloads the files of `t` that belong to the model; `t` lists the repository's files. If
 * p->headers is set, downloads only the headers of the weights. */
static osh_status pull_files(osh_ctx *cx, osh_hub_place *p, const osh_hub_tree *t)
{
    osh_status rc = OSH_OK;
    osh_mark mark = {0}; // own
    batch b = {.p = p, .one = osh_hub_file_pull};
    size_t n_side = 0;
    OSH_NEW(cx, b.files, 2 * t->n + 1);
    const osh_hub_file **all = b.files;
    OSH_TRY(pull_check_tree(cx, p, t));
    OSH_TRY(osh_mark_read(cx, &mark, p->repo, p->commit));
    p->verified = mark.state == OSH_MARK_WHOLE;
    OSH_TRY(pull_list_files(cx, &b, t, &n_side));
    if (p->headers) OSH_TRY(pull_look_at_config(cx, p));
    if (!p->headers) {
        OSH_TRY(pull_run_batch(cx, &b, true));
        OSH_TRY(pull_mark_end(cx, &b));
        goto done;
    }
    batch side = {.p = p, .one = osh_hub_file_pull, .files = all, .n = n_side};
    OSH_TRY(pull_run_batch(cx, &side, false));
    for (size_t i = 0; i < n_side; i++) OSH_TRY(osh_hub_header_link(cx, p, all[i]));
    batch heads = {.p = p, .one = osh_hub_header_pull, .files = all + n_side, .n = b.n - n_side};
    OSH_TRY(pull_run_batch(cx, &heads, true));
done:
    osh_mark_deinit(cx, &mark);
    osh_free(cx, b.files);
    return rc;
}

/* Writes the commit to refs/<revision> by a rename, so that a reader finds either the old or the
 * new commit. */
static osh_status pull_write_ref(osh_ctx *cx, const osh_hub_place *p)
{
    osh_status rc = OSH_OK;
    size_t n = 0;
    osh_at *dir = NULL, *by = NULL; // own
    char *path = osh_sprintf(cx, "%s/refs/%s", p->repo, p->name->revision), *text = NULL,
         *below = NULL; // own
    if (!path) OSH_TRY(OSH_E_NOMEM);
    if (osh_hub_is_commit(p->name->revision)) goto done;
    int64_t n_bytes = 0, unused;
    if (osh_file_exists(path)) OSH_TRY(osh_file_stat(cx, &n_bytes, &unused, path));
    if (n_bytes == 40) OSH_TRY(osh_file_read_all(cx, &text, &n, path, 40));
    if (text && n == 40 && !strcmp(text, p->commit)) goto done;
    char *name = strrchr(path, '/');
    *name++ = 0;
    if (!(below = osh_strdup(cx, path + strlen(p->repo) + 1))) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(osh_hub_place_dir(cx, &dir, p, below));
    OSH_TRY(osh_hub_place_dir(cx, &by, p, ".oneshot"));
    OSH_TRY(osh_at_write(cx, dir, name, by, p->commit, 40));
done:
    osh_at_close(cx, dir);
    osh_at_close(cx, by);
    osh_free(cx, text);
    osh_free(cx, below);
    osh_free(cx, path);
    return rc;
}

/* If there is no cache, makes one with a CACHEDIR.TAG, so that backup programs skip the cache. */
static osh_status cache_write_tag(osh_ctx *cx, const osh_hub *hub)
{
    osh_status rc = OSH_OK;
    static const char tag[] =
        "Signature: 8a477f597d28d172789f06886806bc55\n# A cache of the Hugging Face Hub.\n";
    osh_at *cache = NULL; // own
    if (osh_dir_exists(hub->cache)) goto done;
    OSH_TRY(osh_at_open(cx, &cache, hub->cache, ""));
    OSH_TRY(osh_at_write(cx, cache, "CACHEDIR.TAG", cache, tag, sizeof tag - 1));
done:
    osh_at_close(cx, cache);
    return rc;
}

/* Downloads a model. `headers` is true for osh_hub_pull_headers. */
static osh_status pull_model(osh_ctx *cx, char **dir, const osh_hub *hub, const osh_hub_name *name,
                             bool headers)
{
    osh_status rc = OSH_OK;
    osh_http *http = NULL;                               // own
    osh_hub_tree t = {0};                                // own
    char *repo = NULL, *snapshot = NULL, *heads = NULL;  // own
    osh_hub_place p = {.hub = hub, .name = name};
    if (hub->offline)
        OSH_FAIL(cx, OSH_E_IO,
                 "%s: HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE forbids the use of the network",
                 name->id);
    if (!osh_http_is_url(hub->endpoint))
        OSH_FAIL(cx, OSH_E_USAGE, "HF_ENDPOINT is '%.200s': want an address that begins with http",
                 hub->endpoint);
    OSH_TRY(osh_http_open(cx, &http, hub, NULL));
    OSH_TRY(osh_hub_tree_get(cx, &t, http, hub, name));
    // this connection is closed, because the threads open their own
    osh_http_close(cx, http), http = NULL;
    p.commit = t.commit;
    if (!(repo = osh_hub_repo_dir(cx, hub, name))) OSH_TRY(OSH_E_NOMEM);
    if (!(snapshot = osh_sprintf(cx, "%s/snapshots/%s", repo, t.commit))) OSH_TRY(OSH_E_NOMEM);
    if (headers && !(heads = osh_sprintf(cx, "%s/oneshot/headers%s/%s", hub->home,
                                         strrchr(repo, '/'), t.commit)))
        OSH_TRY(OSH_E_NOMEM);
    p.repo = repo, p.snapshot = snapshot, p.headers = heads;
    OSH_TRY(cache_write_tag(cx, hub));
    OSH_TRY(pull_files(cx, &p, &t));
    if (!p.headers) OSH_TRY(pull_write_ref(cx, &p));
    *dir = p.headers ? heads : snapshot;
    *(p.headers ? &heads : &snapshot) = NULL; // give
done:
    osh_hub_tree_deinit(cx, &t);
    osh_http_close(cx, http);
    osh_free(cx, snapshot);
    osh_free(cx, heads);
    osh_free(cx, repo);
    return rc;
}

osh_status osh_hub_pull(osh_ctx *cx, char **dir, const osh_hub *hub, const osh_hub_name *name)
{
    return pull_model(cx, dir, hub, name, false);
}

osh_status osh_hub_pull_headers(osh_ctx *cx, char **dir, const osh_hub *hub,
                                const osh_hub_name *name)
{
    return pull_model(cx, dir, hub, name, true);
}
