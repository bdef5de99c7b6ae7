/* st_edit.c - makes faults in a checkpoint. It changes tensors of the shards, or rewrites the index
 * or the manifest to match the shards:
 *
 *   st_edit DIR drop NAME | rename NAME NEW | dup NAME NEW | swap NAME NAME | take NAME OTHER_DIR
 *   st_edit DIR flip NAME BYTE BIT | fill NAME BYTE N HEX | noise NAME BYTE N
 *   st_edit DIR dtype NAME DTYPE | shape NAME D0 [D1]
 *   st_edit DIR index | manifest */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/rng.h"
#include "io/checkpoint.h"
#include "io/safetensors.h"
#include "text/json.h"

typedef struct item {
    osh_entry e;    // e.name is own
    uint8_t *data;  // own
    int64_t n;
} item;

typedef struct shard {
    char path[512];
    item items[4096];
    int n;
} shard;

static osh_ctx *cx;
static shard shards[32];
static int n_shards;

static void die(const char *what)
{
    fprintf(stderr, "st_edit: %s %s\n", what, cx ? osh_error_text(cx) : "");
    exit(3);
}

static void must(osh_status rc)
{
    if (rc) die("failed:");
}

static bool ends_with(const char *s, const char *tail)
{
    size_t n = strlen(s), k = strlen(tail);
    return n >= k && !strcmp(s + n - k, tail);
}

static void load_shard(const char *dir, const char *name)
{
    shard *s = &shards[n_shards++];
    osh_container *st = NULL;
    snprintf(s->path, sizeof s->path, "%s/%s", dir, name);
    must(osh_container_open(cx, &st, s->path));
    for (int64_t i = 0; i < osh_container_count(st); i++) {
        const osh_entry *e = osh_container_at(st, i);
        item *t = &s->items[s->n++];
        t->e = *e, t->n = e->end - e->begin;
        t->e.name = strdup(e->name);
        t->data = malloc((size_t)t->n + 1);
        must(osh_container_read(cx, t->data, st, e));
    }
    osh_container_close(cx, st);
}

static void load(const char *dir)
{
    char **names = NULL;
    size_t n = 0;
    must(osh_dir_list(cx, &names, &n, dir));
    for (size_t i = 0; i < n; i++)
        if (ends_with(names[i], ".safetensors")) load_shard(dir, names[i]);
    osh_strings_free(cx, names, n);
}

static item *find(const char *name, shard **in)
{
    for (int s = 0; s < n_shards; s++)
        for (int i = 0; i < shards[s].n; i++)
            if (!strcmp(shards[s].items[i].e.name, name)) {
                if (in) *in = &shards[s];
                return &shards[s].items[i];
            }
    fprintf(stderr, "st_edit: no tensor %s\n", name);
    exit(3);
}

static void save(shard *s)
{
    osh_entry *e = calloc((size_t)s->n + 1, sizeof *e);
    char *header = NULL;
    size_t n = 0;
    for (int i = 0; i < s->n; i++) e[i] = s->items[i].e;
    must(osh_safetensors_layout_array(cx, &header, &n, e, s->n));
    FILE *f = fopen(s->path, "wb");
    if (!f || fwrite(header, 1, n, f) != n) die("cannot write");
    for (int k = 0; k < s->n; k++) // reads the tensors in the order of their bytes in the file
        for (int i = 0; i < s->n; i++)
            if (!strcmp(s->items[i].e.name, e[k].name) &&
                fwrite(s->items[i].data, 1, (size_t)s->items[i].n, f) != (size_t)s->items[i].n)
                die("cannot write");
    if (fclose(f)) die("cannot write");
    osh_free(cx, header);
    free(e);
}

static void write_json(const char *path, const cJSON *o)
{
    char *text = NULL;
    must(osh_json_print(cx, &text, o, 0));
    must(osh_file_write_all(cx, path, text, strlen(text)));
    osh_free(cx, text);
}

static void rewrite_index(const char *dir)
{
    char path[512];
    double total = 0;
    cJSON *root = cJSON_CreateObject(), *meta = cJSON_AddObjectToObject(root, "metadata");
    cJSON *map = cJSON_AddObjectToObject(root, "weight_map");
    for (int s = 0; s < n_shards; s++)
        for (int i = 0; i < shards[s].n; i++) {
            cJSON_AddStringToObject(map, shards[s].items[i].e.name,
                                    strrchr(shards[s].path, '/') + 1);
            total += (double)shards[s].items[i].n;
        }
    cJSON_AddNumberToObject(meta, "total_size", total);
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", dir);
    write_json(path, root);
    cJSON_Delete(root);
}

static void set_text(cJSON *o, const char *key, const char *value)
{
    cJSON_DeleteItemFromObjectCaseSensitive(o, key);
    cJSON_AddStringToObject(o, key, value);
}

static void set_sum(cJSON *o, const void *p, size_t n)
{
    char text[24];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)XXH3_64bits(p, n));
    set_text(o, "xxh3", text);
}

/* Rewrites the manifest with the tensors and files as they are now. For a tensor that the old
 * manifest has, other members such as "rule" stay. */
