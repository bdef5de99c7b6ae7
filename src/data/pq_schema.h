/* pq_schema.h - reads the footer of a Parquet file: the tree of its columns, and its row groups. */
#ifndef OSH_PQ_SCHEMA_H
#define OSH_PQ_SCHEMA_H
#include "base/file.h"
#include "data/pq_column.h"

typedef enum { OSH_PQ_REQUIRED, OSH_PQ_OPTIONAL, OSH_PQ_REPEATED } osh_pq_repetition;
typedef enum { // form in which the values of a leaf become JSON
    OSH_PQ_AS_TEXT,
    OSH_PQ_AS_BYTES,
    OSH_PQ_AS_INT,
    OSH_PQ_AS_UINT,
    OSH_PQ_AS_FLOAT,
    OSH_PQ_AS_BOOL,
    OSH_PQ_AS_NOTHING // any other type, such as a date
} osh_pq_form;

typedef struct osh_pq_node { // a column, or a part of a column
    char *name;              // own
    int type;                // physical type of a leaf (a column); -1: the node is a group
    osh_pq_repetition repetition;
    osh_pq_form form;
    int n_children, next; // next: index of the first node after this node and all nodes below it
    int first_leaf, n_leaves;
    int max_rep, max_def; // largest repetition and definition level of the node's values
    /* list: true if the group is annotated as a list; map: true if it is annotated as a map. */
    bool list, map;
    /* True if all leaves below the node have a known type, and no node is annotated as a map. */
    bool known;
} osh_pq_node;

typedef struct osh_pq_schema {
    osh_file *file;  // view
    uint8_t *footer; // own
    size_t n_footer;
    osh_pq_node *nodes; // own; nodes[0] is the root, and the children of a node follow it
    int n_nodes, cap, n_leaves;
    int *leaves;    // own [n_leaves]: node of each leaf
    size_t *groups; // own: positions of the row groups in the footer
    int n_groups, groups_cap;
    int64_t n_rows;
} osh_pq_schema;

/* Reads the footer and the schema of a Parquet file. `file` must outlive *s. The caller calls
 * osh_pq_schema_deinit, also after a failure. Fails with OSH_E_FORMAT. */
osh_status osh_pq_schema_read(osh_ctx *cx, osh_pq_schema *s, osh_file *file);
void osh_pq_schema_deinit(osh_ctx *cx, osh_pq_schema *s);
/* Reads row group g: its number of rows, and the chunks of its leaves [s->n_leaves]. */
osh_status osh_pq_schema_group(osh_ctx *cx, const osh_pq_schema *s, int g, int64_t *n_rows,
                               osh_pq_chunk *chunks);
#endif
