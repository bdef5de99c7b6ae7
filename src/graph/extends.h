/* extends.h - makes a template from the template of another architecture and a list of
 * differences. */
#ifndef OSH_EXTENDS_H
#define OSH_EXTENDS_H
#include "base/base.h"
#include "text/json.h"

/* Changes `base`, the template of another architecture, into the template that `child` describes.
 * child: a template with the key "extends". name: file name of `child` for messages. */
osh_status osh_template_extend(osh_ctx *cx, const cJSON *child, cJSON *base,
                               const char *name);
#endif
