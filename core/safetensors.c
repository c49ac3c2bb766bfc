#include "core/safetensors.h"

#include "core/file.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#define METADATA "__metadata__"

struct plait_st_file {
    char *path;
    int fd;
    int64_t data_at, data_bytes; /* where the data starts in the file, and how long it is */
    json_t *header;              /* owns the names */
    plait_st_tensor *tensors;    /* by begin */
    int64_t count;
};

static const struct {
    const char *name;
    size_t size;
} dtypes[PLAIT_ST_DTYPES] = {
#define ROW(name, bytes) {#name, bytes},
    PLAIT_ST_DTYPE_LIST(ROW)
#undef ROW
};

const char *plait_st_dtype_name(plait_st_dtype dtype)
{
    return dtypes[dtype].name;
}

size_t plait_st_dtype_size(plait_st_dtype dtype)
{
    return dtypes[dtype].size;
}

/* Reads the length field and checks it against format and file. */
static plait_status header_length(plait_st_file *f, int64_t file_bytes, int64_t *length)
{
    unsigned char field[8];
    uint64_t n = 0;
    if (file_bytes < (int64_t)sizeof field)
        PLAIT_FAIL(IO, "%s: not a safetensors file: %lld bytes, the length of the header alone takes 8", f->path,
                   (long long)file_bytes);
    PLAIT_TRY(plait_file_read(f->fd, f->path, 0, field, sizeof field));
    for (int i = 7; i >= 0; i--)
        n = n << 8 | field[i];
    if (n > PLAIT_ST_MAX_HEADER)
        PLAIT_FAIL(IO, "%s: not a safetensors file: header of %llu bytes, at most %d are allowed", f->path,
                   (unsigned long long)n, PLAIT_ST_MAX_HEADER);
    if ((int64_t)n > file_bytes - (int64_t)sizeof field)
        PLAIT_FAIL(IO, "%s: header of %llu bytes in a file of %lld", f->path, (unsigned long long)n,
                   (long long)file_bytes);
    *length = (int64_t)n;
    return PLAIT_OK;
}

static plait_status parse_header(plait_st_file *f, int64_t length)
{
    plait_status st = PLAIT_OK;
    char *text = malloc((size_t)length + 1);
    if (text == NULL)
        PLAIT_FAIL(OUT_OF_MEMORY, "%s: no memory for a header of %lld bytes", f->path, (long long)length);
    PLAIT_TRY_TO(done, st, plait_file_read(f->fd, f->path, 8, text, (size_t)length));
    if (length == 0 || text[0] != '{')
        PLAIT_FAIL_TO(done, st, IO, "%s: not a safetensors file: the header of %lld bytes does not begin with {",
                      f->path, (long long)length);
    json_error_t error;
    f->header = json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES, &error);
    if (f->header == NULL)
        PLAIT_FAIL_TO(done, st, IO, "%s: header, byte %d: %s", f->path, error.position, error.text);
done:
    free(text);
    return st;
}

static plait_status check_metadata(const plait_st_file *f)
{
    json_t *metadata = json_object_get(f->header, METADATA), *value;
    const char *key;
    if (metadata == NULL)
        return PLAIT_OK;
    if (!json_is_object(metadata))
        PLAIT_FAIL(IO, "%s: " METADATA " is not an object", f->path);
    json_object_foreach(metadata, key, value) if (!json_is_string(value))
        PLAIT_FAIL(IO, "%s: " METADATA " '%s' is not a string", f->path, key);
    return PLAIT_OK;
}

static plait_status parse_dtype(const plait_st_file *f, plait_st_tensor *t, const json_t *entry)
{
    const char *name = json_string_value(json_object_get(entry, "dtype"));
    if (name == NULL)
        PLAIT_FAIL(IO, "%s: tensor '%s' has no dtype", f->path, t->name);
    for (int d = 0; d < PLAIT_ST_DTYPES; d++)
        if (strcmp(name, dtypes[d].name) == 0) {
            t->dtype = (plait_st_dtype)d;
            return PLAIT_OK;
        }
    PLAIT_FAIL(UNSUPPORTED, "%s: tensor '%s' has the unknown dtype '%s'", f->path, t->name, name);
}

