/* kernels/kernels.h: the table of operations.
 *
 * One table, several implementations: `ref` (plain loops, the specification; in double the oracle), `cpu` (fast),
 * `plan` (sizes are recorded, nothing is computed). Nothing above kernels/ knows which one runs, and nothing above
 * kernels/ follows a pointer to tensor data.
 *
 * Conventions
 *  - A table is for one storage type T (parameters, activations and their gradients). A is its accumulation type:
 * double for T = fp64, else float. A pointer's type is named in the comment of its argument.
 *  - Matrices are row-major. A row of an activation is one token: row t * batch + b is position t of sample b
 * ("sequence first", so that a slice of the sequence is a contiguous block of rows). N is the number of rows.
 *  - `dx` is written; `dw`, `db` are added to (micro-batches share them); where noted an output may alias an input.
 *    A backward function accepts dx or dw (with db) NULL and then leaves that part out.
 *  - Sums go to a wider or wide lane in an order fixed by the shapes, whatever the number of threads.
 *  - Tensors, and the sums and flags that an operation adds to, lie in the memory of the table's backend
 * (kernels/backend.h).
 *  - Everything is checked before a run (plait_kernels_find, the model's shapes); a function fails only when its
 * library does.
 */
#ifndef PLAIT_KERNELS_KERNELS_H
#define PLAIT_KERNELS_KERNELS_H

#include "core/config.h"
#include "core/fixed.h"
#include "core/mem.h"
#include "core/rng.h"

PLAIT_BEGIN_DECLS

struct plait_kernels;
struct plait_backend;

/* Where and with what a kernel runs. */
typedef struct plait_exec {
    const struct plait_kernels *k;
    void *stream;         /* NULL: the CPU's one stream, in order */
    plait_arena *work;    /* temporaries of the layers, by marks */
    void *scratch;        /* for the kernel alone, during one call; kernels size their tiles to it */
    size_t scratch_bytes; /* device.workspace */
    int threads;
    bool allow_tf32;                     /* of a GPU: fp32 products may round what they multiply to 11 bits */
    const struct plait_backend *backend; /* where its tensors lie (kernels/backend.h); NULL: in the host's memory */
} plait_exec;

/* C (m, n) = op(A) op(B) + beta C + bias; op(X) = X or its transpose, beta 0 or 1.
 * op(A) is (m, k): stored (m, k), or (k, m) when trans_a. op(B) is (k, n): stored (k, n), or (n, k) when trans_b.
 *
 * Epilogues: what the layers do next with what is at hand then, at most one of them. GELU as gelu_fwd has it. */
typedef struct plait_gemm {
    bool trans_a, trans_b;
    int64_t m, n, k;
    const void *a; /* T */
    int64_t lda;   /* elements from one stored row to the next */
    const void *b; /* T */
    int64_t ldb;
    void *c; /* T, or A when c_acc */
    int64_t ldc;
    bool c_acc;
    bool accumulate;   /* beta 1 */
    const void *bias;  /* T (n), or NULL */
    void *gelu;        /* T (m, n) = GELU(C), or NULL; C is T, without gaps between rows, and beta 0 */
    const void *dgelu; /* T (m, n), or NULL: C is multiplied by GELU'(dgelu); likewise */
    void *bias_grad;   /* A (m) += the sums of op(A)'s rows, or NULL; A is stored (k, m) without gaps */
} plait_gemm;

/* Counter-based dropout: an element is kept with probability 1 - p and then scaled by 1 / (1 - p). The mask depends on
 * (seed, step, sample, layer, use, element), never on the topology. NULL or p 0: none.
 * Rows: row r holds sample sample0 + r % batch at position t0 + r / batch; element = position * C + column.
 * Attention: element = ((head0 + h) * T + query) * T + key. */
typedef struct plait_dropout {
    double p;
    uint64_t seed;
    plait_rng_use use;
    uint32_t layer, step, sample0;
    int64_t t0, batch;
    int64_t head0;
} plait_dropout;

/* Causal attention over whole sequences; head h of query row t * batch + b begins at q + (t * batch + b) * ldq + h *
 * head_dim. Query head h reads key/value head h / (heads / kv_heads). scale is usually 1 / sqrt(head_dim). Vaswani et
 * al. 2017, section 3.2.1; tiles with online softmax as Dao et al. 2022, algorithm 1. */
typedef struct plait_attention {
    int64_t batch, seq, heads, kv_heads, head_dim;
    double scale;
    const plait_dropout *dropout;
    const void *q, *k, *v; /* T */
    int64_t ldq, ldk, ldv;
    void *o; /* T; input of backward */
    int64_t ldo;
    void *lse; /* A (batch, heads, seq): log of the sum of exponentials of a row; kept for backward */
    /* backward only; dq, dk, dv are written */
    const void *d_o; /* T */
    void *dq, *dk, *dv;
    int64_t lddo, lddq, lddk, lddv;
} plait_attention;

