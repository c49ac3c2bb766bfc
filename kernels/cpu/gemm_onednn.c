/* Tiles of matrix products by oneDNN 2.x (its matmul primitive; the C interface of 3.x differs).
 *
 * A primitive is generated code for one shape. They are kept in a small cache, with memory objects for each thread, so
 * that a step generates and allocates nothing after the first one.
 */
#include "kernels/cpu/blas.h"

#include <dnnl.h>
#include <stdlib.h>

/* Everything that a primitive depends on. Zeroed before it is filled, since it is compared as bytes. */
typedef struct key {
    int64_t m, n, k, lda, ldb, ldc;
    size_t scratch_limit;
    int32_t dtype, threads;
    bool trans_a, trans_b, c_acc, accumulate, bias;
} key;

/* What one thread passes to a primitive. */
typedef struct operands {
    dnnl_stream_t stream;
    dnnl_memory_t a, b, c, bias, scratch;
} operands;

struct plait_blas_tile {
    key key;
    size_t scratch_bytes;
    dnnl_primitive_t primitive; /* NULL: oneDNN has no fast way, or wants more scratch than there is */
    operands *of_thread;        /* key.threads of them */
    uint64_t used;              /* when it was last opened */
};

/* A training step has some tens of shapes; of a full set the tile that was opened longest ago is replaced. The four
 * shapes of one product are open at the same time, so a set has more ways than that. */
#define SETS 64
#define WAYS 8

static struct {
    dnnl_engine_t engine;
    plait_blas_tile tiles[SETS][WAYS];
    uint64_t uses;
} cache;

#define TRY_DNNL(call)                                                                                                 \
    do {                                                                                                               \
        dnnl_status_t s_ = (call);                                                                                     \
        if (s_ != dnnl_success)                                                                                        \
            PLAIT_FAIL(INTERNAL, "oneDNN: %s failed with status %d", #call, (int)s_);                                  \
    } while (0)

#define TRY_DNNL_TO(label, st, call)                                                                                   \
    do {                                                                                                               \
        dnnl_status_t s_ = (call);                                                                                     \
        if (s_ != dnnl_success)                                                                                        \
            PLAIT_FAIL_TO(label, st, INTERNAL, "oneDNN: %s failed with status %d", #call, (int)s_);                    \
    } while (0)

void plait_blas_limit_avx2(void)
{
    (void)dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx2); /* refused after the first call, as the header says */
}

/* Without AVX-512 oneDNN refuses bf16; with AVX-512 but no bf16 instructions it emulates them at a third of the speed
 * of fp32. fp16 comes later than version 2.6. */
static bool is_native(plait_dtype dtype)
{
    if (dtype == PLAIT_FP32)
        return true;
#if defined __x86_64__
    return dtype == PLAIT_BF16 && __builtin_cpu_supports("avx512bf16") &&
           dnnl_get_effective_cpu_isa() >= dnnl_cpu_isa_avx512_core_bf16;
#else
    return false;
#endif
}

static key key_of(const plait_exec *ex, plait_dtype dtype, const plait_gemm *g, size_t scratch_limit)
{
    key k;
    memset(&k, 0, sizeof k);
    k.m = g->m;
    k.n = g->n;
    k.k = g->k;
    k.lda = g->lda;
    k.ldb = g->ldb;
    k.ldc = g->ldc;
    k.scratch_limit = scratch_limit;
    k.dtype = (int32_t)dtype;
    k.threads = ex->threads > 1 ? ex->threads : 1;
    k.trans_a = g->trans_a;
    k.trans_b = g->trans_b;
    k.c_acc = g->c_acc || dtype == PLAIT_FP32;
    k.accumulate = g->accumulate;
    k.bias = g->bias != NULL;
    return k;
}

static uint64_t hash_of(const key *k)
{
    uint64_t words[sizeof(key) / 8], h = 0;
    memcpy(words, k, sizeof words);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        h = (h ^ words[i]) * 0x9E3779B97F4A7C15u;
        h ^= h >> 29;
    }
    return h;
}