static plait_status parse_shape(const plait_st_file *f, plait_st_tensor *t, const json_t *entry)
{
    const json_t *shape = json_object_get(entry, "shape");
    if (!json_is_array(shape))
        PLAIT_FAIL(IO, "%s: tensor '%s' has no shape", f->path, t->name);
    if (json_array_size(shape) > PLAIT_ST_MAX_DIMS)
        PLAIT_FAIL(UNSUPPORTED, "%s: tensor '%s' has %zu dimensions, at most %d are supported", f->path, t->name,
                   json_array_size(shape), PLAIT_ST_MAX_DIMS);
    t->ndim = (int)json_array_size(shape);
    t->numel = 1;
    for (int i = 0; i < t->ndim; i++) {
        const json_t *extent = json_array_get(shape, (size_t)i);
        t->shape[i] = json_integer_value(extent);
        if (!json_is_integer(extent) || t->shape[i] < 0)
            PLAIT_FAIL(IO, "%s: tensor '%s': extent %d is not a whole number >= 0", f->path, t->name, i);
        if (__builtin_mul_overflow(t->numel, t->shape[i], &t->numel))
            PLAIT_FAIL(IO, "%s: tensor '%s': the product of its shape does not fit 63 bits", f->path, t->name);
    }
    return PLAIT_OK;
}

static plait_status parse_offsets(const plait_st_file *f, plait_st_tensor *t, const json_t *entry)
{
    const json_t *offsets = json_object_get(entry, "data_offsets");
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end))
        PLAIT_FAIL(IO, "%s: tensor '%s': data_offsets are not two whole numbers", f->path, t->name);
    t->begin = json_integer_value(begin);
    t->end = json_integer_value(end);
    if (t->begin < 0 || t->end < t->begin || t->end > f->data_bytes)
        PLAIT_FAIL(IO, "%s: tensor '%s': bytes %lld to %lld are not a range in the %lld bytes of data", f->path,
                   t->name, (long long)t->begin, (long long)t->end, (long long)f->data_bytes);
    int64_t bytes;
    if (__builtin_mul_overflow(t->numel, (int64_t)dtypes[t->dtype].size, &bytes) || bytes != t->end - t->begin)
        PLAIT_FAIL(IO, "%s: tensor '%s': %lld elements of %s do not make the %lld bytes of its data_offsets", f->path,
                   t->name, (long long)t->numel, dtypes[t->dtype].name, (long long)(t->end - t->begin));
    return PLAIT_OK;
}

/* By place; an empty tensor before the one that begins where it lies. */
static int compare_place(const void *a, const void *b)
{
    const plait_st_tensor *x = (const plait_st_tensor *)a, *y = (const plait_st_tensor *)b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end)
        return x->end < y->end ? -1 : 1;
    return strcmp(x->name, y->name);
}

static plait_status check_cover(const plait_st_file *f)
{
    int64_t at = 0;
    for (int64_t i = 0; i < f->count; i++) {
        const plait_st_tensor *t = &f->tensors[i];
        if (t->begin != at)
            PLAIT_FAIL(IO, "%s: tensor '%s' begins at byte %lld of the data, the one before ends at %lld: %s", f->path,
                       t->name, (long long)t->begin, (long long)at, t->begin < at ? "they overlap" : "a hole");
        at = t->end;
    }
    if (at != f->data_bytes)
        PLAIT_FAIL(IO, "%s: the tensors end at byte %lld of the data, the file has %lld", f->path, (long long)at,
                   (long long)f->data_bytes);
    return PLAIT_OK;
}

