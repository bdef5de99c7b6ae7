/* models.h - declares the graph templates that the build embeds from models/. cmake/embed.cmake
 * writes the array. */
#ifndef OSH_MODELS_H
#define OSH_MODELS_H
#include <stddef.h>

typedef struct osh_embedded_model {
    const char *name; // file name without the ending .json
    const char *text; // n bytes of JSON
    size_t n;
} osh_embedded_model;

extern const osh_embedded_model osh_embedded_models[];
extern const size_t osh_n_embedded_models;
#endif
