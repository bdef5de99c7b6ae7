/* fuzz_config.c - reads any bytes as config.json.
 *
 * If the bytes are refused, there must be a message. If they are accepted, the test adds
 * quantization_config to the text. The result must be JSON with quantization_config and with all
 * other keys. */
#include "fuzz/fuzz.h"

#include <fcntl.h>
#include <unistd.h>

#include "io/hf_config.h"

static char dir[64];

static void remove_dir(void)
{
    char path[96];
    snprintf(path, sizeof path, "%s/config.json", dir);
    unlink(path);
    rmdir(dir);
}

static bool is_ours(const char *key)
{
    return !strcmp(key, "quantization_config") || !strcmp(key, "tie_word_embeddings");
}

static void check_edit(osh_ctx *cx, const osh_hf_config *c)
{
    char *out = NULL;
    cJSON *tree = NULL;

    CHECK(osh_hf_config_with_quantization(cx, &out, c, "{\"q\": [1]}", true) == OSH_OK);
    if (osh_json_parse(cx, &tree, out, strlen(out), "edited", OSH_JSON_NAN)) {
        fprintf(stderr, "%s\n%s\n", osh_error_text(cx), out);
        abort();
    }
    CHECK(cJSON_IsObject(cJSON_GetObjectItemCaseSensitive(tree, "quantization_config")));
    CHECK(cJSON_IsFalse(cJSON_GetObjectItemCaseSensitive(tree, "tie_word_embeddings")));
    for (const cJSON *v = c->json->child; v; v = v->next)
        CHECK(is_ours(v->string) || cJSON_GetObjectItemCaseSensitive(tree, v->string));
    for (const cJSON *v = tree->child; v; v = v->next)
        CHECK(is_ours(v->string) || cJSON_GetObjectItemCaseSensitive(c->json, v->string));
    cJSON_Delete(tree);
    osh_free(cx, out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    osh_ctx *cx = NULL;
    osh_hf_config *c = NULL;
    char path[96];

    if (!*dir) {
        strcpy(dir, "fuzz_config.XXXXXX");
        CHECK(mkdtemp(dir));
        atexit(remove_dir);
    }
    snprintf(path, sizeof path, "%s/config.json", dir);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    CHECK(fd >= 0 && write(fd, data, n) == (ssize_t)n);
    close(fd);

    cx = fuzz_ctx();
    if (osh_hf_config_open(cx, &c, dir)) {
        CHECK(!c && *osh_error_text(cx));
    } else {
        if (!c->rope_unknown) {
            CHECK(c->rope.theta > 0 && c->rope.factor > 0);
            CHECK(c->rope.max_position_embeddings >= 0);
        }
        check_edit(cx, c);
    }
    osh_hf_config_close(cx, c);
    fuzz_ctx_free(cx);
    return 0;
}
