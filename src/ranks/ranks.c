/* ranks.c - opens the module for a launcher's MPI, and exchanges data with the other ranks. Also
 * checks data that must be equal on all ranks, and reports failures to rank 0. */
#include "ranks/ranks.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/xxh3.h"
#include "ranks/launcher.h"
#include "ranks/ranks_impl.h"

/* A failed rank waits at most this number of seconds for rank 0 to end the job. Then the failed
 * rank ends the job itself. */
enum { PATIENCE_S = 8 };

int osh_ranks_me(const osh_ranks *r) { return r ? r->facts.rank : 0; }
int osh_ranks_n(const osh_ranks *r) { return r ? r->facts.size : 1; }

int osh_deal_owner(const osh_ranks *r, int64_t item) { return (int)(item % osh_ranks_n(r)); }
int64_t osh_deal_local(const osh_ranks *r, int64_t item) { return item / osh_ranks_n(r); }
int64_t osh_deal_n(const osh_ranks *r, int64_t n)
{
    int64_t before = osh_ranks_me(r);
    return n > before ? (n - before - 1) / osh_ranks_n(r) + 1 : 0;
}
int64_t osh_deal_item(const osh_ranks *r, int64_t local)
{
    return osh_ranks_me(r) + local * osh_ranks_n(r);
}
const osh_rank *osh_ranks_at(const osh_ranks *r, int rank) { return &r->at[rank]; }
const char *osh_ranks_version(const osh_ranks *r) { return r->facts.version; }

int osh_ranks_per_node(const osh_ranks *r)
{
    int most = 1;
    for (int k = 0; k < osh_ranks_n(r) && r; k++)
        if (r->at[k].n_local > most) most = r->at[k].n_local;
    return most;
}

int osh_ranks_threads(const osh_ranks *r)
{
    int least = 0;
    for (int k = 0; k < osh_ranks_n(r) && r; k++) {
        int n = r->at[k].n_cores / r->at[k].n_alike;
        if (!k || n < least) least = n;
    }
    return least > 1 ? least : 1;
}

/* ---- the start ---- */

/* Opens the module of the launcher `l`. The module's libraries are never closed, because their
 * threads and data remain. RTLD_GLOBAL is needed, because the plugins of Open MPI look for
 * functions of Open MPI in all libraries. */
static osh_status module_find(osh_ctx *cx, const osh_ranks_table **to, const osh_launcher *l)
{
    osh_status rc = OSH_OK;
    osh_ranks_table_fn fn = NULL;
    void *lib = dlopen(l->module, RTLD_NOW | RTLD_GLOBAL), *at;
    if (!lib)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "%s has started %d processes, and the module for %s does not open: %s; want the "
                 "package oneshot-mpi, or one process",
                 l->name, l->size, l->library, dlerror());
    at = dlsym(lib, OSH_RANKS_SYMBOL);
    memcpy(&fn, &at, sizeof fn); // ISO C has no cast from void * to a function pointer
    if (!fn || fn()->abi != OSH_RANKS_ABI)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "%s is of another version than this program: want oneshot and oneshot-mpi of the "
                 "same version",
                 l->module);
    *to = fn();
done:
    return rc;
}

/* Returns the checksum of the program's file, or 0 if the file cannot be read. */
static uint64_t program_sum(void)
{
    static char part[1 << 16];
    uint64_t sum = 0;
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    for (ssize_t n; fd >= 0 && (n = read(fd, part, sizeof part)) > 0;)
        sum = XXH3_64bits_withSeed(part, (size_t)n, sum);
    if (fd >= 0) close(fd);
    return sum;
}

typedef struct self { // data about one rank, which all ranks exchange
    osh_rank rank;
    cpu_set_t cores;
} self;