static plait_status parse_tensors(plait_st_file *f)
{
    json_t *entry;
    const char *name;
    size_t entries = json_object_size(f->header);
    f->tensors = calloc(entries + 1, sizeof *f->tensors);
    if (f->tensors == NULL)
        PLAIT_FAIL(OUT_OF_MEMORY, "%s: no memory for %zu tensors", f->path, entries);
    json_object_foreach(f->header, name, entry)
    {
        if (strcmp(name, METADATA) == 0)
            continue;
        plait_st_tensor *t = &f->tensors[f->count++];
        t->name = name;
        if (!json_is_object(entry))
            PLAIT_FAIL(IO, "%s: tensor '%s' is not described by an object", f->path, name);
        PLAIT_TRY(parse_dtype(f, t, entry));
        PLAIT_TRY(parse_shape(f, t, entry));
        PLAIT_TRY(parse_offsets(f, t, entry));
    }
    qsort(f->tensors, (size_t)f->count, sizeof *f->tensors, compare_place);
    return check_cover(f);
}

static plait_status open_into(plait_st_file *f, const char *path)
{
    int64_t file_bytes = 0, length = 0;
    f->path = strdup(path);
    if (f->path == NULL)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory to open %s", path);
    PLAIT_TRY(plait_file_open(path, &f->fd, &file_bytes));
    PLAIT_TRY(header_length(f, file_bytes, &length));
    f->data_at = 8 + length;
    f->data_bytes = file_bytes - f->data_at;
    PLAIT_TRY(parse_header(f, length));
    PLAIT_TRY(check_metadata(f));
    PLAIT_TRY(parse_tensors(f));
    return PLAIT_OK;
}

plait_status plait_st_open(const char *path, plait_st_file **out)
{
    plait_st_file *f = calloc(1, sizeof *f);
    if (f == NULL)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory to open %s", path);
    f->fd = -1;
    plait_status st = open_into(f, path);
    if (st != PLAIT_OK) {
        plait_st_close(f);
        return st;
    }
    *out = f;
    return PLAIT_OK;
}

void plait_st_close(plait_st_file *f)
{
    if (f == NULL)
        return;
    if (f->fd >= 0)
        close(f->fd);
    json_decref(f->header);
    free(f->tensors);
    free(f->path);
    free(f);
}

int64_t plait_st_count(const plait_st_file *f)
{
    return f->count;
}

const plait_st_tensor *plait_st_at(const plait_st_file *f, int64_t i)
{
    return &f->tensors[i];
}

const plait_st_tensor *plait_st_find(const plait_st_file *f, const char *name)
{
    for (int64_t i = 0; i < f->count; i++)
        if (strcmp(f->tensors[i].name, name) == 0)
            return &f->tensors[i];
    return NULL;
}

const char *plait_st_metadata(const plait_st_file *f, const char *key)
{
    return json_string_value(json_object_get(json_object_get(f->header, METADATA), key));
}

const char *plait_st_path(const plait_st_file *f)
{
    return f->path;
}

/* Element i of the bytes at `from`, which may be unaligned. */
static double element(const unsigned char *from, plait_st_dtype dtype, int64_t i)
{
    uint16_t half;
    float single;
    double value;
    switch (dtype) {
    case PLAIT_ST_F64:
        memcpy(&value, from + i * 8, sizeof value);
        return value;
    case PLAIT_ST_F32:
        memcpy(&single, from + i * 4, sizeof single);
        return (double)single;
    case PLAIT_ST_BF16:
        memcpy(&half, from + i * 2, sizeof half);
        return (double)plait_bf16_to_float(half);
    default: /* F16: plait_st_read lets nothing else pass */
        memcpy(&half, from + i * 2, sizeof half);
        return (double)plait_fp16_to_float(half);
    }
}

