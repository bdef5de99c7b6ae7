/* prune_sizes.c - computes the scratch of prune_solve.cu. This file is in every binary, because a
 * plan for a GPU needs neither a GPU nor kernels. */
#include "solver/cuda/sizes.h"

#include "ops/kernel.h"

/* Largest number of columns of a block, because one row of a block must fit into shared memory. */
enum { MOST_COLUMNS = 1024 };

bool osh_prune_takes_device(const osh_prune_solve_args *a)
{
    return !a->keep && osh_min64(a->block_size, a->I) <= MOST_COLUMNS;
}

/* Returns how many floats the array of errors has. The array later contains pieces of the result,
 * so it has at least 2 I floats. */
int64_t osh_prune_room(const osh_prune_solve_args *a)
{
    int64_t errors = a->O * osh_min64(a->block_size, a->I);
    return errors > 2 * a->I ? errors : 2 * a->I;
}

/* Sets at[i] to the offset of array i in one allocation of the arena. Returns the size of the
 * allocation. */
size_t osh_prune_offsets(size_t at[OSH_PRUNE_N_ARRAYS], const osh_prune_solve_args *a)
{
    size_t bytes[OSH_PRUNE_N_ARRAYS], sum = 0;
    bytes[OSH_PRUNE_W] = (size_t)(a->O * a->I) * sizeof(float);
    bytes[OSH_PRUNE_ERR] = (size_t)osh_prune_room(a) * sizeof(float);
    bytes[OSH_PRUNE_LOSS] = (size_t)a->O * sizeof(double);
    bytes[OSH_PRUNE_DEAD] = (size_t)a->I * sizeof(bool);
    bytes[OSH_PRUNE_COUNTS] = OSH_PRUNE_BINS * sizeof(uint32_t);
    bytes[OSH_PRUNE_PICK] = sizeof(osh_prune_pick);
    for (int i = 0; i < OSH_PRUNE_N_ARRAYS; i++) at[i] = sum, sum += osh_arena_gross(bytes[i]);
    return sum;
}

size_t osh_prune_solve_device_bytes(const osh_prune_solve_args *a)
{
    size_t at[OSH_PRUNE_N_ARRAYS];
    return osh_arena_gross(osh_prune_offsets(at, a));
}
