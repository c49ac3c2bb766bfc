#include "core/safetensors.h"

#include "core/file.h"
#include "core/json_out.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

struct plait_st_writer {
    char *path;
    plait_file_temporary file;
    unsigned char *map;
    int64_t bytes;   /* of the file */
    int64_t *offset; /* of each spec, from the start of the file */
};

/* NULL: a type that is not written. */
static const char *dtype_text(plait_dtype dtype)
{
    switch (dtype) {
    case PLAIT_FP32:
        return plait_st_dtype_name(PLAIT_ST_F32);
    case PLAIT_FP64:
        return plait_st_dtype_name(PLAIT_ST_F64);
    case PLAIT_BF16:
        return plait_st_dtype_name(PLAIT_ST_BF16);
    case PLAIT_FP16:
        return plait_st_dtype_name(PLAIT_ST_F16);
    default:
        return NULL;
    }
}

static int compare_specs(const void *a, const void *b)
{
    const plait_st_spec *x = *(const plait_st_spec *const *)a, *y = *(const plait_st_spec *const *)b;
    size_t size_x = plait_dtype_size(x->dtype), size_y = plait_dtype_size(y->dtype);
    if (size_x != size_y)
        return size_x > size_y ? -1 : 1;
    return strcmp(x->name, y->name);
}

static plait_status spec_bytes(const plait_st_spec *s, int64_t *bytes)
{
    if (dtype_text(s->dtype) == NULL)
        PLAIT_FAIL(UNSUPPORTED, "tensor '%s' of type %s cannot be written", s->name, plait_dtype_name(s->dtype));
    *bytes = (int64_t)plait_dtype_size(s->dtype);
    for (int i = 0; i < s->shape.ndim; i++)
        if (s->shape.dim[i] < 0 || __builtin_mul_overflow(*bytes, s->shape.dim[i], bytes))
            PLAIT_FAIL(INTERNAL, "tensor '%s': extent %d is %lld", s->name, i, (long long)s->shape.dim[i]);
    return PLAIT_OK;
}

static void print_entry(FILE *out, const plait_st_spec *s, int64_t begin, int64_t end)
{
    fputc(',', out);
    plait_json_string(out, s->name);
    fprintf(out, ":{\"dtype\":\"%s\",\"shape\":[", dtype_text(s->dtype));
    for (int i = 0; i < s->shape.ndim; i++)
        fprintf(out, "%s%lld", i > 0 ? "," : "", (long long)s->shape.dim[i]);
    fprintf(out, "],\"data_offsets\":[%lld,%lld]}", (long long)begin, (long long)end);
}

/* Prints the header into `out` and leaves the offsets from the start of the data in w. */
static plait_status print_header(plait_st_writer *w, FILE *out, const plait_st_spec *specs,
                                 const plait_st_spec *const *sorted, int64_t count, const char *const *metadata,
                                 int64_t num_metadata, int64_t *data_bytes)
{
    int64_t at = 0, bytes = 0;
    fputs("{\"__metadata__\":{\"format\":\"pt\"", out);
    for (int64_t i = 0; i < num_metadata; i++) {
        fputc(',', out);
        plait_json_string(out, metadata[2 * i]);
        fputc(':', out);
        plait_json_string(out, metadata[2 * i + 1]);
    }
    fputc('}', out);
    for (int64_t i = 0; i < count; i++) {
        if (i > 0 && strcmp(sorted[i]->name, sorted[i - 1]->name) == 0)
            PLAIT_FAIL(INTERNAL, "%s: two tensors are called '%s'", w->path, sorted[i]->name);
        PLAIT_TRY(spec_bytes(sorted[i], &bytes));
        w->offset[sorted[i] - specs] = at;
        if (__builtin_add_overflow(at, bytes, &at))
            PLAIT_FAIL(INTERNAL, "%s: tensor '%s' ends beyond 2^63 bytes", w->path, sorted[i]->name);
        print_entry(out, sorted[i], at - bytes, at);
    }
    fputc('}', out);
    *data_bytes = at;
    return PLAIT_OK;
}

/* Where a file system cannot reserve blocks, libc writes them one by one: hours before it finds the disk full. */
static plait_status check_space(const plait_st_writer *w)
{
    struct statvfs disk;
    if (fstatvfs(w->file.fd, &disk) != 0 || disk.f_blocks == 0) /* unknown to this file system */
        return PLAIT_OK;
    if ((uint64_t)w->bytes / disk.f_frsize > disk.f_bavail)
        PLAIT_FAIL(IO, "write %s: %lld bytes needed, %llu free", w->path, (long long)w->bytes,
                   (unsigned long long)disk.f_bavail * disk.f_frsize);
    return PLAIT_OK;
}

