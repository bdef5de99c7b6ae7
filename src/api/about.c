/* about.c - prints the version, the lists of schemes, modifiers and models, and the properties of
 * this machine (`oneshot doctor`). */
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <utf8proc.h>
#include <xxhash.h>
#include <yaml.h>
#include <zlib.h>
#include <zstd.h>

#include "api/api.h"
#include "base/buf.h"
#include "base/isa.h"
#include "graph/models.h"
#include "modifiers/modifier.h"
#include "plan/rank_gpu.h"
#include "quant/format.h"
#include "report/rows.h"
#include "gpu/gpu.h"
#include "math/isa.h"
#include "text/json.h"

/* ---- version ---- */

osh_status osh_about(osh_ctx *cx, osh_sink sink, void *user)
{
    osh_status rc = OSH_OK;
    osh_buf b;
    int major, minor, patch;
    char pcre[64] = "";
    unsigned xx = XXH_versionNumber();
    osh_buf_init(&b, 0);
    yaml_get_version(&major, &minor, &patch);
    pcre2_config(PCRE2_CONFIG_VERSION, pcre); // "10.42 2022-12-11"
    OSH_TRY(osh_buf_printf(cx, &b, "oneshot %s\n", osh_version()));
    OSH_TRY(osh_buf_printf(cx, &b, "built with %s %s, %s, %s\n",
#ifdef __clang__
                           "clang", __clang_version__,
#else
                           "gcc", __VERSION__,
#endif
#ifdef NDEBUG
                           "optimized",
#else
                           "with assertions",
#endif
                           osh_device_kinds[OSH_GPU].type ? "with CUDA" : "without CUDA"));
    OSH_TRY(osh_buf_printf(
        cx, &b,
        "cJSON %s, libyaml %d.%d.%d, PCRE2 %.*s, utf8proc %s, zstd %s, zlib %s, xxHash %u.%u.%u\n"
        "OpenBLAS is opened when a job multiplies\n",
        cJSON_Version(), major, minor, patch, (int)strcspn(pcre, " "), pcre, utf8proc_version(),
        ZSTD_versionString(), zlibVersion(), xx / 10000, xx / 100 % 100, xx % 100));
    sink(user, b.data, b.len);
done:
    osh_buf_deinit(cx, &b);
    return rc;
}

/* ---- lists ---- */

static osh_status schemes_print(osh_ctx *cx, osh_buf *b)
{
    osh_status rc = OSH_OK;
    for (size_t i = 0; osh_q_preset_name(i); i++) {
        osh_q_scheme s = {0};
        OSH_TRY(osh_q_preset(cx, &s, osh_q_preset_name(i)));
        if (!s.weights.present) continue;
        OSH_TRY(osh_buf_printf(cx, b, "%-12s", osh_q_preset_name(i)));
        OSH_TRY(osh_q_args_tell(cx, b, "weights", &s.weights));
        OSH_TRY(osh_q_args_tell(cx, b, "; inputs", &s.inputs));
        if (osh_scheme_wants(&s))
            OSH_TRY(osh_buf_printf(cx, b, ", from --dataset"));
        OSH_TRY(osh_buf_append(cx, b, "\n", 1));
    }
    OSH_TRY(osh_buf_printf(
        cx, b, "--num-bits, --group-size and --symmetric change schemes of integer weights.\n"));
done:
    return rc;
}

/* Appends the bits per weight of a scheme that has integer codes, groups and 16-bit scales. A
 * weight counts its own bits, and 1 / group_size of the bits of its group's scale and zero point.
 * Appends nothing for other schemes. */
static osh_status scheme_put_bits(osh_ctx *cx, osh_buf *b, const osh_q_args *w)
{
    if (w->type != OSH_Q_INT || w->strategy != OSH_Q_GROUP || w->scale_dtype) return OSH_OK;
    double zero = w->symmetric ? 0 : (double)w->bits / (double)w->group_size;
    return osh_buf_printf(cx, b, "bits       %.2f for a weight, with scales%s\n",
                          w->bits + 16.0 / (double)w->group_size + zero,
                          w->symmetric ? "" : " and zero points");
}