static void tile_deinit(plait_blas_tile *t)
{
    for (int i = 0; t->of_thread && i < t->key.threads; i++) {
        operands *o = &t->of_thread[i];
        dnnl_memory_destroy(o->a);
        dnnl_memory_destroy(o->b);
        dnnl_memory_destroy(o->c);
        dnnl_memory_destroy(o->bias);
        dnnl_memory_destroy(o->scratch);
        dnnl_stream_destroy(o->stream);
    }
    free(t->of_thread);
    dnnl_primitive_destroy(t->primitive);
    memset(t, 0, sizeof *t);
}

/* The descriptor of a (rows, cols) operand, stored the other way when `trans`. */
static dnnl_status_t describe(dnnl_memory_desc_t *md, int64_t rows, int64_t cols, bool trans, int64_t ld,
                              dnnl_data_type_t type)
{
    dnnl_dims_t dims = {rows, cols}, strides = {trans ? 1 : ld, trans ? ld : 1};
    return dnnl_memory_desc_init_by_strides(md, 2, dims, type, strides);
}

/* User scratchpad, so that its size can be asked and is taken from ours; beta 1 is a sum after the product. */
static plait_status make_attr(const key *k, dnnl_primitive_attr_t *out)
{
    plait_status st = PLAIT_OK;
    dnnl_post_ops_t ops = NULL;
    TRY_DNNL(dnnl_primitive_attr_create(out));
    TRY_DNNL_TO(done, st, dnnl_primitive_attr_set_scratchpad_mode(*out, dnnl_scratchpad_mode_user));
    if (k->accumulate) {
        TRY_DNNL_TO(done, st, dnnl_post_ops_create(&ops));
        TRY_DNNL_TO(done, st, dnnl_post_ops_append_sum(ops, 1.0f));
        TRY_DNNL_TO(done, st, dnnl_primitive_attr_set_post_ops(*out, ops));
    }
done:
    dnnl_post_ops_destroy(ops);
    return st;
}

typedef struct descriptors {
    dnnl_memory_desc_t a, b, c, bias;
    const dnnl_memory_desc_t *scratch; /* belongs to the primitive's descriptor */
} descriptors;

static plait_status make_operands(operands *o, const key *k, const descriptors *d)
{
    TRY_DNNL(dnnl_stream_create(&o->stream, cache.engine, dnnl_stream_default_flags));
    TRY_DNNL(dnnl_memory_create(&o->a, &d->a, cache.engine, DNNL_MEMORY_NONE));
    TRY_DNNL(dnnl_memory_create(&o->b, &d->b, cache.engine, DNNL_MEMORY_NONE));
    TRY_DNNL(dnnl_memory_create(&o->c, &d->c, cache.engine, DNNL_MEMORY_NONE));
    TRY_DNNL(dnnl_memory_create(&o->scratch, d->scratch, cache.engine, DNNL_MEMORY_NONE));
    if (k->bias)
        TRY_DNNL(dnnl_memory_create(&o->bias, &d->bias, cache.engine, DNNL_MEMORY_NONE));
    return PLAIT_OK;
}

