/* pull.c - downloads a model of the Hub (`oneshot pull`). The Hub is asked even if the cache has
 * the model. */
#include <string.h>

#include "api/api.h"

osh_status osh_pull(osh_ctx *cx, const char *text, osh_env_fn env, osh_sink sink, void *user)
{
    osh_status rc = OSH_OK;
    osh_hub *hub = NULL;     // own
    osh_hub_name name = {0}; // own
    char *dir = NULL;        // own
    bool is_name = false;
    OSH_TRY(osh_hub_name_read(cx, &name, &is_name, text));
    if (!is_name)
        OSH_FAIL(cx, OSH_E_USAGE, "pull of '%.200s': want org/name or org/name@revision", text);
    OSH_TRY(osh_hub_open(cx, &hub, env));
    OSH_TRY(osh_hub_pull(cx, &dir, hub, &name));
    sink(user, dir, strlen(dir));
    sink(user, "\n", 1);
done:
    osh_free(cx, dir);
    osh_hub_close(cx, hub);
    osh_hub_name_deinit(cx, &name);
    return rc;
}
