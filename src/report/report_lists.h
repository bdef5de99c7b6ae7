/* report_lists.h - writes the arrays of the report that grow with the model: modules, fallbacks,
 * subgraphs, routers. Each item is made when it is written, so the arrays need no memory. */
#ifndef OSH_REPORT_LISTS_H
#define OSH_REPORT_LISTS_H
#include "report/report.h"
#include "text/json.h"

enum { OSH_REPORT_LISTS = 5 }; // number of arrays + 1, because an empty element ends the list

typedef struct osh_report_lists {
    osh_json_list lists[OSH_REPORT_LISTS];
    const osh_report *r; // view
    int *row_of; // own [subgraphs]: index of the subgraph's first row in the profile; -1: none
    int *next_row;       // own [rows]: index of the next row of the same subgraph; -1: none
    double *worst;       // own [subgraphs]: the largest error of a Linear; -1: none
} osh_report_lists;

/* Sets *l to the lists of r. r must outlive *l. The caller calls osh_report_lists_deinit, also
 * after a failure. */
osh_status osh_report_lists_init(osh_ctx *cx, osh_report_lists *l, const osh_report *r);
void osh_report_lists_deinit(osh_ctx *cx, osh_report_lists *l);

/* The functions below return false if an allocation fails. */
/* Adds a number, or null if the number is not finite. */
bool osh_report_number(cJSON *o, const char *key, double v);
/* Adds a number of seconds, rounded to microseconds. */
bool osh_report_seconds(cJSON *o, const char *key, double s);
/* Adds a string. */
bool osh_report_string(cJSON *o, const char *key, const char *s);
#endif