osh_status osh_list_scheme(osh_ctx *cx, bool *is, const char *name, osh_sink sink, void *user)
{
    osh_status rc = OSH_OK;
    osh_q_scheme s = {0}; // the strings of the scheme are views
    const osh_format *format = NULL;
    const char *known = NULL;
    osh_buf b, text;  // own
    char *who = NULL; // own
    osh_buf_init(&b, 0), osh_buf_init(&text, 0);
    for (size_t i = 0; !known && osh_q_preset_name(i); i++)
        if (!strcasecmp(name, osh_q_preset_name(i))) known = osh_q_preset_name(i);
    *is = known != NULL;
    if (!known) goto done;
    OSH_TRY(osh_q_preset(cx, &s, known));
    OSH_TRY(osh_format_infer(cx, &format, &s, known));
    snprintf(s.format, sizeof s.format, "%s", format->name);
    OSH_TRY(osh_q_args_tell(cx, &text, "weights", &s.weights));
    OSH_TRY(osh_q_args_tell(cx, &text, "; inputs", &s.inputs));
    OSH_TRY(osh_row(cx, &b, known, "%s", text.data));
    OSH_TRY(scheme_put_bits(cx, &b, &s.weights));
    if (!(who = osh_q_who_loads(cx, &s, NULL))) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(osh_row(cx, &b, "loads in", "%s", who));
    bool data = osh_scheme_wants(&s) != 0;
    OSH_TRY(osh_row(cx, &b, "data", "%s",
                         data ? "needs --dataset, because the scales of inputs are stored"
                              : "none with rounding to nearest; --quality gptq and best need it"));
    OSH_TRY(osh_buf_printf(cx, &b, "\n  oneshot DIR --scheme %s%s\n", known,
                           data ? " --dataset chats.jsonl" : ""));
    OSH_TRY(osh_buf_printf(
        cx, &b, "  oneshot DIR --scheme %s --quality best --dataset chats.jsonl\n", known));
    if (s.weights.type == OSH_Q_INT)
        OSH_TRY(osh_buf_printf(
            cx, &b, "\n--num-bits, --group-size and --symmetric change its numbers.\n"));
    sink(user, b.data, b.len);
done:
    osh_free(cx, who);
    osh_buf_deinit(cx, &text);
    osh_buf_deinit(cx, &b);
    return rc;
}

static osh_status modifiers_print(osh_ctx *cx, osh_buf *b)
{
    osh_status rc = OSH_OK;
    for (size_t i = 0; i < osh_modifier_count(); i++) {
        const osh_modifier_type *m = osh_modifier_at(i);
        const osh_modifier one = {.type = m};
        bool quantizes = osh_modifier_quantizes(&one);
        OSH_TRY(osh_buf_printf(
            cx, b, "%s%s\n  %s%s%s\n", i ? "\n" : "", m->name,
            !quantizes ? m->keys
                       : "scheme or config_groups, targets, ignore, weight_observer, "
                         "input_observer, output_observer, kv_cache_scheme, quality, candidates",
            quantizes && m->keys ? ", " : "", quantizes && m->keys ? m->keys : ""));
        for (const osh_field *f = m->fields; f && f->name; f++) {
            OSH_TRY(osh_buf_printf(cx, b, "  %-22s %s", f->name, f->doc));
            if (f->values) OSH_TRY(osh_buf_printf(cx, b, " (%s)", f->values));
            OSH_TRY(osh_buf_printf(cx, b, f->dflt ? " [%s]\n" : "\n", f->dflt));
        }
    }
done:
    return rc;
}

