/* field.h - one row describes one option: flag, recipe key, op attribute or config key, with its
 * range and its doc. */
#ifndef OSH_FIELD_H
#define OSH_FIELD_H
#include "base/base.h"

typedef enum {
    OSH_F_INT,    // int64_t
    OSH_F_FLOAT,  // double
    OSH_F_BOOL,   // bool
    OSH_F_STR,    // char * (own) or NULL
    OSH_F_STRS,   // osh_strs
    OSH_F_BYTES   // int64_t; 20GB (decimal), 512MiB
} osh_field_type;
typedef enum { // what a text names
    OSH_PATH_NONE,
    OSH_PATH_READ,     // a file or a directory, read with all its files; or a name of the Hub
    OSH_PATH_OUTPUT,   // a directory that is made, or replaced by what is made
    OSH_PATH_SCRATCH,  // a directory; a directory of this program is made in it
    OSH_PATH_LOG,      // a file of osh_log_file
    OSH_PATH_PROFILE,  // a file of osh_profile_start
    OSH_PATH_NPY,      // a file of f32 numbers
    OSH_PATH_PAGE,     // an HTML page
    OSH_PATH_IN_OUTPUT // a file of the output, named by a recipe
} osh_path_use;
typedef struct osh_strs { char **items; size_t n; } osh_strs; // own
void osh_strs_deinit(osh_ctx *cx, osh_strs *s);

typedef struct osh_field {
    const char *name; // recipe spelling, with underscores; the flag is --name with dashes
    osh_field_type type;
    size_t offset;
    const char *dflt; // text form; NULL: none (zero)
    double min, max;  // both 0: no range
    const char *doc;
    const char *alias; // another flag name, or NULL
    const char *values; // for OSH_F_STR: "a|b|c", or NULL for anything
    const char *group;  // of help: the title of this row and those behind it; NULL: the same as before
    const char *brief;  // of help: worth a line, which this is; NULL: named only
    osh_path_use path;  // of a text that names a file or a directory
} osh_field;          // a table ends with a row whose name is NULL

osh_status osh_fields_default(osh_ctx *cx, const osh_field *fields, void *object);
/* STRS: appends the items of text, between commas outside of brackets. STR: text NULL sets NULL. */
osh_status osh_field_set(osh_ctx *cx, const osh_field *field, void *object, const char *text);
/* The options that were given so far, by a command line or a caller. */
enum { OSH_MAX_GIVEN = 192 }; // above the rows of any two tables
typedef struct osh_given {
    const osh_field *fields[OSH_MAX_GIVEN]; // views
    const char *values[OSH_MAX_GIVEN];      // views
    size_t n;
} osh_given;
/* Notes that an option was given this value. Fails where it was given one before and is no list. shown: its name in the
 * message, such as "--dataset". */
osh_status osh_field_once(osh_ctx *cx, osh_given *given, const osh_field *field, const char *shown, const char *value);
/* By name or alias; '-' and '_' are the same; NULL: none. */
const osh_field *osh_field_find(const osh_field *fields, const char *name);
void osh_fields_deinit(osh_ctx *cx, const osh_field *fields, void *object);
#endif