/* Leaves t->primitive NULL when oneDNN has none or it does not fit. */
static plait_status make_primitive(plait_blas_tile *t, dnnl_primitive_attr_t attr)
{
    const key *k = &t->key;
    plait_status st = PLAIT_OK;
    dnnl_data_type_t type = k->dtype == PLAIT_FP32 ? dnnl_f32 : dnnl_bf16;
    descriptors d;
    dnnl_matmul_desc_t desc;
    dnnl_primitive_desc_t pd = NULL;

    TRY_DNNL(describe(&d.a, k->m, k->k, k->trans_a, k->lda, type));
    TRY_DNNL(describe(&d.b, k->k, k->n, k->trans_b, k->ldb, type));
    TRY_DNNL(describe(&d.c, k->m, k->n, false, k->ldc, k->c_acc ? dnnl_f32 : type));
    TRY_DNNL(describe(&d.bias, 1, k->n, false, k->n, type));
    TRY_DNNL(dnnl_matmul_desc_init(&desc, &d.a, &d.b, k->bias ? &d.bias : NULL, &d.c));
    dnnl_status_t created = dnnl_primitive_desc_create(&pd, &desc, attr, cache.engine, NULL);
    if (created == dnnl_unimplemented)
        return PLAIT_OK;
    TRY_DNNL(created);

    d.scratch = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    t->scratch_bytes = dnnl_memory_desc_get_size(d.scratch);
    if (t->scratch_bytes > k->scratch_limit)
        goto done;
    t->of_thread = calloc((size_t)k->threads, sizeof *t->of_thread);
    if (!t->of_thread)
        PLAIT_FAIL_TO(done, st, OUT_OF_MEMORY, "no memory for the operands of %d threads", (int)k->threads);
    for (int i = 0; i < k->threads; i++)
        PLAIT_TRY_TO(done, st, make_operands(&t->of_thread[i], k, &d));
    TRY_DNNL_TO(done, st, dnnl_primitive_create(&t->primitive, pd));
done:
    dnnl_primitive_desc_destroy(pd);
    return st;
}

static plait_status make_tile(plait_blas_tile *t, const key *k)
{
    plait_status st = PLAIT_OK;
    dnnl_primitive_attr_t attr = NULL;
    if (!cache.engine)
        TRY_DNNL(dnnl_engine_create(&cache.engine, dnnl_cpu, 0));
    t->key = *k;
    PLAIT_TRY_TO(done, st, make_attr(k, &attr));
    PLAIT_TRY_TO(done, st, make_primitive(t, attr));
done:
    dnnl_primitive_attr_destroy(attr);
    if (st != PLAIT_OK)
        tile_deinit(t);
    return st;
}

plait_status plait_blas_tile_open(const plait_exec *ex, plait_dtype dtype, const plait_gemm *g, size_t scratch_limit,
                                  plait_blas_tile **out, size_t *scratch_bytes)
{
    *out = NULL;
    *scratch_bytes = 0;
    if (!is_native(dtype))
        return PLAIT_OK;
    key k = key_of(ex, dtype, g, scratch_limit);
    uint64_t set = hash_of(&k) % SETS;
    plait_blas_tile *t = cache.tiles[set], *end = t + WAYS;
    while (t < end && memcmp(&t->key, &k, sizeof k) != 0)
        t++;
    if (t == end) {
        t = cache.tiles[set];
        for (plait_blas_tile *other = t + 1; other < end; other++)
            t = other->used < t->used ? other : t;
        tile_deinit(t);
        PLAIT_TRY(make_tile(t, &k));
    }
    t->used = ++cache.uses;
    *scratch_bytes = t->scratch_bytes;
    *out = t->primitive ? t : NULL;
    return PLAIT_OK;
}

int plait_blas_tile_run(const plait_blas_tile *t, int thread, void *scratch, const plait_gemm *g)
{
    const operands *o = &t->of_thread[thread];
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, o->a},
                                    {DNNL_ARG_WEIGHTS, o->b},
                                    {DNNL_ARG_DST, o->c},
                                    {DNNL_ARG_SCRATCHPAD, o->scratch},
                                    {DNNL_ARG_BIAS, o->bias}};
    dnnl_status_t st = dnnl_memory_set_data_handle(o->a, (void *)(uintptr_t)g->a);
    st = st ? st : dnnl_memory_set_data_handle(o->b, (void *)(uintptr_t)g->b);
    st = st ? st : dnnl_memory_set_data_handle(o->c, g->c);
    st = st ? st : dnnl_memory_set_data_handle(o->scratch, scratch);
    if (o->bias)
        st = st ? st : dnnl_memory_set_data_handle(o->bias, (void *)(uintptr_t)g->bias);
    st = st ? st : dnnl_primitive_execute(t->primitive, o->stream, o->bias ? 5 : 4, args);
    return (int)(st ? st : dnnl_stream_wait(o->stream));
}