/* Vocabulary-parallel cross-entropy over one rank's columns [v0, v0 + cols) of the vocabulary. `valid` columns are real
 * words, the rest padding: no probability, zero gradient. targets < 0: the token is not counted. */
typedef struct plait_cross_entropy {
    int64_t rows, cols, valid, v0;
    void *logits; /* A (rows, cols); becomes T in place, see cross_entropy_grad */
    const int32_t *targets;
    void *row_max;    /* A (rows) */
    void *row_sum;    /* A (rows): sum of exp(logit - row_max) */
    void *row_target; /* A (rows): logit - row_max of the target if its column is here, else 0 */
    bool raise;       /* row_max has the maximum of other columns already */
} plait_cross_entropy;

/* AdamW (Loshchilov and Hutter 2019, algorithm 2). g = grad * grad_scale; m = b1 m + (1 - b1) g; v = b2 v + (1 - b2)
 * g^2; w -= lr (m / bias1 / (sqrt(v / bias2) + eps) + weight_decay w), with bias_i = 1 - b_i^t. Hyperparameters are
 * double; the arithmetic is in A. */
typedef struct plait_adamw {
    double lr, beta1, beta2, eps, weight_decay, bias1, bias2, grad_scale;
} plait_adamw;

/* g = grad * grad_scale + weight_decay w; buf = momentum buf + g (momentum 0: buf is NULL, g is used); w -= lr buf. */
typedef struct plait_sgd {
    double lr, momentum, weight_decay, grad_scale;
} plait_sgd;

