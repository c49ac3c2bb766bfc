/* parallel/loss_scaler.h: the factor on the loss that keeps fp16 gradients from vanishing (Micikevicius et al. 2018,
 * section 3.2), with Megatron-LM's rules.
 *
 * Dynamic: an overflow takes one from the tolerance (hysteresis); once that is used up, each overflow halves the scale,
 * not below the minimum. `window` steps without an overflow double the scale and refill the tolerance; nothing else
 * refills it. The state is plain: every rank holds the same one, since each is told the same found_inf, which is agreed
 * over the world first.
 */
#ifndef PLAIT_PARALLEL_LOSS_SCALER_H
#define PLAIT_PARALLEL_LOSS_SCALER_H

#include "core/config.h"

PLAIT_BEGIN_DECLS

/* So many overflows in a row that the scale can do nothing about end the run. */
#define PLAIT_LOSS_SCALE_MAX_OVERFLOWS 20

typedef struct plait_loss_scaler {
    double scale; /* multiply the loss by it, divide the gradients by it */
    double min_scale;
    int64_t window, hysteresis;
    bool dynamic;
    int64_t good_steps; /* without an overflow since the last overflow or growth */
    int64_t tolerance;  /* overflows still forgiven; <= 0: each one halves */
    int64_t helpless;   /* overflows in a row at the minimum or at a fixed scale */
    int64_t skipped;    /* steps skipped since the start, for the log */
} plait_loss_scaler;

/* From `precision`: fp16 dynamic (loss_scale 0) or fixed; other types have a fixed scale of 1. */
plait_loss_scaler plait_loss_scaler_of(const plait_config *cfg);

/* After each step: found_inf says that a gradient was not finite and the step was skipped. PLAIT_NUMERIC after
 * PLAIT_LOSS_SCALE_MAX_OVERFLOWS overflows in a row that a smaller scale can not cure. */
PLAIT_MUST_USE plait_status plait_loss_scaler_update(plait_loss_scaler *s, bool found_inf);

PLAIT_END_DECLS
#endif