static void rewrite_manifest(const char *dir)
{
    char path[512];
    cJSON *root = NULL, *m;
    snprintf(path, sizeof path, "%s/oneshot-manifest.json", dir);
    must(osh_json_read(cx, &root, path, (size_t)1 << 28, 0));
    cJSON *old = cJSON_DetachItemFromObjectCaseSensitive(root, "tensors");
    cJSON *list = cJSON_AddArrayToObject(root, "tensors");
    for (int s = 0; s < n_shards; s++)
        for (int i = 0; i < shards[s].n; i++) {
            const item *t = &shards[s].items[i];
            cJSON *o = NULL;
            cJSON_ArrayForEach(m, old)
                if (!strcmp(cJSON_GetObjectItemCaseSensitive(m, "name")->valuestring, t->e.name))
                    o = cJSON_Duplicate(m, 1);
            if (!o) o = cJSON_CreateObject();
            set_text(o, "name", t->e.name);
            set_text(o, "file", strrchr(shards[s].path, '/') + 1);
            set_text(o, "dtype", osh_dtype_name(t->e.dtype));
            cJSON_DeleteItemFromObjectCaseSensitive(o, "shape");
            cJSON *shape = cJSON_AddArrayToObject(o, "shape");
            for (int d = 0; d < t->e.ndim; d++)
                cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)t->e.shape[d]));
            set_sum(o, t->data, (size_t)t->n);
            cJSON_AddItemToArray(list, o);
        }
    cJSON_Delete(old);
    cJSON *files = cJSON_GetObjectItemCaseSensitive(root, "files");
    for (int i = cJSON_GetArraySize(files) - 1; i >= 0; i--) {
        char file[800], *text = NULL;
        size_t n = 0;
        m = cJSON_GetArrayItem(files, i);
        snprintf(file, sizeof file, "%s/%s", dir,
                 cJSON_GetObjectItemCaseSensitive(m, "name")->valuestring);
        if (!osh_file_exists(file)) {
            cJSON_DeleteItemFromArray(files, i);
            continue;
        }
        must(osh_file_read_all(cx, &text, &n, file, 0));
        set_sum(m, text, n);
        osh_free(cx, text);
    }
    cJSON_DeleteItemFromObjectCaseSensitive(root, "manifest_xxh3");
    char *text = cJSON_Print(root),
         *end = strrchr(text, '}'); // the checksum of the manifest is the last member
    while (end > text && (end[-1] == '\n' || end[-1] == ' ')) end--;
    size_t n = (size_t)(end - text);
    FILE *f = fopen(path, "w");
    text[n] = ',', text[n + 1] = '\n';
    fwrite(text, 1, n + 2, f);
    fprintf(f, "  \"manifest_xxh3\": \"%016llx\"\n}\n",
            (unsigned long long)XXH3_64bits(text, n + 2));
    fclose(f);
    free(text);
    cJSON_Delete(root);
}

static void change(int argc, char **argv)
{
    const char *op = argv[2];
    shard *in = NULL, *other = NULL;
    item *t = find(argv[3], &in);
    if (!strcmp(op, "drop")) {
        *t = in->items[--in->n];
    } else if (!strcmp(op, "rename")) {
        t->e.name = strdup(argv[4]);
    } else if (!strcmp(op, "dup")) {
        in->items[in->n] = *t;
        in->items[in->n++].e.name = strdup(argv[4]);
    } else if (!strcmp(op, "swap")) {
        item *u = find(argv[4], &other), keep = *t;
        t->e.dtype = u->e.dtype, t->e.ndim = u->e.ndim,
        memcpy(t->e.shape, u->e.shape, sizeof t->e.shape);
        t->data = u->data, t->n = u->n;
        u->e.dtype = keep.e.dtype, u->e.ndim = keep.e.ndim,
        memcpy(u->e.shape, keep.e.shape, sizeof u->e.shape);
        u->data = keep.data, u->n = keep.n;
        save(other);
    } else if (!strcmp(op, "take")) {
        int mine = n_shards;
        load(argv[4]);
        for (int s = mine; s < n_shards; s++)
            for (int i = 0; i < shards[s].n; i++)
                if (!strcmp(shards[s].items[i].e.name, argv[3])) *t = shards[s].items[i];
    } else if (!strcmp(op, "flip") && argc == 6) {
        t->data[atoll(argv[4]) % t->n] ^= (uint8_t)(1 << atoi(argv[5]));
    } else if (!strcmp(op, "fill") && argc == 7) {
        // writes a pattern of bytes, given as hexadecimal digits
        for (int64_t i = 0; i < atoll(argv[5]); i++) {
            unsigned byte = 0;
            sscanf(argv[6] + 2 * (i % (int64_t)(strlen(argv[6]) / 2)), "%2x", &byte);
            t->data[(atoll(argv[4]) + i) % t->n] = (uint8_t)byte;
        }
    } else if (!strcmp(op, "noise") && argc == 6) {
        for (int64_t i = 0; i < atoll(argv[5]); i++)
            t->data[(atoll(argv[4]) + i) % t->n] = (uint8_t)osh_rng_u64(7, 0, (uint64_t)i);
    } else if (!strcmp(op, "dtype")) {
        t->e.dtype = osh_dtype_of_name(argv[4]);
    } else if (!strcmp(op, "shape")) {
        t->e.ndim = argc - 4;
        for (int d = 0; d < t->e.ndim; d++) t->e.shape[d] = atoll(argv[4 + d]);
    } else {
        die("unknown operation");
    }
    save(in);
}

int main(int argc, char **argv)
{
    if (osh_ctx_new(&cx, 1)) die("no memory");
    if (argc < 3) die("usage: see the top of st_edit.c");
    load(argv[1]);
    if (!strcmp(argv[2], "index")) rewrite_index(argv[1]);
    else if (!strcmp(argv[2], "manifest")) rewrite_manifest(argv[1]);
    else if (argc > 3) change(argc, argv);
    else die("usage: see the top of st_edit.c");
    fflush(NULL);
    _exit(0); // ends without freeing memory
}
