/* verify_manifest.c - reads the manifest. Its lists are read item by item, because a manifest may
 * be too long for memory. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "output/emit_impl.h"
#include "output/manifest_text.h"
#include "verify/verify.h"

/* The manifest records an error for each module. Stores the error of one module in the map
 * `recorded`. Has the type of osh_json_taken.item. */
static osh_status manifest_take_recorded(osh_ctx *cx, void *recorded, const cJSON *module)
{
    const cJSON *name = cJSON_GetObjectItemCaseSensitive(module, "name");
    const cJSON *e = cJSON_GetObjectItemCaseSensitive(module, "relative_squared_error");
    int64_t bits;
    if (!cJSON_IsString(name) || !cJSON_IsNumber(e)) return OSH_OK;
    memcpy(&bits, &e->valuedouble, sizeof bits);
    return osh_map_put(cx, recorded, name->valuestring, strlen(name->valuestring), bits);
}

/* Checks the manifest's own checksum, which the run wrote at its end. */
static osh_status manifest_check_sum(osh_ctx *cx, osh_verify *v)
{
    osh_status rc = OSH_OK;
    uint64_t sum = 0, said = 0;
    bool has = false;
    char wanted[24];
    OSH_TRY(osh_manifest_sum(cx, &sum, &said, &has, v->dir));
    snprintf(wanted, sizeof wanted, "%016llx", (unsigned long long)said);
    if (!has)
        OSH_TRY(osh_verify_add(cx, v, OSH_MANIFEST_NAME, "\"manifest_xxh3\" as its last member",
                               "has no checksum of itself"));
    else if (sum != said)
        OSH_TRY(osh_verify_add(cx, v, OSH_MANIFEST_NAME, wanted,
                               "was changed: the text has checksum %016llx",
                               (unsigned long long)sum));
done:
    return rc;
}

osh_status osh_verify_read_manifest(osh_ctx *cx, osh_verify *v)
{
    static const char wanted[] = "the list of the written tensors and files";
    osh_status rc = OSH_OK;
    char *path = osh_path_join(cx, v->dir, OSH_MANIFEST_NAME); // own
    if (!path) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a path");
    if (!osh_file_exists(path)) {
        OSH_TRY(osh_verify_add(cx, v, OSH_MANIFEST_NAME, wanted, "is not there"));
        goto done;
    }
    rc = manifest_check_sum(cx, v);
    OSH_TRY(osh_verify_failed(cx, v, rc, OSH_MANIFEST_NAME, wanted));
    OSH_TRY(osh_map_new(cx, &v->recorded, 256));
    rc = osh_manifest_read(cx, &v->manifest, v->dir,
                           &(osh_json_taken){"modules", manifest_take_recorded}, v->recorded);
    OSH_TRY(osh_verify_failed(cx, v, rc, OSH_MANIFEST_NAME, wanted));
done:
    osh_free(cx, path);
    return rc;
}

double osh_verify_recorded(const osh_verify *v, const char *name)
{
    double nmse = -1;
    int64_t bits;
    if (v->recorded && osh_map_get(v->recorded, name, strlen(name), &bits))
        memcpy(&nmse, &bits, sizeof nmse);
    return nmse;
}

osh_status osh_verify_each(osh_ctx *cx, const osh_verify *v, const osh_json_taken *list, void *user)
{
    return v->manifest ? osh_manifest_read(cx, NULL, v->dir, list, user) : OSH_OK;
}
