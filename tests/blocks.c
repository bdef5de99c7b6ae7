/* blocks.c - records which basic blocks of a program have run, for scripts/test_blocks.py. The
 * script links this file into each program and library, and compiles everything with
 * -fsanitize-coverage=trace-pc. The code then calls __sanitizer_cov_trace_pc at the start of each
 * block.
 *
 * $BLOCKS_DIR has one file for each program. Byte i of a file is 1 if code at offset i of the
 * program has called __sanitizer_cov_trace_pc. All processes of a test map the same files. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

extern char __ehdr_start[] __attribute__((visibility("hidden")));
extern char etext[] __attribute__((visibility("hidden")));

static uint8_t *volatile blocks_map; // [blocks_size]; NULL: calls are not recorded
static uintptr_t blocks_base, blocks_size;

void __sanitizer_cov_trace_pc(void) __attribute__((visibility("hidden")));
void __sanitizer_cov_trace_pc(void)
{
    uint8_t *map = blocks_map;
    uintptr_t at = (uintptr_t)__builtin_return_address(0) - blocks_base;
    if (map && at < blocks_size) map[at] = 1;
}

static void __attribute__((constructor)) blocks_begin(void)
{
    const char *dir = getenv("BLOCKS_DIR");
    char path[2 * PATH_MAX], program[PATH_MAX];
    Dl_info info;
    blocks_base = (uintptr_t)__ehdr_start, blocks_size = (uintptr_t)etext - blocks_base;
    if (!dir || !dladdr((void *)(uintptr_t)blocks_begin, &info)) return;
    if (!realpath(info.dli_fname, program)) { // realpath fails if the program was started by a name
                                              // without a directory
        ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
        if (n < 0) return;
        program[n] = 0;
    }
    for (char *s = program; *s; s++)
        if (*s == '/') *s = '%';
    snprintf(path, sizeof path, "%s/%s", dir, program);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) return;
    if (!ftruncate(fd, (off_t)blocks_size)) {
        void *map = mmap(NULL, blocks_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (map != MAP_FAILED) blocks_map = map;
    }
    close(fd);
}
