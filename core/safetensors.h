/* core/safetensors.h: named tensors in one file (Hugging Face's format), read strictly and written so that a crash
 * never leaves half a file.
 *
 *     u64 N, little endian | N bytes of JSON | data
 *     {"__metadata__": {"k": "v"}, "name": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}, ...}
 *
 * Offsets count from the start of the data. The reader accepts a file only if the tensors cover the data exactly once,
 * without hole, overlap or rest, and each range is as long as shape and type say; all of it is checked against the
 * size of the file before anything of that size is allocated. PLAIT_IO names the path and what is wrong.
 */
#ifndef PLAIT_CORE_SAFETENSORS_H
#define PLAIT_CORE_SAFETENSORS_H

#include "core/tensor.h"

PLAIT_BEGIN_DECLS

#define PLAIT_ST_MAX_DIMS 8
/* The longest header that the format allows. */
#define PLAIT_ST_MAX_HEADER 100000000

/* name in the file, bytes */
#define PLAIT_ST_DTYPE_LIST(X)                                                                                         \
    X(BOOL, 1)                                                                                                         \
    X(U8, 1)                                                                                                           \
    X(I8, 1)                                                                                                           \
    X(F8_E5M2, 1)                                                                                                      \
    X(F8_E4M3, 1)                                                                                                      \
    X(I16, 2)                                                                                                          \
    X(U16, 2)                                                                                                          \
    X(F16, 2)                                                                                                          \
    X(BF16, 2)                                                                                                         \
    X(I32, 4)                                                                                                          \
    X(U32, 4)                                                                                                          \
    X(F32, 4)                                                                                                          \
    X(F64, 8)                                                                                                          \
    X(I64, 8)                                                                                                          \
    X(U64, 8)                                                                                                          \
    X(C64, 8)

#define PLAIT_ST_ENUM(name, bytes) PLAIT_ST_##name,
typedef enum plait_st_dtype { PLAIT_ST_DTYPE_LIST(PLAIT_ST_ENUM) PLAIT_ST_DTYPES } plait_st_dtype;
#undef PLAIT_ST_ENUM

/* "F32", ... */
const char *plait_st_dtype_name(plait_st_dtype dtype);
/* Bytes of an element, at most 8. */
size_t plait_st_dtype_size(plait_st_dtype dtype);

typedef struct plait_st_tensor {
    const char *name; /* UTF-8; owned by the file */
    plait_st_dtype dtype;
    int ndim; /* 0: a scalar */
    int64_t shape[PLAIT_ST_MAX_DIMS];
    int64_t numel;
    int64_t begin, end; /* bytes from the start of the data */
} plait_st_tensor;

/* An open file. */
typedef struct plait_st_file plait_st_file;

PLAIT_MUST_USE plait_status plait_st_open(const char *path, plait_st_file **out);
/* Closing NULL is fine. */
void plait_st_close(plait_st_file *f);

/* Tensors in the order of their data. */
int64_t plait_st_count(const plait_st_file *f);
const plait_st_tensor *plait_st_at(const plait_st_file *f, int64_t i);
/* NULL: no tensor of that name. */
const plait_st_tensor *plait_st_find(const plait_st_file *f, const char *name);
/* A string of __metadata__, NULL if it is not there. */
const char *plait_st_metadata(const plait_st_file *f, const char *key);
const char *plait_st_path(const plait_st_file *f);

/* Elements [first, first + n) of t in row-major order, as PLAIT_FP32 or PLAIT_FP64. t is F32, F64, BF16 or F16;
 * others are PLAIT_UNSUPPORTED. F64 to FP32 rounds to nearest, everything else is exact. */
PLAIT_MUST_USE plait_status plait_st_read(const plait_st_file *f, const plait_st_tensor *t, int64_t first, int64_t n,
                                          plait_dtype as, void *out);

/* The same elements as they lie in the file, of whatever type: plait_st_dtype_size bytes each. */
PLAIT_MUST_USE plait_status plait_st_read_raw(const plait_st_file *f, const plait_st_tensor *t, int64_t first,
                                              int64_t n, void *out);

/* 64-bit hash of names, types, shapes and the first KiB of every tensor: whether two ranks read the same weights. */
PLAIT_MUST_USE plait_status plait_st_hash(const plait_st_file *f, uint64_t *out);

/* A tensor to be written: PLAIT_FP32, PLAIT_FP64, PLAIT_BF16 or PLAIT_FP16. */
typedef struct plait_st_spec {
    const char *name;
    plait_dtype dtype;
    plait_shape shape;
} plait_st_spec;

typedef struct plait_st_writer plait_st_writer;

/* Creates a temporary of `path` (core/file.h) in its final size and maps it: the elements are then written in any
 * order, and the disk cannot be full any more. metadata: num_metadata pairs (key, value), beside {"format": "pt"},
 * which loaders ask for. Larger types come first, then by name, so every tensor is aligned to its type. */
PLAIT_MUST_USE plait_status plait_st_writer_create(const char *path, const plait_st_spec *specs, int64_t count,
                                                   const char *const *metadata, int64_t num_metadata,
                                                   plait_st_writer **out);
/* Where the elements of specs[i] go, zero so far. Valid until commit or abort. */
void *plait_st_writer_data(plait_st_writer *w, int64_t i);
/* Makes the file durable under its name, taking the place of an older one. A failure up to the renaming leaves the
 * older one and nothing else. Frees the writer either way. */
PLAIT_MUST_USE plait_status plait_st_writer_commit(plait_st_writer *w);
/* Removes the temporary file and frees the writer; `path` is as before. NULL is fine. */
void plait_st_writer_abort(plait_st_writer *w);

PLAIT_END_DECLS
#endif
