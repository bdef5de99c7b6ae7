/* thrift.h - reads values of Thrift's compact protocol from bytes in memory. Parquet's footer and
 * page headers have this form. Every length is checked against the bytes that are left. */
#ifndef OSH_THRIFT_H
#define OSH_THRIFT_H
#include "base/base.h"

typedef enum { // types of fields; OSH_THRIFT_STOP ends a struct
    OSH_THRIFT_STOP,
    OSH_THRIFT_TRUE,
    OSH_THRIFT_FALSE,
    OSH_THRIFT_BYTE,
    OSH_THRIFT_I16,
    OSH_THRIFT_I32,
    OSH_THRIFT_I64,
    OSH_THRIFT_DOUBLE,
    OSH_THRIFT_BINARY,
    OSH_THRIFT_LIST,
    OSH_THRIFT_SET,
    OSH_THRIFT_MAP,
    OSH_THRIFT_STRUCT
} osh_thrift_type;

typedef struct osh_thrift {
    osh_ctx *cx;
    const char *what; // view: name of the bytes in messages
    const uint8_t *s; // view
    size_t n, at;
    int depth;     // number of structs and lists that enclose the position
    bool short_of; // true: the bytes ended inside a value
} osh_thrift;

/* Returns a reader of the n bytes at s. It keeps views of s and `what`. */
osh_thrift osh_thrift_of(osh_ctx *cx, const void *s, size_t n, const char *what);
/* Reads a whole number. `type` is the type of the field or of the list's items. */
osh_status osh_thrift_int(osh_thrift *t, int64_t *out, int type);
/* Reads a bool field. The value of the field is its type: OSH_THRIFT_TRUE or OSH_THRIFT_FALSE. */
osh_status osh_thrift_bool(osh_thrift *t, bool *out, int type);
osh_status osh_thrift_binary(osh_thrift *t, const char **s, size_t *n, int type); // *s: view
/* Skips a value of any type. */
osh_status osh_thrift_skip(osh_thrift *t, int type);
/* Calls `field` for each field of a struct. `field` must read or skip the value. */
typedef osh_status (*osh_thrift_field_fn)(osh_thrift *t, void *user, int id, int type);
/* Reads a struct with osh_thrift_field_fn. */
osh_status osh_thrift_struct(osh_thrift *t, int type, osh_thrift_field_fn field, void *user);
/* Calls `item` for each item of a list, with the index and the type of the item. Sets *n to the
 * number of items; n may be NULL. */
osh_status osh_thrift_list(osh_thrift *t, int type, osh_thrift_field_fn item, void *user,
                           int64_t *n);
#endif
