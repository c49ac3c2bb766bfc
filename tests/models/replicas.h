/* tests/models/replicas.h: what several ranks hold, compared. */
#ifndef PLAIT_TESTS_MODELS_REPLICAS_H
#define PLAIT_TESTS_MODELS_REPLICAS_H

#include "launcher/training.h"

#include <vector>

// Every rank gives `bytes` bytes, every rank gets all of them in rank order. Collective over the world.
std::vector<char> gather_bytes(plait_world *world, const void *mine, size_t bytes);

// Parameters that several ranks hold (over tensor ranks, copies of key/value heads, tied twins, data ranks below stage
// 3) have the same bits everywhere; at stage 3 the masters of each rank's part. Returns how many parameters on how many
// ranks were compared with another rank's. Collective over the training's world.
int64_t check_replicas(const plait_training &t);

#endif