static osh_status models_print(osh_ctx *cx, osh_buf *b)
{
    osh_status rc = OSH_OK;
    cJSON *json = NULL; // own
    const cJSON *name;  // view
    OSH_TRY(osh_buf_printf(cx, b, "With calibration data, also architectures of --models-dir:"));
    for (size_t i = 0; i < osh_n_embedded_models; i++) {
        const osh_embedded_model *m = &osh_embedded_models[i];
        OSH_TRY(osh_json_parse(cx, &json, m->text, m->n, m->name, 0));
        cJSON_ArrayForEach(name, cJSON_GetObjectItemCaseSensitive(json, "architectures"))
            if (cJSON_IsString(name)) OSH_TRY(osh_buf_printf(cx, b, "\n  %s", name->valuestring));
        cJSON_Delete(json), json = NULL;
    }
    OSH_TRY(osh_buf_printf(cx, b,
                           "\nWithout data (--quality fast): any checkpoint of safetensors files; "
                           "`oneshot plan` lists what stays dense.\n"));
done:
    cJSON_Delete(json);
    return rc;
}

const char *osh_list_scheme_name(size_t i) { return osh_q_preset_name(i); }

osh_status osh_list(osh_ctx *cx, const char *what, osh_sink sink, void *user)
{
    osh_status rc = OSH_OK;
    osh_buf b;
    osh_buf_init(&b, 0);
    if (!strcmp(what, "schemes")) OSH_TRY(schemes_print(cx, &b));
    else if (!strcmp(what, "modifiers")) OSH_TRY(modifiers_print(cx, &b));
    else if (!strcmp(what, "models")) OSH_TRY(models_print(cx, &b));
    else OSH_FAIL(cx, OSH_E_USAGE, "no list of %s: want schemes, modifiers or models", what);
    sink(user, b.data, b.len);
done:
    osh_buf_deinit(cx, &b);
    return rc;
}

/* ---- this machine ---- */

/* Sets `to` to the text after "key:" or "key \t:" in a file of /proc, or to "" if the file has no
 * such key. */
static void proc_value(char *to, size_t room, const char *path, const char *key)
{
    char text[16384];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    *to = 0;
    text[n > 0 ? n : 0] = 0;
    const char *at = strstr(text, key);
    if (!at || !(at = strchr(at, ':'))) return;
    at += 1 + strspn(at + 1, " \t");
    size_t k = strcspn(at, "\n");
    if (k >= room) k = room - 1;
    memcpy(to, at, k), to[k] = 0;
}

static osh_status cpu_print(osh_ctx *cx, osh_buf *b)
{
    osh_status rc = OSH_OK;
    char model[200], total[64], available[64];
    char *libraries = NULL; // own
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) ? (int)sysconf(_SC_NPROCESSORS_ONLN)
                                                   : CPU_COUNT(&set);
    proc_value(model, sizeof model, "/proc/cpuinfo", "model name");
    proc_value(total, sizeof total, "/proc/meminfo", "MemTotal");
    proc_value(available, sizeof available, "/proc/meminfo", "MemAvailable");
    OSH_TRY(osh_buf_line(cx, b, "processor    %s, %d of %ld cores for this process",
                         *model ? model : "unknown", n, sysconf(_SC_NPROCESSORS_ONLN)));
    OSH_TRY(osh_buf_printf(cx, b, "sets        "));
    for (int i = 0; i <= (int)osh_isa_of_cpu(); i++)
        OSH_TRY(osh_buf_printf(cx, b, " %s", osh_isa_name((osh_isa)i)));
    OSH_TRY(osh_buf_printf(cx, b, "\nmemory       %.1f GB, %.1f GB of it available\n",
                           atof(total) * 1024 / 1e9, atof(available) * 1024 / 1e9));
    rc = osh_isa_describe(cx, &libraries);
    if (rc == OSH_E_NOMEM) goto done;
    OSH_TRY(osh_buf_line(cx, b, "libraries    %s", rc ? osh_error_text(cx) : libraries));
    osh_error_clear(cx);
done:
    osh_free(cx, libraries);
    return rc;
}

