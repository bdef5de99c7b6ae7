/* lose_power.c - makes a directory as it may be after a loss of power, from a log of record.c:
 *
 *   lose_power LOG SEED DIR [BEFORE]    BEFORE: copy of the directory at the beginning of the
 *                                       record (default: an empty directory)
 *
 * The power fails after one of the calls in the log. Changes of the bytes and size of a file are
 * kept if a sync of the file followed them. Changes of names in a directory are kept if a sync of
 * the directory followed them. The effects of all other changes are random:
 *   - A sector of 512 bytes has only the first k writes to it, for a random k.
 *   - The size of a file is one of the sizes that it had since its last sync.
 *   - A name that was made, moved or removed is changed or not, independently of other names.
 * The order of changes is kept only within one sector, and for one name.
 *
 * SEED chooses the call, and which of the random changes are lost: none, all, the late changes,
 * single sectors, or half of them. If SEED is 0, the power fails after the last call, and nothing
 * is lost. */
#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/rng.h"
#include "disk_log.h"

enum { SECTOR = 512, MAX_OBJECTS = 4096, MAX_CALLS = 1 << 16, MAX_PATH = 1024 };

typedef struct entry entry;
typedef struct object { // a file or a directory, identified by its inode
    bool dir;
    uint64_t inode;
    uint8_t *data; // own: bytes that survive a power loss
    int64_t size, room;
    int first;     // for a file: index of the first call after the last sync of the file
    entry *live;   // own; for a directory: names during the run
    entry *left;   // own; for a directory: names that remain after the loss of power
} object;

struct entry {
    entry *next;
    char name[256];
    int object;
};

typedef struct call {
    disk_call head;
    char *path;
    const uint8_t *data;  // view: bytes of the log
    int object, dir, dir2; // object: index of the object; dir, dir2: indices of the directories
                           // whose names the call changes
    char name[256], name2[256];
    bool sure; // true if the directory was synced after the change of names, so no power loss can
               // undo the change
} call;

static object objects[MAX_OBJECTS];
static int n_objects;
static call calls[MAX_CALLS];
static int n_calls;
static uint64_t seed;

static void die(const char *what, const char *about)
{
    fprintf(stderr, "lose_power: %s: %s\n", what, about);
    exit(2);
}

static void *zeroed(size_t n)
{
    void *p = calloc(1, n ? n : 1);
    if (!p) die("no memory", "");
    return p;
}

static uint64_t draw(uint64_t about, uint64_t i, uint64_t below)
{
    return below ? osh_rng_u64(seed, about, i) % below : 0;
}

static int object_new(bool dir, uint64_t inode)
{
    if (n_objects == MAX_OBJECTS) die("too many files", "");
    objects[n_objects] = (object){.dir = dir, .inode = inode};
    return n_objects++;
}

static entry **names_find(entry **list, const char *name)
{
    for (; *list; list = &(*list)->next)
        if (!strcmp((*list)->name, name)) break;
    return list;
}

static void names_put(entry **list, const char *name, int o)
{
    entry **at = names_find(list, name);
    if (!*at) {
        *at = zeroed(sizeof **at);
        snprintf((*at)->name, sizeof (*at)->name, "%s", name);
    }
    (*at)->object = o;
}

static void names_drop(entry **list, const char *name, int o)
{
    entry **at = names_find(list, name), *gone = *at;
    if (!gone || gone->object != o) return;
    *at = gone->next;
    free(gone);
}

/* Returns the object that the run sees at a path, or -1 if there is none. Sets *dir to the
 * directory of the object, and `name` to its name. */
static int object_at(const char *path, int *dir, char *name)
{
    int at = 0;
    *dir = -1;
    if (!strcmp(path, ".")) return 0;
    for (const char *p = path; at >= 0; p++) {
        size_t n = strcspn(p, "/");
        *dir = at;
        snprintf(name, 256, "%.*s", (int)n, p);
        entry *e = *names_find(&objects[at].live, name);
        at = e ? e->object : -1;
        p += n;
        if (!*p) return at;
        if (at < 0) die("a path below nothing", path);
    }
    return at;
}

