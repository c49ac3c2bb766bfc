/* core/tensor.h: a tensor is a view: a pointer, a type and a dense row-major shape. It owns nothing. */
#ifndef PLAIT_CORE_TENSOR_H
#define PLAIT_CORE_TENSOR_H

#include "core/dtype.h"

PLAIT_BEGIN_DECLS

#define PLAIT_MAX_DIMS 4

typedef struct plait_shape {
    int ndim;
    int64_t dim[PLAIT_MAX_DIMS];
} plait_shape;

typedef struct plait_tensor {
    void *data;
    plait_dtype dtype;
    plait_shape shape;
} plait_tensor;

static inline plait_shape plait_shape_1d(int64_t n)
{
    plait_shape s = {1, {n, 1, 1, 1}};
    return s;
}

static inline plait_shape plait_shape_2d(int64_t rows, int64_t cols)
{
    plait_shape s = {2, {rows, cols, 1, 1}};
    return s;
}

/* Product of the extents; 1 for a scalar (ndim 0). */
static inline int64_t plait_shape_numel(plait_shape s)
{
    int64_t n = 1;
    for (int i = 0; i < s.ndim; i++)
        n *= s.dim[i];
    return n;
}

static inline size_t plait_tensor_bytes(const plait_tensor *t)
{
    return (size_t)plait_shape_numel(t->shape) * plait_dtype_size(t->dtype);
}

/* Address of element `index` of an array of `dtype`. */
static inline void *plait_at(const void *base, plait_dtype dtype, int64_t index)
{
    return (char *)(uintptr_t)base + index * (int64_t)plait_dtype_size(dtype);
}

PLAIT_END_DECLS
#endif
