/* field.h - describes options in tables: each row has the name, range, default and help text of one
 * flag, recipe key, op attribute or config key. */
#ifndef OSH_FIELD_H
#define OSH_FIELD_H
#include "base/base.h"

typedef enum {
    OSH_F_INT,   // int64_t
    OSH_F_FLOAT, // double
    OSH_F_BOOL,  // bool
    OSH_F_STR,   // char *, own; may be NULL
    OSH_F_STRS,  // osh_strs
    OSH_F_BYTES  // int64_t; text such as 20GB (decimal) or 512MiB
} osh_field_type;
typedef enum { // purpose of a path that the user gives as the value of an option
    OSH_PATH_NONE,
    OSH_PATH_READ,     // an input: a file, a directory with all its files, or a name of the Hub
    OSH_PATH_OUTPUT,   // an output directory, created or replaced
    OSH_PATH_SCRATCH,  // a directory in which this program makes a directory of its own
    OSH_PATH_LOG,      // an output: the log (osh_log_file)
    OSH_PATH_PROFILE,  // an output: the profile (osh_profile_start)
    OSH_PATH_NPY,      // an output: a .npy file of f32 numbers
    OSH_PATH_PAGE,     // an HTML page
    OSH_PATH_PANEL,    // an output: the JSON file that `eval --panel` writes
    OSH_PATH_LOGITS,   // an output: a directory of saved logits
    OSH_PATH_IN_OUTPUT // a file in the output directory; a recipe gives the file's name
} osh_path_use;
typedef struct osh_strs { char **items; size_t n; } osh_strs; // items: own
/* Frees the strings and the array. The list is then empty. */
void osh_strs_deinit(osh_ctx *cx, osh_strs *s);

typedef struct osh_field {
    /* Name in a recipe, with underscores. The flag of the command line is --name, with dashes. */
    const char *name;
    osh_field_type type;
    size_t offset;
    const char *dflt; // default value as text; NULL: zero
    double min, max;  // allowed range; both 0: any value
    const char *doc;
    const char *alias;  // second name of the flag; NULL: none
    const char *values; // allowed values of OSH_F_STR as "a|b|c"; NULL: any text
    /* Title of the group of options that begins with this row in the help. NULL: the row belongs to
     * the group of the row above. */
    const char *group;
    const char *brief; // line of text in the help; NULL: the help lists only the name
    osh_path_use path; // use of the path; OSH_PATH_NONE: the value is not a path
    bool whole; // only for OSH_F_STRS: true if the whole text is one item, even with commas in it
} osh_field; // a row whose name is NULL ends the table

/* Sets all members of `object` to their defaults. The caller calls osh_fields_deinit, also after a
 * failure. */
osh_status osh_fields_default(osh_ctx *cx, const osh_field *fields, void *object);
/* Parses `text` into the member of `object` that the row describes. For OSH_F_STRS, appends the
 * items of `text`. Commas outside of brackets separate items; if the row has `whole`, the whole
 * text is one item. For OSH_F_STR, `text` may be NULL; the member then becomes NULL. */
osh_status osh_field_set(osh_ctx *cx, const osh_field *field, void *object, const char *text);
/* Every command has fewer options than this. The options of a command are the rows of one or two
 * tables. */
enum { OSH_MAX_GIVEN = 192 };
/* Options that a command line or a caller has given so far. */
typedef struct osh_given {
    const osh_field *fields[OSH_MAX_GIVEN]; // views
    const char *values[OSH_MAX_GIVEN];      // views
    size_t n;
} osh_given;
/* Records that the option `field` was given with `value`. Fails if the option was given before.
 * Does nothing for a list, which may be given several times. `shown` is the name of the option in
 * the message, such as "--dataset". */
osh_status osh_field_once(osh_ctx *cx, osh_given *given, const osh_field *field, const char *shown,
                          const char *value);
/* Returns the row with this name or alias, or NULL if there is none. '-' and '_' are equal. */
const osh_field *osh_field_find(const osh_field *fields, const char *name);
void osh_fields_deinit(osh_ctx *cx, const osh_field *fields, void *object);
#endif
