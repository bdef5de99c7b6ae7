/* fuzz_index.c - reads any bytes as the model.safetensors.index.json of two real shards.
 *
 * If the bytes are refused, there must be a message. If they are accepted, the checkpoint must
 * have at least one tensor, and all its tensors must be in the two shards. Each tensor of the
 * checkpoint must have the right shard, be readable and be in the index. */
#include "fuzz/fuzz.h"
#include "io/checkpoint.h"

#include <unistd.h>

/* Name of a directory in the working directory. The directory has config.json, a.safetensors
 * (tensors x, y) and b.safetensors (tensor z). */
static char dir[64];

static void file_put(const char *name, const void *bytes, size_t n)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(bytes, 1, n, f) == n && !fclose(f));
}

/* Writes a shard with 8 bytes of data for each of its tensors. */
static void put_shard(const char *name, const char *header, size_t n_tensors)
{
    char file[256] = {0};
    size_t n = strlen(header);
    CHECK(n < 256 && 8 + n + 8 * n_tensors <= sizeof file);
    file[0] = (char)n;
    memcpy(file + 8, header, n);
    file_put(name, file, 8 + n + 8 * n_tensors);
}

static void remove_dir(void)
{
    static const char *const names[] = {"config.json", "a.safetensors", "b.safetensors",
                                        "model.safetensors.index.json"};
    for (int i = 0; i < 4; i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        unlink(path);
    }
    rmdir(dir);
}

/* Checks that a right index is accepted, so that the shards themselves are no reason to refuse. */
static void check_good(void)
{
    static const char index[] = "{\"weight_map\": {\"x\": \"a.safetensors\", "
                                "\"y\": \"a.safetensors\", \"z\": \"b.safetensors\"}}";
    osh_ctx *cx = fuzz_ctx();
    osh_checkpoint *ck = NULL;
    file_put("model.safetensors.index.json", index, sizeof index - 1);
    CHECK(!osh_checkpoint_open(cx, &ck, dir) && ck->n_tensors == 3);
    osh_checkpoint_close(cx, ck);
    fuzz_ctx_free(cx);
}

static void make_once(void)
{
    if (*dir) return;
    strcpy(dir, "fuzz_index.XXXXXX");
    CHECK(mkdtemp(dir));
    atexit(remove_dir);
    file_put("config.json", "{}", 2);
    put_shard("a.safetensors",
              "{\"x\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
              "\"y\":{\"dtype\":\"BF16\",\"shape\":[2,2],\"data_offsets\":[8,16]}}",
              2);
    put_shard("b.safetensors", "{\"z\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]}}",
              1);
    check_good();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const char *const names[] = {"x", "y", "z"};
    osh_ctx *cx = fuzz_ctx();
    osh_checkpoint *ck = NULL;
    cJSON *index = NULL;
    make_once();
    file_put("model.safetensors.index.json", data, n);
    if (osh_checkpoint_open(cx, &ck, dir)) {
        CHECK(!ck && *osh_error_text(cx));
    } else {
        int64_t found = 0;
        CHECK(!osh_json_parse(cx, &index, (const char *)data, n, "index", 0));
        const cJSON *map = cJSON_GetObjectItemCaseSensitive(index, "weight_map");
        for (int i = 0; i < 3; i++) {
            uint8_t to[8];
            const osh_ckpt_tensor *t = osh_checkpoint_find(ck, names[i]);
            if (!t) continue;
            found++;
            const char *shard = i < 2 ? "a.safetensors" : "b.safetensors";
            const cJSON *listed = cJSON_GetObjectItemCaseSensitive(map, names[i]);
            CHECK(!strcmp(ck->shard_names[t->shard], shard));
            CHECK(cJSON_IsString(listed) && !strcmp(listed->valuestring, shard));
            CHECK(!osh_checkpoint_read(cx, to, ck, t));
        }
        CHECK(found == ck->n_tensors && found > 0);
    }
    cJSON_Delete(index);
    osh_checkpoint_close(cx, ck);
    fuzz_ctx_free(cx);
    return 0;
}