static osh_status gpu_print(osh_ctx *cx, osh_buf *b)
{
    osh_status rc = OSH_OK;
    osh_device *d = NULL; // own
    size_t n = 0;
    rc = osh_device_open(cx, &d, &osh_device_kinds[OSH_GPU], 0, 0);
    if (!rc) rc = d->type->free_bytes(cx, &n, 0);
    if (rc == OSH_E_NOMEM) goto done;
    if (rc) OSH_TRY(osh_buf_line(cx, b, "GPU          none is used: %s", osh_error_text(cx)));
    else OSH_TRY(osh_buf_line(cx, b, "GPU          %s, %.1f GB free", d->text, (double)n / 1e9));
    osh_error_clear(cx);
done:
    osh_device_close(cx, d);
    return rc;
}

typedef struct gpu_text { // description of the GPU that a rank uses
    char text[120];
} gpu_text;

/* Prints a table of all ranks. All ranks call this function, even those that print nothing. */
static osh_status ranks_print(osh_ctx *cx, osh_buf *b, osh_ranks *r)
{
    osh_status rc = OSH_OK;
    gpu_text *all = NULL, mine = {"none"}; // own: all [ranks]
    const osh_device_kind *gpu = &osh_device_kinds[OSH_GPU];
    osh_device *d = NULL;                  // own
    int width = 4;
    OSH_NEW(cx, all, osh_ranks_n(r));
    int ordinal = 0;
    OSH_TRY(osh_rank_gpu(cx, &ordinal, r, gpu, NULL));
    if (osh_device_present(gpu) && !osh_device_open(cx, &d, gpu, ordinal, 0))
        snprintf(mine.text, sizeof mine.text, "%s", d->text);
    osh_error_clear(cx);
    OSH_TRY(osh_ranks_gather(cx, r, all, &mine, sizeof mine));
    for (int k = 0; k < osh_ranks_n(r); k++)
        if ((int)strlen(osh_ranks_at(r, k)->node) > width)
            width = (int)strlen(osh_ranks_at(r, k)->node);
    OSH_TRY(osh_buf_line(cx, b, "MPI          %s, %d ranks, %d threads for each",
                         osh_ranks_version(r), osh_ranks_n(r), osh_ranks_threads(r)));
    OSH_TRY(osh_buf_line(cx, b, "  rank  %-*s  of node  cores  GPU", width, "node"));
    for (int k = 0; k < osh_ranks_n(r); k++) {
        const osh_rank *x = osh_ranks_at(r, k);
        OSH_TRY(osh_buf_line(cx, b, "  %4d  %-*s  %3d/%-3d  %5d  %s", k, width, x->node, x->local,
                             x->n_local, x->n_cores, all[k].text));
    }
done:
    osh_device_close(cx, d);
    osh_free(cx, all);
    return rc;
}

osh_status osh_doctor(osh_ctx *cx, osh_ranks *ranks, osh_sink sink, void *user)
{
    osh_status rc = OSH_OK;
    osh_buf b;
    struct statvfs disk;
    osh_buf_init(&b, 0);
    if (ranks) OSH_TRY(ranks_print(cx, &b, ranks));
    OSH_TRY(cpu_print(cx, &b));
    OSH_TRY(gpu_print(cx, &b));
    if (!statvfs(".", &disk))
        OSH_TRY(osh_buf_printf(
            cx, &b, "disk         %.1f GB free here; `oneshot bench --dir .` measures it\n",
            (double)disk.f_bavail * (double)disk.f_frsize / 1e9));
    OSH_TRY(osh_buf_printf(
        cx, &b, "a run uses   --isa %s, --device %s, one thread for each core, no memory budget\n",
        osh_isa_name(osh_isa_used()),
        osh_device_is_gpu(NULL) ? "cuda for calibrated jobs" : "cpu"));
    sink(user, b.data, b.len);
done:
    osh_buf_deinit(cx, &b);
    return rc;
}