typedef struct plait_kernels {
    const char *name; /* "ref", "cpu-avx2", ... */
    plait_dtype dtype, acc;
    bool epilogues; /* those of gemm cost less than the operations of their own, gelu_fwd, gelu_bwd, bias_grad */

    plait_status (*gemm)(const plait_exec *ex, const plait_gemm *g);

    /* y[r] = table[tokens[r] - row0] for tokens in [row0, row0 + rows); other rows of y are left alone.
     * y: T (N, C), table: T (rows, C) */
    plait_status (*embedding_fwd)(const plait_exec *ex, void *y, const int32_t *tokens, const void *table, int64_t row0,
                                  int64_t rows, int64_t N, int64_t C);
    /* dtable[tokens[r] - row0] += dy[r], rows in ascending order. dtable: A (rows, C), dy: T (N, C) */
    plait_status (*embedding_bwd)(const plait_exec *ex, void *dtable, const int32_t *tokens, const void *dy,
                                  int64_t row0, int64_t rows, int64_t N, int64_t C);

    /* y[t * batch + b] += pos[t]. y: T (seq * batch, C), pos: T (seq, C) */
    plait_status (*position_fwd)(const plait_exec *ex, void *y, const void *pos, int64_t seq, int64_t batch, int64_t C);
    /* dpos[t] += sum_b dy[t * batch + b]. dpos: A (seq, C) */
    plait_status (*position_bwd)(const plait_exec *ex, void *dpos, const void *dy, int64_t seq, int64_t batch,
                                 int64_t C);

    /* y = (x - mean) rstd w + b, mean and rstd = 1 / sqrt(var + eps) per row. Ba et al. 2016.
     * y, x: T (N, C); w, b: T (C); mean, rstd: A (N), kept for backward */
    plait_status (*layernorm_fwd)(const plait_exec *ex, void *y, void *mean, void *rstd, const void *x, const void *w,
                                  const void *b, int64_t N, int64_t C, double eps);
    /* dx = dres + rstd (w dy - mean_c(w dy) - xhat mean_c(w dy xhat)); dw += sum dy xhat; db += sum dy.
     * dx may alias dy or dres; dres: T (N, C) or NULL; dw, db: A (C) */
    plait_status (*layernorm_bwd)(const plait_exec *ex, void *dx, void *dw, void *db, const void *dy, const void *dres,
                                  const void *x, const void *w, const void *mean, const void *rstd, int64_t N,
                                  int64_t C);

    /* y = x rstd w, rstd = 1 / sqrt(mean_c x^2 + eps). Zhang and Sennrich 2019.
     * y, x: T (N, C); w: T (C); rstd: A (N), kept for backward */
    plait_status (*rmsnorm_fwd)(const plait_exec *ex, void *y, void *rstd, const void *x, const void *w, int64_t N,
                                int64_t C, double eps);
    /* dx = dres + rstd (w dy - x rstd^2 mean_c(w dy x)); dw += sum dy x rstd. dx may alias dy or dres. */
    plait_status (*rmsnorm_bwd)(const plait_exec *ex, void *dx, void *dw, const void *dy, const void *dres,
                                const void *x, const void *w, const void *rstd, int64_t N, int64_t C);

    /* cos and sin of t base^(-2 j / D): table A (seq, D / 2, 2). Su et al. 2021. */
    plait_status (*rope_table)(const plait_exec *ex, void *table, int64_t seq, int64_t D, double base);
    /* Rotates pairs (j, j + D/2) of each head in place (half-split, Hugging Face's order); `inverse` is the backward.
     * x: T, row t * batch + b at x + row * ldx, `heads` heads of D */
    plait_status (*rope)(const plait_exec *ex, void *x, int64_t ldx, const void *table, int64_t seq, int64_t batch,
                         int64_t heads, int64_t D, bool inverse);

    plait_status (*attention_fwd)(const plait_exec *ex, const plait_attention *a);
    plait_status (*attention_bwd)(const plait_exec *ex, const plait_attention *a);

    /* y = x / 2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). Hendrycks and Gimpel 2016, section 2. n elements; dx may
     * alias dy. */
    plait_status (*gelu_fwd)(const plait_exec *ex, void *y, const void *x, int64_t n);
    plait_status (*gelu_bwd)(const plait_exec *ex, void *dx, const void *dy, const void *x, int64_t n);

    /* y = silu(gate) up; a row of gate_up is gate (F) then up (F). Shazeer 2020. y: T (N, F), gate_up: T (N, 2F) */
    plait_status (*swiglu_fwd)(const plait_exec *ex, void *y, const void *gate_up, int64_t N, int64_t F);
    /* d_gate_up may alias gate_up */
    plait_status (*swiglu_bwd)(const plait_exec *ex, void *d_gate_up, const void *dy, const void *gate_up, int64_t N,
                               int64_t F);

    /* y = residual + dropout(x + bias). x, residual, y: T (N, C), y may alias x or residual; bias: T (C) or NULL;
     * residual or NULL */
    plait_status (*bias_dropout_add_fwd)(const plait_exec *ex, void *y, const void *x, const void *bias,
                                         const void *residual, const plait_dropout *drop, int64_t N, int64_t C);
    /* dx = mask dy / (1 - p) (dx may alias dy); dbias += sum_r dx[r]. dbias: A (C) or NULL; dx NULL: only dbias */
    plait_status (*bias_dropout_add_bwd)(const plait_exec *ex, void *dx, void *dbias, const void *dy,
                                         const plait_dropout *drop, int64_t N, int64_t C);
    /* db[c] += sum_r dy[r, c]. db: A (C); dy: T (N, C) */
    plait_status (*bias_grad)(const plait_exec *ex, void *db, const void *dy, int64_t N, int64_t C);

    /* Fills row_max from logits (-inf where valid is 0), or raises it. */
    plait_status (*cross_entropy_max)(const plait_exec *ex, const plait_cross_entropy *c);
    /* Fills row_sum and row_target; row_max is the maximum over all ranks by then. */
    plait_status (*cross_entropy_sum)(const plait_exec *ex, const plait_cross_entropy *c);
    /* *loss += sum over counted rows of log(row_sum) - row_target, in double and in row order.
     * *loss: double. row_sum and row_target are sums over all ranks by then. */
    plait_status (*cross_entropy_loss)(const plait_exec *ex, double *loss, const plait_cross_entropy *c);
    /* dlogits = (softmax - one hot) scale for counted rows, 0 for others and for padding. Written as T over the logits
     * themselves: row r begins where logits' row r begins, so its leading dimension is cols sizeof(A) / sizeof(T). */
    plait_status (*cross_entropy_grad)(const plait_exec *ex, const plait_cross_entropy *c, double scale);

    /* param: T, NULL where T = A (the master is the parameter). All others A. n elements. */
    plait_status (*adamw)(const plait_exec *ex, void *param, void *master, void *m, void *v, const void *grad,
                          int64_t n, const plait_adamw *h);
    plait_status (*sgd)(const plait_exec *ex, void *param, void *master, void *buf, const void *grad, int64_t n,
                        const plait_sgd *h);
    /* x *= scale; *found_inf = 1 if an element is not finite afterwards (never reset here). x: A */
    plait_status (*unscale)(const plait_exec *ex, void *x, double scale, int64_t n, int32_t *found_inf);
    /* *sum += sum x^2 in double over fixed blocks. x: A */
    plait_status (*sum_squares)(const plait_exec *ex, double *sum, const void *x, int64_t n);

    /* Sums that do not depend on the order of their terms (core/fixed.h). sum += x scale in fixed point, rounded
     * once where scale is a power of two. *overflow = 1 if a term is not below `limit` (plait_fixed_limit), or not a
     * number (never reset here). x: A, fp32 */
    plait_status (*fixed_add)(const plait_exec *ex, int64_t *sum, const void *x, double scale, double limit, int64_t n,
                              int32_t *overflow);
    /* y = sum, each rounded once. y: A, fp32 */
    plait_status (*fixed_read)(const plait_exec *ex, void *y, const int64_t *sum, int64_t n);
    /* *total += sum of squares of x, which has come from fixed_read; *overflow = 1 if one, or the sum, is too large. x:
     * A, fp32 */
    plait_status (*fixed_squares)(const plait_exec *ex, plait_fixed_squares *total, const void *x, int64_t n,
                                  int32_t *overflow);

    /* *out = 64 bits that stand for the bytes of a matrix: XXH3_64bits of each row, with the hash of the rows before it
     * as the seed (0 at first). x: `rows` rows of row_bytes bytes, one every `stride` bytes. For people: *out is in
     * host memory and there when the call returns. */
    plait_status (*hash)(const plait_exec *ex, uint64_t *out, const void *x, int64_t rows, size_t row_bytes,
                         size_t stride);

    /* Any of fp32, bf16, fp16, fp64 to any, as core/dtype.h rounds (fp64 to a 16-bit type through fp32); src may not
     * overlap dst unless both are the same array of one size. */
    plait_status (*cast)(const plait_exec *ex, void *dst, plait_dtype to, const void *src, plait_dtype from, int64_t n);
    /* y += x, both `dtype`; the sum of 16-bit types is formed in fp32 and rounded once. */
    plait_status (*add)(const plait_exec *ex, void *y, const void *x, plait_dtype dtype, int64_t n);
    plait_status (*zero)(const plait_exec *ex, void *p, size_t bytes);
    plait_status (*copy)(const plait_exec *ex, void *dst, const void *src, size_t bytes);
} plait_kernels;