/* A file of the final size, zero, with its blocks reserved, mapped. */
static plait_status create_file(plait_st_writer *w)
{
    struct rlimit limit;
    /* Said with both numbers, before blocks are reserved. */
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && (rlim_t)w->bytes > limit.rlim_cur)
        PLAIT_FAIL(IO, "write %s: %lld bytes are above the process's file size limit of %llu", w->path,
                   (long long)w->bytes, (unsigned long long)limit.rlim_cur);
    PLAIT_TRY(plait_file_temporary_create(w->path, &w->file));
    PLAIT_TRY(check_space(w));
    int error;
    do
        error = posix_fallocate(w->file.fd, 0, w->bytes);
    while (error == EINTR);
    if (error != 0)
        PLAIT_FAIL(IO, "reserve %lld bytes for %s: %s", (long long)w->bytes, w->path, strerror(error));
    void *map = mmap(NULL, (size_t)w->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, w->file.fd, 0);
    if (map == MAP_FAILED)
        PLAIT_FAIL(IO, "map %lld bytes of %s: %s", (long long)w->bytes, w->path, strerror(errno));
    w->map = map;
    return PLAIT_OK;
}

static plait_status create_into(plait_st_writer *w, const plait_st_spec *specs, int64_t count,
                                const char *const *metadata, int64_t num_metadata)
{
    plait_status st = PLAIT_OK;
    char *header = NULL;
    size_t header_bytes = 0;
    int64_t data_bytes = 0;
    const plait_st_spec **sorted = malloc(((size_t)count + 1) * sizeof *sorted);
    FILE *out = open_memstream(&header, &header_bytes);
    if (sorted == NULL || out == NULL)
        PLAIT_FAIL_TO(done, st, OUT_OF_MEMORY, "no memory for the header of %s", w->path);
    for (int64_t i = 0; i < count; i++)
        sorted[i] = &specs[i];
    qsort(sorted, (size_t)count, sizeof *sorted, compare_specs);
    PLAIT_TRY_TO(done, st, print_header(w, out, specs, sorted, count, metadata, num_metadata, &data_bytes));
    while (ftell(out) % 8 != 0) /* so that the data begins at a multiple of 8 */
        fputc(' ', out);
    if (fflush(out) != 0)
        PLAIT_FAIL_TO(done, st, OUT_OF_MEMORY, "no memory for the header of %s", w->path);
    if (header_bytes > PLAIT_ST_MAX_HEADER)
        PLAIT_FAIL_TO(done, st, UNSUPPORTED, "%s: header of %zu bytes, at most %d are allowed", w->path, header_bytes,
                      PLAIT_ST_MAX_HEADER);
    int64_t data_at = 8 + (int64_t)header_bytes;
    if (__builtin_add_overflow(data_at, data_bytes, &w->bytes))
        PLAIT_FAIL_TO(done, st, INTERNAL, "%s: more than 2^63 bytes", w->path);
    PLAIT_TRY_TO(done, st, create_file(w));
    for (int i = 0; i < 8; i++)
        w->map[i] = (unsigned char)(header_bytes >> (8 * i));
    memcpy(w->map + 8, header, header_bytes);
    for (int64_t i = 0; i < count; i++)
        w->offset[i] += data_at;
done:
    if (out != NULL)
        fclose(out);
    free(header);
    free(sorted);
    return st;
}

static void destroy(plait_st_writer *w)
{
    if (w->map != NULL)
        munmap(w->map, (size_t)w->bytes);
    plait_file_temporary_discard(&w->file);
    free(w->offset);
    free(w->path);
    free(w);
}

plait_status plait_st_writer_create(const char *path, const plait_st_spec *specs, int64_t count,
                                    const char *const *metadata, int64_t num_metadata, plait_st_writer **out)
{
    plait_st_writer *w = calloc(1, sizeof *w);
    if (w == NULL)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory to write %s", path);
    w->file.fd = -1;
    w->path = strdup(path);
    w->offset = calloc((size_t)count + 1, sizeof *w->offset);
    if (w->path == NULL || w->offset == NULL) {
        destroy(w);
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory to write %lld tensors to %s", (long long)count, path);
    }
    plait_status st = create_into(w, specs, count, metadata, num_metadata);
    if (st != PLAIT_OK) {
        plait_st_writer_abort(w);
        return st;
    }
    *out = w;
    return PLAIT_OK;
}

void *plait_st_writer_data(plait_st_writer *w, int64_t i)
{
    return w->map + w->offset[i];
}

plait_status plait_st_writer_commit(plait_st_writer *w)
{
    plait_status st = PLAIT_OK;
    if (msync(w->map, (size_t)w->bytes, MS_SYNC) != 0)
        PLAIT_FAIL_TO(failed, st, IO, "flush what becomes %s: %s", w->path, strerror(errno));
    PLAIT_TRY_TO(failed, st, plait_file_temporary_publish(&w->file));
    destroy(w);
    return PLAIT_OK;
failed:
    plait_st_writer_abort(w);
    return st;
}

void plait_st_writer_abort(plait_st_writer *w)
{
    if (w != NULL)
        destroy(w);
}
