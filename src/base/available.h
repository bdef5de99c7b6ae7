/* available.h - reads the memory that the machine has available for this process. */
#ifndef OSH_AVAILABLE_H
#define OSH_AVAILABLE_H
#include <stdint.h>

/* Returns how many bytes the process can still allocate: MemAvailable of /proc/meminfo, or less if
 * the cgroup of the process allows less. Returns a negative number if this is unknown. */
int64_t osh_mem_available(void);
int64_t osh_mem_machine(void); // returns the size of the machine's memory in bytes
#endif
