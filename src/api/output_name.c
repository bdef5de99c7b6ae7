/* output_name.c - names the output of a run without --output: the model's name and the scheme, such
 * as SmolLM2-135M-W4A16. */
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/file.h"
#include "base/name.h"
#include "modifiers/recipe.h"

/* Sets *out (own) to the last part of the model's name or path. If the path is a snapshot in the
 * cache of the Hub, uses the name of the snapshot's model instead of the path. */
static osh_status model_name(osh_ctx *cx, char **out, const char *model)
{
    osh_status rc = OSH_OK;
    osh_hub_name hub = {0};           // own
    char *id = NULL, *resolved = NULL; // own
    bool is = false;
    const char *name = osh_path_last(model); // last part of the path, and slashes after it
    bool dots = strspn(name, "./") == strlen(name);
    if (!osh_dir_exists(model)) OSH_TRY(osh_hub_name_read(cx, &hub, &is, model));
    /* Paths such as "." and "dir/./" have no name of their own. */
    if (dots) resolved = realpath(model, NULL);
    if (resolved) name = osh_path_last(resolved);
    OSH_TRY(osh_hub_id_of_dir(cx, &id, model));
    if (is || id) name = osh_path_last(is ? hub.id : id);
    *out = osh_sprintf(cx, "%.*s", (int)strcspn(name, "/"), name);
    if (!*out) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a name");
done:
    osh_hub_name_deinit(cx, &hub);
    osh_free(cx, id);
    free(resolved);
    return rc;
}

/* Sets *s to the preset that the flags name, with the changes that other flags make. */
static osh_status scheme_of_flags(osh_ctx *cx, osh_q_scheme *s, const osh_options *o)
{
    osh_status rc = OSH_OK;
    OSH_TRY(osh_q_preset(cx, s, o->scheme));
    if (o->num_bits) s->weights.bits = (int)o->num_bits;
    if (o->symmetric) s->weights.symmetric = !strcmp(o->symmetric, "true");
    if (o->group_size < 0) s->weights.strategy = OSH_Q_CHANNEL;
done:
    return rc;
}

/* Sets *s to the only scheme of a recipe. *r owns the strings of *s. */
static osh_status scheme_of_recipe(osh_ctx *cx, osh_q_scheme *s, osh_recipe **r,
                                   const osh_options *o)
{
    osh_status rc = OSH_OK;
    int n = 0;
    OSH_TRY(osh_recipe_open(cx, r, o->recipe, o->quality));
    for (size_t i = 0; i < (*r)->n; i++) {
        const osh_modifier *m = &(*r)->modifiers[i];
        for (size_t k = 0; osh_modifier_quantizes(m) && !m->replaced && k < m->n_schemes; k++) {
            if (!m->schemes[k].weights.present) continue;
            *s = m->schemes[k], n++;
        }
    }
    if (n != 1)
        OSH_FAIL(cx, OSH_E_USAGE,
                 "--output is not given, and %s has %d schemes, so the output has no default name: "
                 "want --output DIR",
                 o->recipe, n);
done:
    return rc;
}

osh_status osh_output_default(osh_ctx *cx, char **out, const osh_options *o)
{
    osh_status rc = OSH_OK;
    osh_recipe *r = NULL;        // own
    char *model = NULL;          // own
    char scheme[OSH_Q_NAME] = "";
    osh_q_scheme s = {0}; // the strings of the scheme are views
    *out = NULL;
    if (o->output || !o->model || o->only_largest_layer) goto done;
    if (!o->scheme && !o->recipe)
        OSH_FAIL(cx, OSH_E_USAGE,
                 "want --recipe or --scheme, got none of them");
    if (o->target_bits > 0 || o->target_size)
        OSH_FAIL(cx, OSH_E_USAGE,
                 "--output is not given, and %s chooses a scheme for each module, so the output "
                 "has no default name: want --output DIR",
                 o->target_size ? "--target-size" : "--target-bits");
    OSH_TRY(o->scheme ? scheme_of_flags(cx, &s, o) : scheme_of_recipe(cx, &s, &r, o));
    osh_q_name(scheme, &s, o->scheme);
    OSH_TRY(model_name(cx, &model, o->model));
    if (!(*out = osh_sprintf(cx, "%s-%s", model, scheme)))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a name");
done:
    osh_recipe_free(cx, r);
    osh_free(cx, model);
    return rc;
}
