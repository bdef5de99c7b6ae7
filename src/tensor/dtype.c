/* dtype.c - defines the table of dtypes: tag in safetensors files, name in torch, bytes of an
 * element. */
#include "tensor/tensor.h"

#include <assert.h>
#include <string.h>

typedef struct dtype_row {
    const char *tag, *torch;
    size_t bytes;
    bool is_float;
} dtype_row;

static const dtype_row rows[OSH_N_DTYPES] = {
    [OSH_I64] = {"I64", "int64", 8, false},
    [OSH_F64] = {"F64", "float64", 8, true},
    [OSH_F32] = {"F32", "float32", 4, true},
    [OSH_I32] = {"I32", "int32", 4, false},
    [OSH_BF16] = {"BF16", "bfloat16", 2, true},
    [OSH_F16] = {"F16", "float16", 2, true},
    [OSH_I16] = {"I16", "int16", 2, false},
    [OSH_FP8] = {"F8_E4M3", "float8_e4m3fn", 1, true},
    /* F8_E5M2 and F8_E8M0 are only copied; no op computes with them */
    [OSH_FP8_E5M2] = {"F8_E5M2", "float8_e5m2", 1, false},
    [OSH_FP8_E8M0] = {"F8_E8M0", "float8_e8m0fnu", 1, false}, // a byte e stands for 2^(e - 127)
    [OSH_I8] = {"I8", "int8", 1, false},
    [OSH_U8] = {"U8", "uint8", 1, false},
    [OSH_BOOL] = {"BOOL", "bool", 1, false},
    [OSH_U16] = {"U16", "uint16", 2, false},
    [OSH_U32] = {"U32", "uint32", 4, false},
    [OSH_U64] = {"U64", "uint64", 8, false},
};

const char *osh_dtype_name(osh_dtype dt)
{
    return (unsigned)dt < OSH_N_DTYPES ? rows[dt].tag : "none";
}

osh_dtype osh_dtype_of_name(const char *tag)
{
    static const struct {
        const char *name;
        osh_dtype dtype;
    } aliases[] = {{"half", OSH_F16}, {"float", OSH_F32}, {"double", OSH_F64}};

    if (!strncmp(tag, "torch.", 6)) tag += 6;
    for (int i = 0; i < OSH_N_DTYPES; i++)
        if (!strcmp(tag, rows[i].tag) || !strcmp(tag, rows[i].torch)) return (osh_dtype)i;
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (!strcmp(tag, aliases[i].name)) return aliases[i].dtype;
    return OSH_DTYPE_NONE;
}

size_t osh_dtype_bytes(osh_dtype dt)
{
    assert((unsigned)dt < OSH_N_DTYPES);
    return rows[dt].bytes;
}

bool osh_dtype_is_float(osh_dtype dt)
{
    return (unsigned)dt < OSH_N_DTYPES && rows[dt].is_float;
}
