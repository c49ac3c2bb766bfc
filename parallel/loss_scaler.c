#include "parallel/loss_scaler.h"

/* Stops growth where float, in which the gradients are unscaled, could not hold the scale or its inverse. */
#define MAX_SCALE 0x1p+120

plait_loss_scaler plait_loss_scaler_of(const plait_config *cfg)
{
    plait_loss_scaler s = {.scale = 1.0, .min_scale = 1.0};
    if (cfg->precision.dtype != PLAIT_FP16)
        return s;
    s.dynamic = cfg->precision.loss_scale == 0;
    s.scale = cfg->precision.loss_scale;
    if (s.dynamic) {
        s.scale = 1.0;
        for (int64_t i = 0; i < cfg->precision.initial_scale_power && s.scale < MAX_SCALE; i++)
            s.scale *= 2.0;
    }
    s.min_scale = cfg->precision.min_loss_scale;
    s.window = cfg->precision.loss_scale_window;
    s.hysteresis = s.tolerance = cfg->precision.hysteresis;
    return s;
}

static plait_status count_helpless(plait_loss_scaler *s)
{
    if (++s->helpless < PLAIT_LOSS_SCALE_MAX_OVERFLOWS)
        return PLAIT_OK;
    if (s->dynamic)
        PLAIT_FAIL(NUMERIC,
                   "the gradients of %lld steps in a row were not finite although the loss scale is at its minimum %g: "
                   "the model itself diverged, a smaller scale can not help",
                   (long long)s->helpless, s->min_scale);
    PLAIT_FAIL(NUMERIC, "the gradients of %lld steps in a row were not finite at the fixed loss scale %g",
               (long long)s->helpless, s->scale);
}

plait_status plait_loss_scaler_update(plait_loss_scaler *s, bool found_inf)
{
    if (!found_inf) {
        s->helpless = 0;
        if (s->dynamic && ++s->good_steps == s->window) {
            s->good_steps = 0;
            s->tolerance = s->hysteresis;
            s->scale = s->scale < MAX_SCALE ? s->scale * 2.0 : s->scale;
        }
        return PLAIT_OK;
    }
    s->skipped++;
    if (!s->dynamic || s->scale <= s->min_scale)
        PLAIT_TRY(count_helpless(s));
    if (!s->dynamic)
        return PLAIT_OK;
    s->good_steps = 0;
    if (--s->tolerance <= 0)
        s->scale = s->scale * 0.5 > s->min_scale ? s->scale * 0.5 : s->min_scale;
    return PLAIT_OK;
}