static int object_of_inode(uint64_t inode)
{
    for (int i = n_objects - 1; i >= 0; i--)
        if (objects[i].inode == inode) return i;
    return -1;
}

/* ---- state before the run ---- */

static void object_load(int dir, const char *path)
{
    DIR *d = opendir(path);
    if (!d) die("cannot list", path);
    for (struct dirent *e; (e = readdir(d));) {
        char child[MAX_PATH];
        struct stat st;
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        snprintf(child, sizeof child, "%s/%s", path, e->d_name);
        if (stat(child, &st)) die("cannot look at", child);
        int o = object_new(S_ISDIR(st.st_mode), 0);
        names_put(&objects[dir].live, e->d_name, o);
        names_put(&objects[dir].left, e->d_name, o);
        if (objects[o].dir) {
            object_load(o, child);
            continue;
        }
        objects[o].size = objects[o].room = st.st_size;
        objects[o].data = zeroed((size_t)st.st_size);
        int fd = open(child, O_RDONLY);
        if (fd < 0 || read(fd, objects[o].data, (size_t)st.st_size) != st.st_size)
            die("cannot read", child);
        close(fd);
    }
    closedir(d);
}

/* ---- log ---- */

static void log_read(const char *path)
{
    struct stat st;
    int fd = open(path, O_RDONLY);
    if (fd < 0 || fstat(fd, &st)) die("cannot open", path);
    uint8_t *log = zeroed((size_t)st.st_size); // never freed
    for (int64_t at = 0; at < st.st_size;) {
        ssize_t k = read(fd, log + at, (size_t)(st.st_size - at));
        if (k <= 0) die("cannot read", path);
        at += k;
    }
    close(fd);
    for (int64_t at = 0; at < st.st_size;) {
        call *c = &calls[n_calls++];
        if (n_calls == MAX_CALLS) die("too many calls", path);
        memcpy(&c->head, log + at, sizeof c->head);
        at += (int64_t)sizeof c->head;
        c->path = zeroed(c->head.n_path + 1);
        memcpy(c->path, log + at, c->head.n_path);
        c->data = log + at + c->head.n_path;
        at += (int64_t)(c->head.n_path + c->head.n_data);
    }
}

/* ---- files ---- */

static bool call_is_of(const call *c, int o)
{
    return c->object == o &&
           (c->head.kind == DISK_WRITE || c->head.kind == DISK_CUT || c->head.kind == DISK_GROW ||
            (c->head.kind == DISK_OPEN && c->head.size == 0));
}

static int64_t call_size(const call *c, int64_t size)
{
    int64_t end = c->head.kind == DISK_WRITE ? c->head.at + (int64_t)c->head.n_data : c->head.size;
    if (c->head.kind == DISK_CUT || c->head.kind == DISK_OPEN) return end;
    return end > size ? end : size;
}

/* Applies the bytes [from, to) of call c to `data`. Truncated bytes become 0. */
static void call_apply(const call *c, uint8_t *data, int64_t from, int64_t to)
{
    int64_t begin = c->head.kind == DISK_WRITE ? c->head.at : c->head.size;
    int64_t end = c->head.kind == DISK_WRITE ? begin + (int64_t)c->head.n_data : INT64_MAX;
    if (c->head.kind == DISK_GROW) return;
    if (begin < from) begin = from;
    if (end > to) end = to;
    if (begin >= end) return;
    if (c->head.kind == DISK_WRITE)
        memcpy(data + begin, c->data + (begin - c->head.at), (size_t)(end - begin));
    else memset(data + begin, 0, (size_t)(end - begin));
}

static void file_room(object *o, int64_t room)
{
    if (room <= o->room) return;
    uint8_t *more = zeroed((size_t)room);
    if (o->room) memcpy(more, o->data, (size_t)o->room);
    free(o->data);
    o->data = more, o->room = room;
}

/* Applies the changes of file number `i` by the calls before call `end`. Call `end` syncs the file,
 * so these changes are certain. (The calls before o->first are applied already.) */
static void file_settle(int i, int end)
{
    object *o = &objects[i];
    for (int k = o->first; k < end; k++) {
        if (!call_is_of(&calls[k], i)) continue;
        o->size = call_size(&calls[k], o->size);
        file_room(o, o->size);
        call_apply(&calls[k], o->data, 0, o->room);
    }
    o->first = end;
}

