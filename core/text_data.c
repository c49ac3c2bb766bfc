#include "core/text_data.h"

#include "core/file.h"
#include "core/rng.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>
#include <xxhash.h>

struct plait_text_data {
    uint8_t *bytes;
    int64_t num_bytes;               /* the token after the last byte is the end mark */
    int64_t begin[PLAIT_SPLITS + 1]; /* first token of each part; the last is the number of tokens */
    int64_t seq, first_sample;
    uint64_t seed;
    uint32_t *order; /* permutation of the training samples in `epoch` */
    int64_t epoch;   /* -1: order is not filled yet */
};

const char *plait_split_name(plait_split split)
{
    static const char *const names[PLAIT_SPLITS] = {"training", "validation", "test"};
    return names[split];
}

/* begin[p] = round(n (w_0 + ... + w_{p-1}) / (w_0 + ... + w_2)): contiguous parts that cover everything. */
static plait_status cut(plait_text_data *d, const plait_text_options *o)
{
    double sum = 0, before = 0;
    for (int p = 0; p < PLAIT_SPLITS; p++) {
        if (!isfinite(o->split[p]) || o->split[p] < 0)
            PLAIT_FAIL(USAGE, "data.split: the weight of the %s part is %g, it must be a number that is not negative",
                       plait_split_name((plait_split)p), o->split[p]);
        sum += o->split[p];
    }
    if (!(sum > 0) || !isfinite(sum))
        PLAIT_FAIL(USAGE, "data.split: the weights %g, %g, %g have no usable sum", o->split[0], o->split[1],
                   o->split[2]);
    int64_t tokens = d->num_bytes + 1;
    for (int p = 0; p < PLAIT_SPLITS; p++) {
        d->begin[p] = llround((double)tokens * (before / sum));
        before += o->split[p];
    }
    d->begin[PLAIT_SPLITS] = tokens;
    /* A part of weight 0 at the end has no token, whatever the rounding of before / sum. */
    for (int p = PLAIT_SPLITS - 1; p > 0 && o->split[p] == 0; p--)
        d->begin[p] = tokens;
    return PLAIT_OK;
}

static plait_status check_vocabulary(const plait_text_data *d, const plait_text_options *o)
{
    if (o->vocab_size >= PLAIT_TEXT_MIN_VOCAB)
        return PLAIT_OK;
    for (int64_t i = 0; i < d->num_bytes; i++)
        if (d->bytes[i] >= o->vocab_size)
            PLAIT_FAIL(USAGE, "%s: token %d at position %lld is not below model.vocab_size %lld (bytes need 257)",
                       o->path, d->bytes[i], (long long)i, (long long)o->vocab_size);
    PLAIT_FAIL(USAGE, "%s: token %d at position %lld (the end mark) is not below model.vocab_size %lld", o->path,
               PLAIT_TEXT_END_MARK, (long long)d->num_bytes, (long long)o->vocab_size);
}

static plait_status read_text(plait_text_data *d, const plait_text_options *o)
{
    plait_status st = PLAIT_OK;
    int fd;
    PLAIT_TRY(plait_file_open(o->path, &fd, &d->num_bytes));
    if (d->num_bytes == 0)
        PLAIT_FAIL_TO(done, st, USAGE, "%s is empty: 0 bytes, there is nothing to train on", o->path);
    if (d->num_bytes < o->seq_length)
        PLAIT_FAIL_TO(done, st, USAGE,
                      "%s is too short: %lld (%lld with the end mark) tokens < %lld that one sample of "
                      "model.seq_length %lld needs",
                      o->path, (long long)d->num_bytes, (long long)d->num_bytes + 1, (long long)o->seq_length + 1,
                      (long long)o->seq_length);
    d->bytes = malloc((size_t)d->num_bytes);
    if (d->bytes == NULL)
        PLAIT_FAIL_TO(done, st, OUT_OF_MEMORY, "%s: no memory for its %lld bytes", o->path, (long long)d->num_bytes);
    PLAIT_TRY_TO(done, st, plait_file_read(fd, o->path, 0, d->bytes, (size_t)d->num_bytes));
done:
    close(fd);
    return st;
}

static plait_status open_into(plait_text_data *d, const plait_text_options *o)
{
    if (o->seq_length < 1)
        PLAIT_FAIL(USAGE, "model.seq_length %lld is below 1", (long long)o->seq_length);
    if (o->first_sample < 0)
        PLAIT_FAIL(USAGE, "data.first_sample %lld is negative", (long long)o->first_sample);
    d->seq = o->seq_length;
    d->first_sample = o->first_sample;
    d->seed = o->seed;
    d->epoch = -1;
    PLAIT_TRY(read_text(d, o));
    PLAIT_TRY(check_vocabulary(d, o));
    PLAIT_TRY(cut(d, o));
    int64_t samples = plait_text_data_samples(d, PLAIT_SPLIT_TRAIN);
    if (samples > (int64_t)UINT32_MAX)
        PLAIT_FAIL(UNSUPPORTED, "%s: %lld training samples, at most %lld are supported; use a longer model.seq_length",
                   o->path, (long long)samples, (long long)UINT32_MAX);
    if (samples > 0) {
        d->order = malloc((size_t)samples * sizeof *d->order);
        if (d->order == NULL)
            PLAIT_FAIL(OUT_OF_MEMORY, "%s: no memory for the order of %lld samples", o->path, (long long)samples);
    }
    return PLAIT_OK;
}

plait_status plait_text_data_open(const plait_text_options *options, plait_text_data **out)
{
    plait_text_data *d = calloc(1, sizeof *d);
    if (d == NULL)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory to open %s", options->path);
    plait_status st = open_into(d, options);
    if (st != PLAIT_OK) {
        plait_text_data_close(d);
        return st;
    }
    *out = d;
    return PLAIT_OK;
}