/* Exchanges data about all ranks, and fills r->at with these data. */
static osh_status ranks_meet(osh_ctx *cx, osh_ranks *r)
{
    osh_status rc = OSH_OK;
    int n = r->facts.size;
    self *all = NULL, mine = {0}; // own: all [n]
    OSH_NEW(cx, all, n);
    OSH_NEW(cx, r->at, n);
    memcpy(mine.rank.node, r->facts.node, sizeof mine.rank.node);
    mine.rank.local = r->facts.local_rank, mine.rank.n_local = r->facts.local_size;
    mine.rank.program = program_sum();
    osh_process_find(&mine.rank.guard, getppid());
    if (sched_getaffinity(0, sizeof mine.cores, &mine.cores)) CPU_SET(0, &mine.cores);
    mine.rank.n_cores = CPU_COUNT(&mine.cores);
    OSH_TRY(osh_ranks_gather(cx, r, all, &mine, sizeof mine));
    for (int i = 0; i < n && !r->facts.rank; i++)
        for (int k = 0; k < n; k++)
            all[i].rank.n_alike += !strcmp(all[i].rank.node, all[k].rank.node) &&
                                   CPU_EQUAL(&all[i].cores, &all[k].cores);
    for (int i = 0; i < n; i++) r->at[i] = all[i].rank;
    OSH_TRY(osh_ranks_broadcast(cx, r, r->at, (size_t)n * sizeof *r->at, 0));
done:
    osh_free(cx, all);
    return rc;
}

static osh_status ranks_check_program(osh_ctx *cx, osh_ranks *r)
{
    char text[64];
    snprintf(text, sizeof text, "oneshot %s, file %016llx", osh_version(),
             (unsigned long long)r->at[r->facts.rank].program);
    return osh_ranks_agree(cx, r, "another program", text);
}

bool osh_ranks_are_started(osh_env_fn env)
{
    static const char *const sizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
                                        "SLURM_STEP_NUM_TASKS"};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (env(sizes[i]) && atoi(env(sizes[i])) > 1) return true;
    return false;
}

osh_status osh_ranks_open(osh_ctx *cx, osh_ranks **out, osh_env_fn env)
{
    osh_status rc = OSH_OK;
    osh_launcher l;
    *out = NULL;
    OSH_TRY(osh_launcher_find(cx, &l, env));
    if (!l.name) goto done;
    osh_ranks *r = NULL;
    const osh_ranks_table *t = NULL;
    OSH_TRY(module_find(cx, &t, &l));
    OSH_NEW(cx, r, 1);
    /* *out is set even after a failure, because the caller must then end the other ranks */
    r->t = t, *out = r;
    OSH_TRY(osh_ranks_check(cx, r, t->open(&r->facts)));
    osh_ranks_phase(r, "the start", NULL);
    if (r->facts.size != l.size)
        OSH_FAIL(cx, OSH_E_USAGE,
                 "%s has started %d processes, and %s sees %d of them: want the launcher of this "
                 "%s, of the same version",
                 l.name, l.size, r->facts.version, r->facts.size, l.library);
    OSH_TRY(ranks_meet(cx, r));
    OSH_TRY(ranks_check_program(cx, r));
done:
    return rc;
}

void osh_ranks_close(osh_ctx *cx, osh_ranks *r, bool failed)
{
    if (!r) return;
    if (failed || osh_ranks_post_wait(cx, r, 0) || osh_ranks_barrier(cx, r)) {
        fflush(NULL);
        osh_watch_drain();
        r->t->end(1);
    }
    if (r->watch) atomic_store(&r->watch->n_peers, 0);
    r->t->close();
    osh_free(cx, r->at);
    osh_free(cx, r);
}

/* ---- failures ---- */

void osh_ranks_phase(osh_ranks *r, const char *phase, const char *of)
{
    if (!r) return;
    snprintf(r->phase, sizeof r->phase, "%s%s%s", phase, of ? " of " : "", of ? of : "");
    if (r->watch)
        snprintf(r->watch->where, OSH_WHERE_BYTES, "rank %d of %d on %s, %s", r->facts.rank,
                 r->facts.size, r->facts.node, r->phase);
}

/* The list in *to gets only guards that run now. If each rank has its own container, this process
 * does not see the guards of other ranks. Then osh_process_runs is false for them, and the guard of
 * this rank does not watch them. */
