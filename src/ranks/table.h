/* table.h - declares the functions of a module that opens an MPI library. Each module is compiled
 * from src/mpi/module.c against one MPI (Open MPI, MPICH). The program opens the module with
 * dlopen(3) and sees only this table, so the program itself links no MPI.
 *
 * No function waits: a function begins a transfer, and `test` asks whether the transfer is
 * complete. The program itself waits (transfer.c), because it sleeps and checks for failures
 * meanwhile. Only the main thread calls these functions. Each function returns 0, or the error code
 * of MPI, which `text` describes. */
#ifndef OSH_RANKS_TABLE_H
#define OSH_RANKS_TABLE_H
#include <stddef.h>

/* name of the function in the module that returns its table (osh_ranks_table_fn) */
#define OSH_RANKS_SYMBOL "oneshot_ranks_table"
enum {
    OSH_RANKS_ABI = 1,        // version of this header, which must be equal in program and module
    OSH_RANKS_PART = 1 << 28, // largest number of bytes of a transfer; MPI counts bytes with an int
    OSH_RANKS_TEXT = 256      // largest number of bytes of a text, with its NUL
};

typedef struct osh_ranks_facts {
    int rank, size;             // number of this process, and number of all processes
    /* number of this process among the processes of its node, and their number */
    int local_rank, local_size;
    char node[OSH_RANKS_TEXT];  // name of this process's node
    char version[OSH_RANKS_TEXT];
} osh_ranks_facts;

typedef struct osh_ranks_table {
    int abi;
    int (*open)(osh_ranks_facts *to); // begins MPI
    void (*text)(int code, char to[OSH_RANKS_TEXT]);
    /* The next four functions begin a transfer of at most OSH_RANKS_PART bytes. Its memory must
     * stay valid until `test` reports that the transfer is complete. Until then, *request belongs
     * to the module. */
    int (*send)(const void *from, size_t n, int to, int tag, void **request);
    int (*recv)(void *to, size_t n, int from, int tag, void **request);
    int (*broadcast)(void *bytes, size_t n, int root, void **request);
    int (*barrier)(void **request);
    /* *done: set to 1 if the transfer is complete, otherwise to 0. If the transfer is complete or
     * has failed, *request is also set to NULL. */
    int (*test)(void **request, int *done);
    /* Looks for a message with this tag that has arrived but is not received yet. *any: set to 1 if
     * there is one. *from and *n are then set to its sender and its number of bytes. */
    int (*probe)(int tag, int *any, int *from, size_t *n);
    void (*end)(int code); // ends all processes of the job, and does not return
    int (*close)(void);    // ends MPI; all processes must call it
} osh_ranks_table;

typedef const osh_ranks_table *(*osh_ranks_table_fn)(void);
#endif
