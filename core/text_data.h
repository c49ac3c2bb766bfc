/* core/text_data.h: a text file as training data.
 *
 * The tokenizer is bytes: token = byte, and 256 ends the document. The file is one document, so its n bytes are n + 1
 * tokens. They are cut into training, validation and test parts, and each part into samples of seq_length inputs and
 * as many next tokens: sample i reads tokens [i s, i s + s] of its part, its last target is the first input of sample
 * i + 1. A part of n tokens has floor((n - 1) / s) samples.
 *
 * What is read when is a pure function of the seed and of the number of the sample in the run: epoch e visits the
 * training samples in the order of a permutation drawn from (seed, e). No topology enters.
 *
 * The bytes are read into host memory once, at open. One object belongs to one thread.
 */
#ifndef PLAIT_CORE_TEXT_DATA_H
#define PLAIT_CORE_TEXT_DATA_H

#include "core/status.h"

#include <stddef.h>
#include <stdint.h>

PLAIT_BEGIN_DECLS

#define PLAIT_TEXT_END_MARK    256
#define PLAIT_TEXT_MIN_VOCAB   257
#define PLAIT_TEXT_EVAL_TOKENS 16384

typedef enum plait_split { PLAIT_SPLIT_TRAIN, PLAIT_SPLIT_VALIDATION, PLAIT_SPLIT_TEST, PLAIT_SPLITS } plait_split;

/* "training", "validation", "test" */
const char *plait_split_name(plait_split split);

typedef struct plait_text_options {
    const char *path;
    double split[PLAIT_SPLITS]; /* weights, not negative, sum > 0; only their ratios count */
    int64_t seq_length;         /* s >= 1 */
    int64_t vocab_size;         /* of the model: a token at or above it is refused */
    uint64_t seed;
    int64_t first_sample; /* sample n of the run is number first_sample + n of the endless sequence of epochs */
} plait_text_options;

typedef struct plait_text_data plait_text_data;

/* Reads the whole file. PLAIT_IO: path and reason. PLAIT_USAGE: empty, shorter than one sample, a token that the model
 * does not have (with its position), impossible weights. A part without samples is no error until it is required. */
PLAIT_MUST_USE plait_status plait_text_data_open(const plait_text_options *options, plait_text_data **out);
/* Closing NULL is fine. */
void plait_text_data_close(plait_text_data *d);

/* Fails with part and numbers when the part has no sample. */
PLAIT_MUST_USE plait_status plait_text_data_require(const plait_text_data *d, plait_split split);
int64_t plait_text_data_tokens(const plait_text_data *d, plait_split split);
int64_t plait_text_data_samples(const plait_text_data *d, plait_split split);
/* Samples of one evaluation: those that the first 16,384 tokens of the part give, at least 1 if there is one. */
int64_t plait_text_data_eval_samples(const plait_text_data *d, plait_split split);
/* Host memory held: the text and the permutation. */
size_t plait_text_data_bytes(const plait_text_data *d);
/* Length and 64-bit hash of the text: ranks compare them to find out that they read different files. */
int64_t plait_text_data_length(const plait_text_data *d);
uint64_t plait_text_data_hash(const plait_text_data *d);

/* Which sample of the training part is number n of the run (n >= 0; the part has a sample). */
int64_t plait_text_data_train_index(plait_text_data *d, int64_t n);
/* Samples n to n + batch - 1 of the run, sequence first: tokens[t * batch + b], targets[t * batch + b], t < s.
 * Either may be NULL. The training part has a sample. */
void plait_text_data_fill_train(plait_text_data *d, int64_t n, int64_t batch, int32_t *tokens, int32_t *targets);
/* Samples n to n + batch - 1 of a part in their natural order. Rows at or past `end` are padding: token 0, target -1.
 * end <= samples of the part. */
void plait_text_data_fill_eval(const plait_text_data *d, plait_split split, int64_t n, int64_t batch, int64_t end,
                               int32_t *tokens, int32_t *targets);

PLAIT_END_DECLS
#endif