void osh_ranks_watch(osh_ranks *r, osh_watch *to)
{
    int n = 0;
    r->watch = to;
    osh_ranks_phase(r, "the start", NULL);
    for (int k = 0; k < r->facts.size && n < OSH_PEERS; k++)
        if (k != r->facts.rank && !strcmp(r->at[k].node, r->facts.node) &&
            osh_process_runs(&r->at[k].guard))
            to->peers[n++] = r->at[k].guard;
    atomic_store(&to->n_peers, n);
}

void osh_ranks_fail(osh_ctx *cx, osh_ranks *r, osh_status rc)
{
    void *request = NULL;
    int done = 0;
    double until = osh_now() + PATIENCE_S;
    const struct timespec ms = {.tv_nsec = 1000000};
    char text[sizeof r->told - 1];
    if (!rc || !r || !r->facts.rank) return;
    snprintf(text, sizeof text, "%s", osh_error_text(cx));
    osh_error_clear(cx);
    osh_fail(cx, rc, "rank %d of %d on %s, %s: %s", r->facts.rank, r->facts.size, r->facts.node,
             r->phase, text);
    r->told[0] = (char)-rc;
    size_t n = 1 + (size_t)snprintf(r->told + 1, sizeof r->told - 1, "%s", osh_error_text(cx));
    if (n > sizeof r->told) n = sizeof r->told;
    if (r->t->send(r->told, n, 0, OSH_TAG_FAIL, &request)) return;
    while (osh_now() < until) {
        if (request && r->t->test(&request, &done)) return;
        nanosleep(&ms, NULL);
    }
}

osh_status osh_ranks_hear(osh_ctx *cx, osh_ranks *r)
{
    osh_status rc = OSH_OK;
    int any = 0, from = 0, done = 0;
    size_t n = 0;
    void *request = NULL;
    const struct timespec ms = {.tv_nsec = 1000000};
    if (!r || r->facts.rank) goto done;
    OSH_TRY(osh_ranks_check(cx, r, r->t->probe(OSH_TAG_FAIL, &any, &from, &n)));
    if (!any) goto done;
    if (n >= sizeof r->told) n = sizeof r->told - 1;
    OSH_TRY(osh_ranks_check(cx, r, r->t->recv(r->told, n, from, OSH_TAG_FAIL, &request)));
    while (!done) {
        OSH_TRY(osh_ranks_check(cx, r, r->t->test(&request, &done)));
        if (!done) nanosleep(&ms, NULL);
    }
    r->told[n] = 0;
    rc = osh_fail(cx, -r->told[0], "%s", r->told + 1);
done:
    return rc;
}

/* Fails with a message that has the first line in which the texts differ. theirs: text of rank
 * 0. */
static osh_status texts_differ(osh_ctx *cx, const char *what, const char *mine, const char *theirs)
{
    while (*mine && *mine == *theirs && strchr(mine, '\n') && strchr(theirs, '\n')) {
        size_t n = strcspn(mine, "\n");
        if (n != strcspn(theirs, "\n") || memcmp(mine, theirs, n)) break;
        mine += n + 1, theirs += n + 1;
    }
    return osh_fail(cx, OSH_E_USAGE,
                    "has %s than rank 0: here '%.*s', there '%.*s'; want the same on all ranks",
                    what, (int)strcspn(mine, "\n"), mine, (int)strcspn(theirs, "\n"), theirs);
}

osh_status osh_ranks_agree(osh_ctx *cx, osh_ranks *r, const char *what, const char *text)
{
    osh_status rc = OSH_OK;
    char *theirs = NULL, ok = 1, *all = NULL; // own
    uint64_t n = strlen(text);
    if (!r) goto done;
    OSH_NEW(cx, all, r->facts.size);
    OSH_TRY(osh_ranks_broadcast(cx, r, &n, sizeof n, 0));
    OSH_NEW(cx, theirs, n + 1);
    if (!r->facts.rank) memcpy(theirs, text, n);
    OSH_TRY(osh_ranks_broadcast(cx, r, theirs, n, 0));
    if (strcmp(theirs, text)) OSH_TRY(texts_differ(cx, what, text, theirs));
    /* While rank 0 waits, it receives the failures of other ranks. */
    OSH_TRY(osh_ranks_gather(cx, r, all, &ok, 1));
done:
    osh_free(cx, theirs);
    osh_free(cx, all);
    return rc;
}
