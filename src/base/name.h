/* name.h - finds the first and last parts of names of tensors, files and stages. */
#ifndef OSH_NAME_H
#define OSH_NAME_H
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* True if the first n bytes of s end with tail. */
static inline bool osh_ends_with(const char *s, size_t n, const char *tail)
{
    size_t t = strlen(tail);
    return n >= t && !memcmp(s + n - t, tail, t);
}

/* Returns the number of bytes of s before `tail`. Returns 0 if s equals `tail`, or if s does not
 * end with `tail`. */
static inline size_t osh_before_tail(const char *s, const char *tail)
{
    size_t n = strlen(s);
    return osh_ends_with(s, n, tail) ? n - strlen(tail) : 0;
}

/* Returns the last part of a path, including trailing slashes. */
static inline const char *osh_path_last(const char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    while (n > 0 && path[n - 1] != '/') n--;
    return path + n;
}

/* Sets the array `to` to the path of the directory that contains `path`. Returns false if that path
 * is too long. */
static inline bool osh_path_parent(char *to, size_t room, const char *path)
{
    size_t n = (size_t)(osh_path_last(path) - path);
    while (n > 1 && path[n - 1] == '/') n--;
    if (n + 2 > room) return false;
    memcpy(to, n ? path : ".", n ? n : 1);
    to[n ? n : 1] = 0;
    return true;
}

/* Returns the length of "model.layers.0.mlp.experts" in "model.layers.0.mlp.experts.7.up_proj".
 * Returns 0 if the name is not the name of an expert. */
static inline size_t osh_expert_prefix(const char *name)
{
    static const char word[] = ".experts.";
    const char *at = strstr(name, word), *number = at ? at + sizeof word - 1 : NULL;
    return at && *number >= '0' && *number <= '9' ? (size_t)(number - 1 - name) : 0;
}
#endif