/* Every operation of the table, in its order: X(name). */
#define PLAIT_KERNELS_OPS(X)                                                                                           \
    X(gemm)                                                                                                            \
    X(embedding_fwd)                                                                                                   \
    X(embedding_bwd)                                                                                                   \
    X(position_fwd)                                                                                                    \
    X(position_bwd)                                                                                                    \
    X(layernorm_fwd)                                                                                                   \
    X(layernorm_bwd)                                                                                                   \
    X(rmsnorm_fwd)                                                                                                     \
    X(rmsnorm_bwd)                                                                                                     \
    X(rope_table)                                                                                                      \
    X(rope)                                                                                                            \
    X(attention_fwd)                                                                                                   \
    X(attention_bwd)                                                                                                   \
    X(gelu_fwd)                                                                                                        \
    X(gelu_bwd)                                                                                                        \
    X(swiglu_fwd)                                                                                                      \
    X(swiglu_bwd)                                                                                                      \
    X(bias_dropout_add_fwd)                                                                                            \
    X(bias_dropout_add_bwd)                                                                                            \
    X(bias_grad)                                                                                                       \
    X(cross_entropy_max)                                                                                               \
    X(cross_entropy_sum)                                                                                               \
    X(cross_entropy_loss)                                                                                              \
    X(cross_entropy_grad)                                                                                              \
    X(adamw)                                                                                                           \
    X(sgd)                                                                                                             \
    X(unscale)                                                                                                         \
    X(sum_squares)                                                                                                     \
    X(fixed_add)                                                                                                       \
    X(fixed_read)                                                                                                      \
    X(fixed_squares)                                                                                                   \
    X(hash)                                                                                                            \
    X(cast)                                                                                                            \
    X(add)                                                                                                             \
    X(zero)                                                                                                            \
    X(copy)

/* The table for `choice` and `dtype` on this processor: auto is `ref` for fp64, else `cpu`. What does not exist is a
 * PLAIT_UNSUPPORTED that names table and type (fp16 on ref, fp64 on cpu, avx512 on a processor without it). */
PLAIT_MUST_USE plait_status plait_kernels_find(plait_kernels_choice choice, plait_isa isa, plait_dtype dtype,
                                               const plait_kernels **out);

/* Table and backend of device.backend (auto: the host), device.kernels, device.isa and precision.dtype. What this build
 * or machine does not have is a PLAIT_UNSUPPORTED that says so. */
PLAIT_MUST_USE plait_status plait_device_find(const plait_config *cfg, const plait_kernels **kernels,
                                              const struct plait_backend **backend);
/* GPUs of this node that this build can use. */
int plait_device_count(void);
/* The libraries for GPUs that are linked, for people; "none". */
void plait_device_versions(char *text, size_t size);

/* The table that computes nothing: tells of each call (kernels/plan/plan.h). It is asked for what the tables of
 * `backend` are (auto: the host). One for each dtype of a model; never fails. */
const plait_kernels *plait_kernels_plan(plait_dtype dtype, plait_backend_choice backend);

PLAIT_END_DECLS
#endif
