/* table.h - the functions of a module that opens an MPI library. Each module is compiled from
 * src/mpi/module.c against one MPI (Open MPI, MPICH). The program opens the module with dlopen(3)
 * and sees only this table, so the program itself links no MPI.
 *
 * No function waits: a function begins a transfer, and `test` asks whether the transfer is
 * complete. The program itself waits (ranks.c), because it sleeps and checks for failures
 * meanwhile. Only the main thread calls these functions. Each function returns 0, or the error code
 * of MPI, which `text` describes. */
#ifndef OSH_RANKS_TABLE_H
#define OSH_RANKS_TABLE_H
#include <stddef.h>

#define OSH_RANKS_SYMBOL "oneshot_ranks_table" // name of the module's function osh_ranks_table_fn
enum {
    OSH_RANKS_ABI = 1,        // version of this header; program and module must have the same
    OSH_RANKS_PART = 1 << 28, // largest transfer in bytes, because MPI counts with an int
    OSH_RANKS_TEXT = 256      // bytes of a text, with the NUL
};

typedef struct osh_ranks_facts {
    int rank, size;             // number of this process, and number of processes
    int local_rank, local_size; // the same two numbers among the processes of this node
    char node[OSH_RANKS_TEXT];  // name of this node
    char version[OSH_RANKS_TEXT];
} osh_ranks_facts;

typedef struct osh_ranks_table {
    int abi;
    int (*open)(osh_ranks_facts *to); // begins MPI
    void (*text)(int code, char to[OSH_RANKS_TEXT]);
    /* The next four functions begin transfers, of at most OSH_RANKS_PART bytes. The memory must
     * stay valid until `test` reports that the transfer is complete. Until then the module owns
     * *request. */
    int (*send)(const void *from, size_t n, int to, int tag, void **request);
    int (*recv)(void *to, size_t n, int from, int tag, void **request);
    int (*broadcast)(void *bytes, size_t n, int root, void **request);
    int (*barrier)(void **request);
    int (*test)(void **request, int *done); // *done: 1 if complete, then *request is NULL
    /* Looks for a message with this tag that has arrived but was not received yet. Sets *any to 1
     * if there is one, and *from and *n to the message's sender and number of bytes. */
    int (*probe)(int tag, int *any, int *from, size_t *n);
    void (*end)(int code); // ends all processes; does not return
    int (*close)(void);    // ends MPI; all processes call it
} osh_ranks_table;

typedef const osh_ranks_table *(*osh_ranks_table_fn)(void);
#endif
