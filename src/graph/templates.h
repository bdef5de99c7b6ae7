/* templates.h - checks a directory of templates (--models-dir). */
#ifndef OSH_TEMPLATES_H
#define OSH_TEMPLATES_H
#include "base/base.h"

/* Fails if the directory models_dir does not exist, or if a file *.json in it is not a template. */
osh_status osh_templates_check(osh_ctx *cx, const char *models_dir);
#endif
