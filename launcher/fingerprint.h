/* launcher/fingerprint.h: 64 bits that stand for the numbers of a run: two runs that compute the same bits have the
 * same.
 *
 * XXH3_64bits over the losses of all steps in order, 8 bytes each; then, when it is to stand for the weights too, over
 * the 8 bytes of plait_weights_hash.
 */
#ifndef PLAIT_LAUNCHER_FINGERPRINT_H
#define PLAIT_LAUNCHER_FINGERPRINT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "core/status.h"

PLAIT_BEGIN_DECLS

typedef struct plait_fingerprint {
    struct XXH3_state_s *state;
    int64_t steps;
    bool weights;
} plait_fingerprint;

/* Takes the memory. Closing a zeroed one is fine. */
PLAIT_MUST_USE plait_status plait_fingerprint_open(plait_fingerprint *f);
void plait_fingerprint_close(plait_fingerprint *f);

void plait_fingerprint_add_loss(plait_fingerprint *f, double loss);
/* Once, after the last loss. */
void plait_fingerprint_add_weights(plait_fingerprint *f, uint64_t hash);

/* 16 digits. */
void plait_fingerprint_text(const plait_fingerprint *f, char text[17]);
/* The line "fingerprint: 0123456789abcdef (losses of 10 steps)". */
void plait_fingerprint_print(const plait_fingerprint *f, FILE *out);

PLAIT_END_DECLS
#endif
