/* parallel/weights.h: all logical tensors of a model in one safetensors file, from and to any topology.
 *
 * Names and orientation are Hugging Face's, values the fp32 masters (F64 in fp64), a tied tensor is written once,
 * padding never.
 */
#ifndef PLAIT_PARALLEL_WEIGHTS_H
#define PLAIT_PARALLEL_WEIGHTS_H

#include "parallel/engine.h"

PLAIT_BEGIN_DECLS

/* Rank 0 writes: `path` is the old file or the whole new one. Collective; every rank returns the same status. */
PLAIT_MUST_USE plait_status plait_weights_save(plait_engine *e, const char *path);

/* 64 bits that stand for all weights as plait_weights_save would write them, the same for every topology that has the
 * same bits: the sum over all elements of XXH3_64bits_withSeed of (index in the tensor, bits), two numbers of 8 bytes,
 * the seed being XXH3_64bits of the tensor's name. A sum, so that each rank adds what it holds and nothing has to be
 * brought into the order of a file. Collective; every rank gets it. */
PLAIT_MUST_USE plait_status plait_weights_hash(plait_engine *e, uint64_t *out);

/* Every rank reads what it holds. F32, F64, BF16 and F16 files; GPT-2 names with or without "transformer.". Refused
 * with names and shapes: a tensor that is missing, of another shape or not of this model, and a head in the file of a
 * tied model that differs from its token matrix; a file with other weights than rank 0's. Collective; every rank
 * returns the same status. */
PLAIT_MUST_USE plait_status plait_weights_load(plait_engine *e, const char *path);

PLAIT_END_DECLS
#endif
