/* name.h - how names of tensors, files and stages begin and end. */
#ifndef OSH_NAME_H
#define OSH_NAME_H
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Of the first n bytes of s. */
static inline bool osh_ends_with(const char *s, size_t n, const char *tail)
{
    size_t t = strlen(tail);
    return n >= t && !memcmp(s + n - t, tail, t);
}

/* Bytes in front of the tail that s ends with; 0: it does not, or nothing is there. */
static inline size_t osh_before_tail(const char *s, const char *tail)
{
    size_t n = strlen(s);
    return osh_ends_with(s, n, tail) ? n - strlen(tail) : 0;
}

/* The last part of a path, with slashes that stand behind it. */
static inline const char *osh_path_last(const char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    while (n > 0 && path[n - 1] != '/') n--;
    return path + n;
}
#endif
