/* thrift.c - reads Thrift's compact protocol.
 *
 *   struct   fields, then a byte 0
 *   field    a byte (id - last id) << 4 | type; if the difference is 0, the id follows as integer
 *   integer  zigzag, 7 bits in each byte, the lowest bits first; the last byte is below 128
 *   list     a byte n << 4 | type; if n is 15, the number of items follows
 *   binary   number of bytes, then the bytes */
#include "data/thrift.h"

enum { MAX_DEPTH = 24 };

osh_thrift osh_thrift_of(osh_ctx *cx, const void *s, size_t n, const char *what)
{
    return (osh_thrift){.cx = cx, .what = what, .s = s, .n = n};
}

static osh_status thrift_short(osh_thrift *t)
{
    t->short_of = true;
    return osh_fail(t->cx, OSH_E_FORMAT, "%s: ends inside a value, after %zu bytes", t->what, t->n);
}

static osh_status thrift_byte(osh_thrift *t, uint8_t *out)
{
    if (t->at >= t->n) return thrift_short(t);
    *out = t->s[t->at++];
    return OSH_OK;
}

static osh_status thrift_varint(osh_thrift *t, uint64_t *out)
{
    osh_status rc = OSH_OK;
    uint8_t b = 128;
    *out = 0;
    for (int shift = 0; b & 128; shift += 7) {
        if (shift > 63)
            OSH_FAIL(t->cx, OSH_E_FORMAT, "%s: an integer of more than 64 bits", t->what);
        OSH_TRY(thrift_byte(t, &b));
        *out |= (uint64_t)(b & 127) << shift;
    }
done:
    return rc;
}

static osh_status thrift_type(osh_thrift *t, bool right, const char *wanted, int type)
{
    if (right) return OSH_OK;
    return osh_fail(t->cx, OSH_E_FORMAT, "%s: a value of Thrift type %d before byte %zu, want %s",
                    t->what, type, t->at, wanted);
}

osh_status osh_thrift_int(osh_thrift *t, int64_t *out, int type)
{
    osh_status rc = OSH_OK;
    uint64_t v = 0;
    uint8_t b = 0;
    OSH_TRY(thrift_type(t, type >= OSH_THRIFT_BYTE && type <= OSH_THRIFT_I64, "an integer", type));
    if (type == OSH_THRIFT_BYTE) {
        OSH_TRY(thrift_byte(t, &b));
        *out = (int8_t)b;
        goto done;
    }
    OSH_TRY(thrift_varint(t, &v));
    *out = (int64_t)(v >> 1) ^ -(int64_t)(v & 1);
done:
    return rc;
}

osh_status osh_thrift_bool(osh_thrift *t, bool *out, int type)
{
    *out = type == OSH_THRIFT_TRUE;
    return thrift_type(t, type == OSH_THRIFT_TRUE || type == OSH_THRIFT_FALSE, "a boolean", type);
}

osh_status osh_thrift_binary(osh_thrift *t, const char **s, size_t *n, int type)
{
    osh_status rc = OSH_OK;
    uint64_t len = 0;
    OSH_TRY(thrift_type(t, type == OSH_THRIFT_BINARY, "bytes", type));
    OSH_TRY(thrift_varint(t, &len));
    if (len > t->n - t->at) OSH_TRY(thrift_short(t));
    *s = (const char *)t->s + t->at, *n = (size_t)len;
    t->at += (size_t)len;
done:
    return rc;
}

static osh_status thrift_enter(osh_thrift *t)
{
    if (++t->depth > MAX_DEPTH)
        return osh_fail(t->cx, OSH_E_FORMAT, "%s: structs and lists nested more than %d deep",
                        t->what, MAX_DEPTH);
    return OSH_OK;
}

