/* kernels/ref/ref_impl.h: what the reference kernels share.
 *
 * The build compiles each of their files once with PLAIT_REF_REAL=float and once with double. `real` is then both the
 * storage type T and the accumulation type A, and REF(op) is plait_ref_op_float or plait_ref_op_double.
 */
#ifndef PLAIT_KERNELS_REF_REF_IMPL_H
#define PLAIT_KERNELS_REF_REF_IMPL_H

#include "kernels/kernels.h"

#include <math.h>

PLAIT_BEGIN_DECLS

#ifndef PLAIT_REF_REAL
#define PLAIT_REF_REAL double
#endif

typedef PLAIT_REF_REAL real;

#define REF_PASTE(op, type)  plait_ref_##op##_##type
#define REF_EXPAND(op, type) REF_PASTE(op, type)
#define REF(op)              REF_EXPAND(op, PLAIT_REF_REAL)

/* Each operation has the type of its slot in the table. */
#define REF_DECLARE(op) __typeof__(*((plait_kernels *)0)->op) REF(op);
PLAIT_KERNELS_OPS(REF_DECLARE)
#undef REF_DECLARE

extern const plait_kernels REF(table);

/* Columns whose sums are formed side by side in double: a block of accumulators on the stack. */
#define REF_BLOCK 64

static inline int64_t ref_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Whether `drop` drops anything at all. */
static inline bool ref_drops(const plait_dropout *drop)
{
    return drop && drop->p > 0.0;
}

/* What dropout multiplies element `element` of sample sample0 + `sample` with: 0 or 1 / (1 - p). */
static inline double ref_dropout_factor(const plait_dropout *drop, int64_t sample, int64_t element)
{
    plait_rng rng = plait_rng_make(drop->seed, drop->use, drop->layer, drop->step, drop->sample0 + (uint32_t)sample);
    return plait_rng_word(&rng, (uint64_t)element) < plait_dropout_threshold(drop->p) ? 0.0 : 1.0 / (1.0 - drop->p);
}

PLAIT_END_DECLS
#endif
