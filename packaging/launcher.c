/* launcher.c - starts the program of a tarball with the loader and the C library of the tarball, so
 * the system may have an older C library. The launcher is bin/oneshot of the tarball. The launcher
 * is linked statically, and needs only the kernel.
 *
 *   bin/oneshot                               this program
 *   lib/oneshot/oneshot                       the program that it starts
 *   lib/oneshot/                              libraries of the program
 *   lib/oneshot/libc/                         the C library
 *   lib/oneshot/libc/ld-linux-x86-64.so.2     the loader
 *
 * LD_LIBRARY_PATH is searched after these directories, for the libraries of a GPU. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int fail(const char *what, const char *name)
{
    fprintf(stderr, "oneshot: %s %s: %s\n", what, name, strerror(errno));
    return 1;
}

/* Searches PATH, as a shell does, for an executable file called `name`. Writes its path to `found`
 * and returns `found`, or returns NULL if there is no such file. A name with a slash is a path. */
static char *look_up(char found[PATH_MAX], const char *name)
{
    char path[PATH_MAX];
    const char *all = getenv("PATH");
    if (strchr(name, '/')) return realpath(name, found);
    for (const char *at = all ? all : ""; *at;) {
        int n = (int)strcspn(at, ":");
        snprintf(path, sizeof path, "%.*s/%s", n, at, name);
        if (!access(path, X_OK) && realpath(path, found)) return found;
        at += n + (at[n] == ':');
    }
    return NULL;
}

int main(int argc, char **argv)
{
    static char self[PATH_MAX], loader[PATH_MAX + 64], program[PATH_MAX + 64],
        libraries[4 * PATH_MAX];
    const char *others = getenv("LD_LIBRARY_PATH");
    if (!realpath("/proc/self/exe", self) && !look_up(self, argc ? argv[0] : "oneshot"))
        return fail("cannot find", argc ? argv[0] : "itself");
    for (int up = 0; up < 2; up++) { // .../bin/oneshot
        char *slash = strrchr(self, '/');
        if (slash) *slash = 0;
    }
    snprintf(loader, sizeof loader, "%s/lib/oneshot/libc/ld-linux-x86-64.so.2", self);
    snprintf(program, sizeof program, "%s/lib/oneshot/oneshot", self);
    int n = snprintf(libraries, sizeof libraries, "%s/lib/oneshot:%s/lib/oneshot/libc%s%s", self,
                     self, others && *others ? ":" : "", others ? others : "");
    if (n >= (int)sizeof libraries)
        return errno = ENAMETOOLONG, fail("LD_LIBRARY_PATH", "is too long");
    char **args = calloc((size_t)argc + 8, sizeof *args);
    if (!args) return fail("cannot start", program);
    n = 0;
    args[n++] = loader;
    args[n++] = "--library-path", args[n++] = libraries;
    args[n++] = "--argv0", args[n++] = argc ? argv[0] : "oneshot";
    args[n++] = program;
    for (int i = 1; i < argc; i++) args[n++] = argv[i];
    execv(loader, args);
    return fail("cannot start", loader);
}