typedef enum { NOTHING, EVERYTHING, BEHIND, FEW, HALF, N_LOSSES } loss;
static const char *const losses[] = {"nothing", "everything", "what came late", "single sectors",
                                     "half"};

/* There were n writes to a sector. Returns the number of these writes that reached the sector. */
static int sector_reached(loss l, int file, int64_t sector, int n, int n_early)
{
    uint64_t about = (uint64_t)file << 8 | 1;
    switch (l) {
    case NOTHING: return n;
    case EVERYTHING: return 0;
    case BEHIND: return n_early;
    case FEW:
        return draw(about, (uint64_t)sector, 12)
                   ? n
                   : (int)draw(about + 1, (uint64_t)sector, (uint64_t)n + 1);
    default: return (int)draw(about + 1, (uint64_t)sector, (uint64_t)n + 1);
    }
}

/* Applies the calls [o->first, end) of a file, but leaves out the writes that a loss of power would
 * lose. Returns the number of sectors that lose a write. */
static int64_t file_lose(int i, int end, loss l)
{
    object *o = &objects[i];
    int64_t size = o->size, most = o->size, n_sizes = 0, n_lost = 0;
    int moment = o->first + (int)draw((uint64_t)i, 2, (uint64_t)(end - o->first) + 1);
    for (int k = o->first; k < end; k++) {
        if (!call_is_of(&calls[k], i)) continue;
        size = call_size(&calls[k], size), n_sizes++;
        most = size > most ? size : most;
    }
    if (!n_sizes) return 0;
    // number of changes of the file's size that are kept
    int64_t keep = (int64_t)draw((uint64_t)i, 3, (uint64_t)n_sizes + 1);
    if (l == NOTHING || l == FEW) keep = n_sizes;
    if (l == EVERYTHING) keep = 0;
    int64_t n_sectors = (most + SECTOR - 1) / SECTOR;
    int *all = zeroed((size_t)n_sectors * sizeof *all),
        *early = zeroed((size_t)n_sectors * sizeof *early);
    file_room(o, n_sectors * SECTOR);
    for (int pass = 0; pass < 2; pass++) { // pass 0 counts the sectors, pass 1 applies the loss
        int64_t seen = 0, now = o->size;
        for (int k = o->first; k < end; k++) {
            const call *c = &calls[k];
            if (!call_is_of(c, i)) continue;
            now = call_size(c, now);
            if (pass && ++seen == keep) size = now;
            if (c->head.kind == DISK_GROW) continue;
            bool cut = c->head.kind != DISK_WRITE;
            int64_t from = (cut ? c->head.size : c->head.at) / SECTOR;
            int64_t to = cut ? n_sectors - 1 : (c->head.at + (int64_t)c->head.n_data - 1) / SECTOR;
            for (int64_t s = from; s <= to; s++) {
                if (!pass) all[s]++, early[s] += k < moment;
                else if (all[s]-- > 0) call_apply(c, o->data, s * SECTOR, (s + 1) * SECTOR);
            }
        }
        for (int64_t s = 0; !pass && s < n_sectors; s++) {
            int n = sector_reached(l, i, s, all[s], early[s]);
            n_lost += n < all[s];
            all[s] = n;
        }
        if (!pass && !keep) size = o->size;
    }
    o->size = size;
    free(all);
    free(early);
    return n_lost;
}

/* ---- recording of calls until the loss of power ---- */