osh_status osh_thrift_struct(osh_thrift *t, int type, osh_thrift_field_fn field, void *user)
{
    osh_status rc = OSH_OK;
    int64_t id = 0;
    OSH_TRY(thrift_type(t, type == OSH_THRIFT_STRUCT, "a struct", type));
    OSH_TRY(thrift_enter(t));
    for (;;) {
        uint8_t b = 0;
        OSH_TRY(thrift_byte(t, &b));
        if (!b) break;
        if (b >> 4)
            id += b >> 4;
        else
            OSH_TRY(osh_thrift_int(t, &id, OSH_THRIFT_I16));
        if (id < INT16_MIN || id > INT16_MAX)
            OSH_FAIL(t->cx, OSH_E_FORMAT, "%s: a field has the number %lld, want at most 32767",
                     t->what, (long long)id);
        OSH_TRY(field(t, user, (int)id, b & 15));
    }
    t->depth--;
done:
    return rc;
}

osh_status osh_thrift_list(osh_thrift *t, int type, osh_thrift_field_fn item, void *user,
                           int64_t *n_out)
{
    osh_status rc = OSH_OK;
    uint8_t b = 0;
    uint64_t n;
    OSH_TRY(thrift_type(t, type == OSH_THRIFT_LIST || type == OSH_THRIFT_SET, "a list", type));
    OSH_TRY(thrift_enter(t));
    OSH_TRY(thrift_byte(t, &b));
    n = b >> 4;
    if (n == 15) OSH_TRY(thrift_varint(t, &n));
    /* Each item has at least one byte, so a larger n is wrong. */
    if (n > t->n - t->at) OSH_TRY(thrift_short(t));
    if (n_out) *n_out = (int64_t)n;
    for (uint64_t i = 0; i < n; i++) OSH_TRY(item(t, user, (int)i, b & 15));
    t->depth--;
done:
    return rc;
}

static osh_status skip_field(osh_thrift *t, void *user, int id, int type)
{
    (void)user, (void)id;
    return osh_thrift_skip(t, type);
}

/* Skips an item of a list, in which a boolean is a byte. */
static osh_status skip_item(osh_thrift *t, void *user, int id, int type)
{
    uint8_t b;
    (void)user, (void)id;
    if (type == OSH_THRIFT_TRUE || type == OSH_THRIFT_FALSE) return thrift_byte(t, &b);
    return osh_thrift_skip(t, type);
}

static osh_status skip_map(osh_thrift *t)
{
    osh_status rc = OSH_OK;
    uint64_t n = 0;
    uint8_t types = 0;
    OSH_TRY(thrift_enter(t));
    OSH_TRY(thrift_varint(t, &n));
    if (n) OSH_TRY(thrift_byte(t, &types));
    if (n > t->n - t->at) OSH_TRY(thrift_short(t));
    for (uint64_t i = 0; i < n; i++) {
        OSH_TRY(skip_item(t, NULL, 0, types >> 4));
        OSH_TRY(skip_item(t, NULL, 0, types & 15));
    }
    t->depth--;
done:
    return rc;
}

osh_status osh_thrift_skip(osh_thrift *t, int type)
{
    const char *s;
    size_t n;
    int64_t i;
    switch (type) {
    case OSH_THRIFT_TRUE:
    case OSH_THRIFT_FALSE:
        return OSH_OK;
    case OSH_THRIFT_BYTE:
    case OSH_THRIFT_I16:
    case OSH_THRIFT_I32:
    case OSH_THRIFT_I64:
        return osh_thrift_int(t, &i, type);
    case OSH_THRIFT_DOUBLE:
        if (t->n - t->at < 8) return thrift_short(t);
        t->at += 8;
        return OSH_OK;
    case OSH_THRIFT_BINARY:
        return osh_thrift_binary(t, &s, &n, type);
    case OSH_THRIFT_LIST:
    case OSH_THRIFT_SET:
        return osh_thrift_list(t, type, skip_item, NULL, NULL);
    case OSH_THRIFT_MAP:
        return skip_map(t);
    case OSH_THRIFT_STRUCT:
        return osh_thrift_struct(t, type, skip_field, NULL);
    default:
        break;
    }
    return osh_fail(t->cx, OSH_E_FORMAT,
                    "%s: a value of the unknown Thrift type %d before byte %zu", t->what, type,
                    t->at);
}
