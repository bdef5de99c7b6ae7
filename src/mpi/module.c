/* module.c - implements the functions of ranks/table.h with calls of MPI. This file is compiled
 * once for each MPI of the system, into a library. Only a run under a launcher opens this
 * library. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ranks/table.h"

/* all: communicator for transfers; the receiver knows which transfer comes next.
 * control: communicator for control messages; the receiver asks whether a message has arrived. */
static MPI_Comm all, control;

static int module_open(osh_ranks_facts *to)
{
    MPI_Comm node; // the processes on the node of this process
    int level, n, rc;
    char name[MPI_MAX_PROCESSOR_NAME] = "", version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    if ((rc = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level))) return rc;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if ((rc = MPI_Comm_dup(MPI_COMM_WORLD, &all))) return rc;
    if ((rc = MPI_Comm_dup(MPI_COMM_WORLD, &control))) return rc;
    MPI_Comm_rank(all, &to->rank), MPI_Comm_size(all, &to->size);
    if ((rc = MPI_Comm_split_type(all, MPI_COMM_TYPE_SHARED, to->rank, MPI_INFO_NULL, &node)))
        return rc;
    MPI_Comm_rank(node, &to->local_rank), MPI_Comm_size(node, &to->local_size);
    MPI_Comm_free(&node);
    MPI_Get_processor_name(name, &n);
    MPI_Get_library_version(version, &n);
    version[strcspn(version, ",\n")] = 0;
    snprintf(to->node, sizeof to->node, "%.*s", OSH_RANKS_TEXT - 1, name);
    for (char *c = version; *c; c++)
        if (*c == '\t') *c = ' ';
    snprintf(to->version, sizeof to->version, "%.*s", OSH_RANKS_TEXT - 1, version);
    return 0;
}

static void module_text(int code, char to[OSH_RANKS_TEXT])
{
    char text[MPI_MAX_ERROR_STRING] = "unknown error of MPI";
    int n;
    MPI_Error_string(code, text, &n);
    snprintf(to, OSH_RANKS_TEXT, "%.*s", OSH_RANKS_TEXT - 1, text);
}

/* Makes a request, stores it in *to and returns it. Returns NULL if out of memory. */
static MPI_Request *request_new(void **to)
{
    MPI_Request *r = malloc(sizeof *r);
    if (r) *r = MPI_REQUEST_NULL;
    return *to = r;
}

static int request_begun(void **request, int rc)
{
    if (rc) free(*request), *request = NULL;
    return rc;
}

/* Control messages have tags below 0 in the program. In MPI, they have a communicator of their own,
 * so that a probe for them never finds another transfer. */
static MPI_Comm comm_of(int tag) { return tag < 0 ? control : all; }
static int tag_of(int tag) { return tag < 0 ? -tag : tag; }

static int module_send(const void *from, size_t n, int to, int tag, void **request)
{
    MPI_Request *r = request_new(request);
    if (!r) return MPI_ERR_NO_MEM;
    return request_begun(request,
                         MPI_Isend(from, (int)n, MPI_BYTE, to, tag_of(tag), comm_of(tag), r));
}

static int module_recv(void *to, size_t n, int from, int tag, void **request)
{
    MPI_Request *r = request_new(request);
    if (!r) return MPI_ERR_NO_MEM;
    return request_begun(request,
                         MPI_Irecv(to, (int)n, MPI_BYTE, from, tag_of(tag), comm_of(tag), r));
}

static int module_broadcast(void *bytes, size_t n, int root, void **request)
{
    MPI_Request *r = request_new(request);
    if (!r) return MPI_ERR_NO_MEM;
    return request_begun(request, MPI_Ibcast(bytes, (int)n, MPI_BYTE, root, all, r));
}

static int module_barrier(void **request)
{
    MPI_Request *r = request_new(request);
    return r ? request_begun(request, MPI_Ibarrier(all, r)) : MPI_ERR_NO_MEM;
}

static int module_test(void **request, int *done)
{
    int rc = MPI_Test(*request, done, MPI_STATUS_IGNORE);
    if (rc || *done) free(*request), *request = NULL;
    return rc;
}

static int module_probe(int tag, int *any, int *from, size_t *n)
{
    MPI_Status status;
    int count = 0, rc = MPI_Iprobe(MPI_ANY_SOURCE, tag_of(tag), comm_of(tag), any, &status);
    if (rc || !*any) return rc;
    rc = MPI_Get_count(&status, MPI_BYTE, &count);
    *from = status.MPI_SOURCE, *n = (size_t)count;
    return rc;
}

static void module_end(int code)
{
    MPI_Abort(MPI_COMM_WORLD, code);
    _Exit(code); // not reached
}

static int module_close(void)
{
    MPI_Comm_free(&control);
    MPI_Comm_free(&all);
    return MPI_Finalize();
}

static const osh_ranks_table table = {
    .abi = OSH_RANKS_ABI,
    .open = module_open,
    .text = module_text,
    .send = module_send,
    .recv = module_recv,
    .broadcast = module_broadcast,
    .barrier = module_barrier,
    .test = module_test,
    .probe = module_probe,
    .end = module_end,
    .close = module_close,
};

__attribute__((visibility("default"))) const osh_ranks_table *oneshot_ranks_table(void);
const osh_ranks_table *oneshot_ranks_table(void) { return &table; }