void plait_text_data_close(plait_text_data *d)
{
    if (d == NULL)
        return;
    free(d->order);
    free(d->bytes);
    free(d);
}

int64_t plait_text_data_tokens(const plait_text_data *d, plait_split split)
{
    return d->begin[split + 1] - d->begin[split];
}

int64_t plait_text_data_samples(const plait_text_data *d, plait_split split)
{
    int64_t tokens = plait_text_data_tokens(d, split);
    return tokens == 0 ? 0 : (tokens - 1) / d->seq;
}

int64_t plait_text_data_eval_samples(const plait_text_data *d, plait_split split)
{
    int64_t samples = plait_text_data_samples(d, split), limit = PLAIT_TEXT_EVAL_TOKENS / d->seq;
    if (limit < 1)
        limit = 1;
    return samples < limit ? samples : limit;
}

plait_status plait_text_data_require(const plait_text_data *d, plait_split split)
{
    if (plait_text_data_samples(d, split) == 0)
        PLAIT_FAIL(USAGE, "data.split gives the %s part %lld of the %lld tokens, one sample needs %lld",
                   plait_split_name(split), (long long)plait_text_data_tokens(d, split), (long long)d->num_bytes + 1,
                   (long long)d->seq + 1);
    return PLAIT_OK;
}

size_t plait_text_data_bytes(const plait_text_data *d)
{
    return (size_t)d->num_bytes + (size_t)plait_text_data_samples(d, PLAIT_SPLIT_TRAIN) * sizeof *d->order;
}

int64_t plait_text_data_length(const plait_text_data *d)
{
    return d->num_bytes;
}

uint64_t plait_text_data_hash(const plait_text_data *d)
{
    return XXH3_64bits(d->bytes, (size_t)d->num_bytes);
}

/* The words of a stream one after the other. */
typedef struct draws {
    plait_rng rng;
    uint64_t next;
    uint32_t words[4];
} draws;

static uint32_t draw(draws *r)
{
    if (r->next % 4 == 0)
        plait_rng_block(&r->rng, r->next / 4, r->words);
    return r->words[r->next++ % 4];
}

/* Uniform in [0, n), n >= 1, without bias: high half of word * n; low halves below 2^32 mod n are drawn again.
 * Lemire 2019, "Fast random integer generation in an interval", algorithm 5. */
static uint32_t draw_below(draws *r, uint32_t n)
{
    uint64_t product = (uint64_t)draw(r) * n;
    if ((uint32_t)product < n) {
        uint32_t threshold = (uint32_t)(-n) % n;
        while ((uint32_t)product < threshold)
            product = (uint64_t)draw(r) * n;
    }
    return (uint32_t)(product >> 32);
}

/* Fisher and Yates from the top: order[i] changes places with one of order[0..i]. */
static void shuffle(plait_text_data *d, int64_t epoch)
{
    uint32_t n = (uint32_t)plait_text_data_samples(d, PLAIT_SPLIT_TRAIN);
    draws r = {plait_rng_make(d->seed, PLAIT_RNG_DATA, 0, (uint32_t)((uint64_t)epoch >> 32), (uint32_t)epoch), 0, {0}};
    for (uint32_t i = 0; i < n; i++)
        d->order[i] = i;
    for (uint32_t i = n - 1; i > 0; i--) {
        uint32_t j = draw_below(&r, i + 1), held = d->order[i];
        d->order[i] = d->order[j];
        d->order[j] = held;
    }
    d->epoch = epoch;
}

int64_t plait_text_data_train_index(plait_text_data *d, int64_t n)
{
    int64_t samples = plait_text_data_samples(d, PLAIT_SPLIT_TRAIN), at = d->first_sample + n;
    assert(samples > 0 && at >= 0);
    if (d->epoch != at / samples)
        shuffle(d, at / samples);
    return d->order[at % samples];
}

static int32_t token(const plait_text_data *d, int64_t i)
{
    return i < d->num_bytes ? d->bytes[i] : PLAIT_TEXT_END_MARK;
}

/* Column b of a micro-batch from the s + 1 tokens at `at`. */
static void put_sample(const plait_text_data *d, int64_t at, int64_t b, int64_t batch, int32_t *tokens,
                       int32_t *targets)
{
    for (int64_t t = 0; t < d->seq; t++) {
        if (tokens != NULL)
            tokens[t * batch + b] = token(d, at + t);
        if (targets != NULL)
            targets[t * batch + b] = token(d, at + t + 1);
    }
}

void plait_text_data_fill_train(plait_text_data *d, int64_t n, int64_t batch, int32_t *tokens, int32_t *targets)
{
    for (int64_t b = 0; b < batch; b++)
        put_sample(d, d->begin[PLAIT_SPLIT_TRAIN] + plait_text_data_train_index(d, n + b) * d->seq, b, batch, tokens,
                   targets);
}

void plait_text_data_fill_eval(const plait_text_data *d, plait_split split, int64_t n, int64_t batch, int64_t end,
                               int32_t *tokens, int32_t *targets)
{
    assert(n >= 0 && end <= plait_text_data_samples(d, split));
    for (int64_t b = 0; b < batch; b++) {
        if (n + b < end) {
            put_sample(d, d->begin[split] + (n + b) * d->seq, b, batch, tokens, targets);
            continue;
        }
        for (int64_t t = 0; t < d->seq; t++) {
            if (tokens != NULL)
                tokens[t * batch + b] = 0;
            if (targets != NULL)
                targets[t * batch + b] = -1;
        }
    }
}