static plait_status check_range(const plait_st_file *f, const plait_st_tensor *t, int64_t first, int64_t n)
{
    if (first < 0 || n < 0 || n > t->numel || first > t->numel - n)
        PLAIT_FAIL(INTERNAL, "%s: tensor '%s': elements %lld to %lld of %lld", f->path, t->name, (long long)first,
                   (long long)first + (long long)n, (long long)t->numel);
    return PLAIT_OK;
}

plait_status plait_st_read(const plait_st_file *f, const plait_st_tensor *t, int64_t first, int64_t n, plait_dtype as,
                           void *out)
{
    unsigned char chunk[1 << 15];
    int64_t size = (int64_t)dtypes[t->dtype].size, per_chunk = (int64_t)sizeof chunk / size;
    if (t->dtype != PLAIT_ST_F32 && t->dtype != PLAIT_ST_F64 && t->dtype != PLAIT_ST_BF16 && t->dtype != PLAIT_ST_F16)
        PLAIT_FAIL(UNSUPPORTED, "%s: tensor '%s' is %s, only F32, F64, BF16 and F16 can be read as numbers", f->path,
                   t->name, dtypes[t->dtype].name);
    if (as != PLAIT_FP32 && as != PLAIT_FP64)
        PLAIT_FAIL(UNSUPPORTED, "%s: tensor '%s' cannot be read as %s", f->path, t->name, plait_dtype_name(as));
    PLAIT_TRY(check_range(f, t, first, n));
    int64_t at = f->data_at + t->begin + first * size;
    /* The same type on both sides is copied as bits: a float that goes through double loses a signalling NaN. */
    if ((t->dtype == PLAIT_ST_F32 && as == PLAIT_FP32) || (t->dtype == PLAIT_ST_F64 && as == PLAIT_FP64))
        return plait_file_read(f->fd, f->path, at, out, (size_t)(n * size));
    for (int64_t done = 0, now; done < n; done += now) {
        now = n - done < per_chunk ? n - done : per_chunk;
        PLAIT_TRY(plait_file_read(f->fd, f->path, at + done * size, chunk, (size_t)(now * size)));
        for (int64_t i = 0; i < now; i++) {
            double value = element(chunk, t->dtype, i);
            if (as == PLAIT_FP64)
                ((double *)out)[done + i] = value;
            else
                ((float *)out)[done + i] = (float)value;
        }
    }
    return PLAIT_OK;
}

plait_status plait_st_read_raw(const plait_st_file *f, const plait_st_tensor *t, int64_t first, int64_t n, void *out)
{
    const int64_t size = (int64_t)dtypes[t->dtype].size;
    PLAIT_TRY(check_range(f, t, first, n));
    return plait_file_read(f->fd, f->path, f->data_at + t->begin + first * size, out, (size_t)(n * size));
}

plait_status plait_st_hash(const plait_st_file *f, uint64_t *out)
{
    plait_status st = PLAIT_OK;
    XXH3_state_t *state = XXH3_createState();
    if (!state)
        PLAIT_FAIL(OUT_OF_MEMORY, "%s: no memory for its hash", f->path);
    XXH3_64bits_reset(state);
    for (int64_t i = 0; i < f->count; i++) {
        const plait_st_tensor *t = &f->tensors[i];
        unsigned char first[1024];
        int64_t bytes = t->end - t->begin < (int64_t)sizeof first ? t->end - t->begin : (int64_t)sizeof first;
        const int64_t numbers[] = {t->dtype, t->ndim, t->begin, t->end};
        XXH3_64bits_update(state, t->name, strlen(t->name));
        XXH3_64bits_update(state, numbers, sizeof numbers);
        XXH3_64bits_update(state, t->shape, (size_t)t->ndim * sizeof *t->shape);
        PLAIT_TRY_TO(done, st, plait_file_read(f->fd, f->path, f->data_at + t->begin, first, (size_t)bytes));
        XXH3_64bits_update(state, first, (size_t)bytes);
    }
    *out = XXH3_64bits_digest(state);
done:
    XXH3_freeState(state);
    return st;
}