static void call_see(int k)
{
    call *c = &calls[k];
    const disk_call *h = &c->head;
    c->object = c->dir = c->dir2 = -1;
    switch (h->kind) {
    case DISK_OPEN:
        c->object = object_at(c->path, &c->dir, c->name);
        if (c->object < 0) {
            c->object = object_new(false, h->inode);
            objects[c->object].first = k;
            names_put(&objects[c->dir].live, c->name, c->object);
        } else {
            c->dir = -1;
        }
        objects[c->object].inode = h->inode;
        break;
    case DISK_MKDIR:
        object_at(c->path, &c->dir, c->name);
        c->object = object_new(true, h->inode);
        names_put(&objects[c->dir].live, c->name, c->object);
        break;
    case DISK_RENAME: {
        char to[MAX_PATH];
        snprintf(to, sizeof to, "%.*s", (int)h->n_data, (const char *)c->data);
        c->object = object_at(c->path, &c->dir, c->name);
        object_at(to, &c->dir2, c->name2);
        if (c->object < 0) die("nothing was renamed", c->path);
        names_drop(&objects[c->dir].live, c->name, c->object);
        names_put(&objects[c->dir2].live, c->name2, c->object);
        break;
    }
    case DISK_UNLINK:
        c->object = object_at(c->path, &c->dir, c->name);
        if (c->object < 0) die("nothing was removed", c->path);
        names_drop(&objects[c->dir].live, c->name, c->object);
        break;
    default: c->object = object_of_inode(h->inode);
    }
    if (h->kind != DISK_SYNC || c->object < 0) return;
    if (!objects[c->object].dir) file_settle(c->object, k);
    for (int i = 0; objects[c->object].dir && i < k; i++)
        calls[i].sure |= calls[i].dir == c->object || calls[i].dir2 == c->object;
}

static void call_leave(const call *c)
{
    switch (c->head.kind) {
    case DISK_OPEN:
    case DISK_MKDIR: names_put(&objects[c->dir].left, c->name, c->object); break;
    case DISK_UNLINK: names_drop(&objects[c->dir].left, c->name, c->object); break;
    case DISK_RENAME:
        names_drop(&objects[c->dir].left, c->name, c->object);
        names_put(&objects[c->dir2].left, c->name2, c->object);
        break;
    default: break;
    }
}

static bool name_is_left(loss l, int k, int end)
{
    switch (l) {
    case NOTHING: return true;
    case EVERYTHING: return false;
    case BEHIND: return k < (int)draw(5, 0, (uint64_t)end + 1);
    case FEW: return draw(6, (uint64_t)k, 4) > 0;
    default: return draw(6, (uint64_t)k, 2) > 0;
    }
}

static void object_write(int i, const char *path)
{
    const object *o = &objects[i];
    if (o->dir) {
        if (mkdir(path, 0777)) die("cannot make", path);
        for (const entry *e = o->left; e; e = e->next) {
            char child[MAX_PATH];
            snprintf(child, sizeof child, "%s/%s", path, e->name);
            object_write(e->object, child);
        }
        return;
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0666);
    if (fd < 0) die("cannot make", path);
    for (int64_t at = 0; at < o->size;) {
        ssize_t n = write(fd, o->data + at, (size_t)(o->size - at));
        if (n <= 0) die("cannot write", path);
        at += n;
    }
    close(fd);
}

int main(int argc, char **argv)
{
    if (argc < 4) die("want", "LOG SEED DIR [BEFORE]");
    seed = strtoull(argv[2], NULL, 10);
    object_new(true, 0);
    if (argc > 4) object_load(0, argv[4]);
    log_read(argv[1]);
    int end = seed ? 1 + (int)draw(1, 0, (uint64_t)n_calls) : n_calls, n_names = 0, n_lost = 0;
    for (int k = 0; k < end; k++) call_see(k);
    loss names = seed ? (loss)draw(4, 0, N_LOSSES) : NOTHING,
         files = seed ? (loss)draw(4, 1, N_LOSSES) : NOTHING;
    for (int k = 0; k < end; k++) {
        if (calls[k].dir < 0) continue;
        bool left = calls[k].sure || name_is_left(names, k, end);
        n_names += !calls[k].sure, n_lost += !left;
        if (left) call_leave(&calls[k]);
    }
    int64_t sectors = 0;
    for (int i = 0; i < n_objects; i++)
        if (!objects[i].dir)
            sectors += file_lose(
                i, end, !seed || draw(4, 2, 2) ? files : (loss)draw(4, 16 + (uint64_t)i, N_LOSSES));
    object_write(0, argv[3]);
    printf("seed %s: behind call %d of %d; %d of %d names without a sync lost (%s), %lld sectors "
           "(%s)\n",
           argv[2], end, n_calls, n_lost, n_names, losses[names], (long long)sectors,
           losses[files]);
    return 0;
}
