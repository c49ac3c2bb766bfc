/* tests/models/traffic.h: the calls and bytes of one training step by group and operation, from closed forms.
 *
 * S = seq x micro-batch (rows), C hidden, M micro-batches of a data rank, T and A bytes of a parameter and of a
 * gradient element, X = S C T bytes of an activation. Bytes are those of the buffer at the call.
 *
 * Data group, for a rank with units of n elements each, whose gradient a micro-batch completes u times and whose
 * parameters it acquires a times (u = 1, a = 2: once forward, once backward; see units() for the exceptions):
 *
 *   stage 0            all-reduce      sum n A
 *   gather_to_root     reduce          sum n A,  broadcast sum n T
 *   stage 1            reduce-scatter  sum n A,  all-gather sum n T
 *   stage 2            reduce-scatter  M sum u n A,  all-gather sum n T
 *   stage 3            reduce-scatter  M sum u n A,  all-gather M sum a n T
 *   always             all-reduce      8 (counted tokens)
 *
 * Tensor group, a micro-batch:
 *
 *   layer          all-reduce 4 X: 2 forward, 2 backward
 *     replayed     1 X more, or 2 X when the layer after it is replayed from its output
 *   embedding      all-reduce X
 *   head           all-reduce of d x: S C (T, or A when the head has several blocks)
 *   cross-entropy  all-reduce 3 S A: maximum, sum and target's logit of each row
 *
 * with sequence parallelism:
 *
 *   layer          all-gather 6 X (2 forward, 4 backward: the gathered input is not kept), reduce-scatter 4 X
 *     replayed     all-gather 2 X, reduce-scatter 1 X or 2 X
 *   embedding      reduce-scatter X forward, all-gather X backward
 *   head           reduce-scatter of d x, all-gather 2 X
 *
 * and a step, with sequence parallelism: all-reduce of the gradients of norms, row-parallel biases and positions.
 * Key/value group: the gradients of k and v where several ranks have the same head. Pipeline: X (/ tp with sequence
 * parallelism) a border, direction and micro-batch. Embedding group: the gradient of a tied token matrix. World: three
 * doubles. The gradients summed at the end of a step are shards from ZeRO stage 1 on: they add up over the data ranks.
 *
 * Calls: each X above is one; in the data group each unit; in cross-entropy two (the maximum; sum and logit); at the
 * end of a step each run of neighbours in a unit.
 */
#ifndef PLAIT_TESTS_TRAFFIC_H
#define PLAIT_TESTS_TRAFFIC_H

#include "launcher/training.h"

struct Flow {
    int64_t calls = 0, bytes = 0;
    void add(int64_t c, int64_t b)
    {
        calls += c;
        bytes += b;
    }
    void add(const Flow &f) { add(f.calls, f.bytes); }
};

struct ExpectedTraffic {
    Flow each[PLAIT_GROUPS][PLAIT_COMM_KINDS]; // of this rank
    Flow together[PLAIT_GROUPS]
                 [PLAIT_COMM_KINDS]; // more, in all of its data ranks together; calls: if no shard cuts it
};

ExpectedTraffic expected_traffic(const plait_config &cfg, const plait_topology &topo);

// The last step's traffic of every rank is as expected; collective over the training's world.
void check_traffic(plait_training &t);

#endif
