#include "launcher/fingerprint.h"

#include <inttypes.h>
#include <xxhash.h>

plait_status plait_fingerprint_open(plait_fingerprint *f)
{
    *f = (plait_fingerprint){.state = XXH3_createState()};
    if (!f->state)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory for the fingerprint");
    XXH3_64bits_reset(f->state);
    return PLAIT_OK;
}

void plait_fingerprint_close(plait_fingerprint *f)
{
    XXH3_freeState(f->state);
    f->state = NULL;
}

void plait_fingerprint_add_loss(plait_fingerprint *f, double loss)
{
    XXH3_64bits_update(f->state, &loss, sizeof loss);
    f->steps++;
}

void plait_fingerprint_add_weights(plait_fingerprint *f, uint64_t hash)
{
    XXH3_64bits_update(f->state, &hash, sizeof hash);
    f->weights = true;
}

void plait_fingerprint_text(const plait_fingerprint *f, char text[17])
{
    snprintf(text, 17, "%016" PRIx64, (uint64_t)XXH3_64bits_digest(f->state));
}

void plait_fingerprint_print(const plait_fingerprint *f, FILE *out)
{
    char text[17];
    plait_fingerprint_text(f, text);
    fprintf(out, "fingerprint: %s (losses of %lld step%s%s)\n", text, (long long)f->steps, f->steps == 1 ? "" : "s",
            f->weights ? ", weights" : "");
}
