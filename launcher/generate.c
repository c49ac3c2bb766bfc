/* plait generate: continues a text, a byte at a time, with a window over the last seq_length tokens. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/rng.h"
#include "core/text_data.h"
#include "launcher/commands.h"
#include "launcher/run_config.h"
#include "launcher/usage.h"
#include "models/registry.h"
#include "parallel/weights.h"

typedef struct options {
    const char *weights, *config, *prompt;
    int64_t bytes, seed;
    double temperature;
    const char **overrides;
    int num_overrides;
} options;

/* Without mpiexec a text is continued on one rank, on whatever grid the model was trained. The user's overrides come
 * after these and win. */
static const char *const one_rank[] = {
    "parallelism.tensor_model_parallel_size=1", "parallelism.pipeline_model_parallel_size=1",
    "parallelism.data_parallel_size=1",         "parallelism.virtual_pipeline_model_parallel_size=null",
    "parallelism.pipeline_layout=null",         "parallelism.pipeline_schedule=null",
    "batch.gradient_accumulation_steps=null",
};
enum { ONE_RANK = sizeof one_rank / sizeof *one_rank };

static plait_status parse(int argc, char **argv, bool alone, options *o)
{
    *o = (options){
        .bytes = -1, .seed = 1, .temperature = 0.8, .overrides = calloc((size_t)argc + ONE_RANK, sizeof *o->overrides)};
    if (!o->overrides)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory for %d arguments", argc);
    for (int i = 0; alone && i < ONE_RANK; i++)
        o->overrides[o->num_overrides++] = one_rank[i];
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(argv[i], "--prompt") == 0) {
            o->prompt = value;
            i++;
        } else if (strcmp(argv[i], "--bytes") == 0) {
            PLAIT_TRY(plait_option_whole("--bytes", value, 0, 1000000000, &o->bytes));
            i++;
        } else if (strcmp(argv[i], "--temperature") == 0) {
            PLAIT_TRY(plait_option_number("--temperature", value, 0, 100, &o->temperature));
            i++;
        } else if (strcmp(argv[i], "--seed") == 0) {
            PLAIT_TRY(plait_option_whole("--seed", value, 0, INT64_MAX, &o->seed));
            i++;
        } else if (argv[i][0] == '-') {
            PLAIT_FAIL(USAGE, "plait generate: unknown option %s\n%s", argv[i], plait_usage_generate);
        } else if (!o->weights) {
            o->weights = argv[i];
        } else if (!o->config) {
            o->config = argv[i];
        } else {
            o->overrides[o->num_overrides++] = argv[i];
        }
    }
    if (!o->config || !o->prompt || o->bytes < 0)
        PLAIT_FAIL(USAGE, "%s", plait_usage_generate);
    if (!*o->prompt)
        PLAIT_FAIL(USAGE, "--prompt is empty: there is nothing to continue");
    return PLAIT_OK;
}

/* Draws a token from softmax(logits / temperature) by the number of (seed, position); temperature 0 takes the largest.
 */
static int sample(const double *logits, int64_t vocab, double temperature, int64_t seed, int64_t position)
{
    int best = 0;
    for (int i = 1; i < vocab; i++)
        best = logits[i] > logits[best] ? i : best;
    if (temperature == 0)
        return best;
    double sum = 0;
    for (int64_t i = 0; i < vocab; i++)
        sum += exp((logits[i] - logits[best]) / temperature);
    plait_rng r = plait_rng_make((uint64_t)seed, PLAIT_RNG_SAMPLING, 0, 0, 0);
    double left = plait_rng_uniform(&r, (uint64_t)position) * sum;
    for (int i = 0; i < vocab; i++) {
        left -= exp((logits[i] - logits[best]) / temperature);
        if (left < 0)
            return i;
    }
    return best;
}

/* The last `seq` of n tokens into the engine's buffers (every sample of the micro-batch alike); returns the last one's
 * position. */
static int64_t fill_window(plait_engine *e, const plait_config *cfg, const int *tokens, int64_t n)
{
    int32_t *to, *targets;
    int64_t seq = cfg->model.seq_length, batch = cfg->batch.micro_batch_size, used = n < seq ? n : seq;
    plait_engine_tokens(e, 0, &to, &targets);
    for (int64_t r = 0; r < seq * batch; r++) {
        to[r] = r / batch < used ? tokens[n - used + r / batch] : 0;
        targets[r] = -1;
    }
    return used - 1;
}

static plait_status check_prompt(const int *tokens, int64_t n, int64_t vocab)
{
    for (int64_t i = 0; i < n; i++)
        if (tokens[i] >= vocab)
            PLAIT_FAIL(USAGE, "--prompt: byte %lld is %d, model.vocab_size is %lld", (long long)i, tokens[i],
                       (long long)vocab);
    return PLAIT_OK;
}

static plait_status check_logits(const double *logits, int64_t vocab, int64_t position)
{
    for (int64_t i = 0; i < vocab; i++)
        if (!isfinite(logits[i]))
            PLAIT_FAIL(NUMERIC, "the logit of token %lld at position %lld is %g", (long long)i, (long long)position,
                       logits[i]);
    return PLAIT_OK;
}

static plait_status continue_text(plait_engine *e, const plait_config *cfg, const options *o, bool prints)
{
    plait_status st = PLAIT_OK;
    plait_comm *world = plait_engine_groups(e)->world;
    int64_t n = (int64_t)strlen(o->prompt);
    int *tokens = calloc((size_t)(n + o->bytes) + 1, sizeof *tokens);
    double *logits = calloc((size_t)cfg->model.vocab_size, sizeof *logits);
    if (!tokens || !logits)
        PLAIT_FAIL_TO(done, st, OUT_OF_MEMORY, "no memory for %lld bytes of text", (long long)(n + o->bytes));
    for (int64_t i = 0; i < n; i++)
        tokens[i] = (unsigned char)o->prompt[i];
    PLAIT_TRY_TO(done, st, plait_comm_agree(world, check_prompt(tokens, n, cfg->model.vocab_size)));
    if (prints)
        fputs(o->prompt, stdout);
    for (int64_t i = 0; i < o->bytes; i++) {
        int64_t last = fill_window(e, cfg, tokens, n);
        PLAIT_TRY_TO(done, st, plait_engine_logits(e, last, logits));
        PLAIT_TRY_TO(done, st, plait_comm_agree(world, check_logits(logits, cfg->model.vocab_size, n)));
        tokens[n] = sample(logits, cfg->model.vocab_size, o->temperature, o->seed, n);
        if (tokens[n] >= PLAIT_TEXT_END_MARK) /* the document is over */
            break;
        if (prints && (putchar(tokens[n]) == EOF || fflush(stdout) != 0))
            PLAIT_FAIL_TO(done, st, IO, "standard output: %s", strerror(errno));
        n++;
    }
    if (prints)
        putchar('\n');
done:
    free(logits);
    free(tokens);
    return st;
}

/* Ranks with different prompts would mix two texts in one forward. */
static plait_status compare_options(plait_world *world, const options *o)
{
    char *text = NULL;
    size_t length = 0;
    FILE *f = open_memstream(&text, &length);
    if (f) {
        fprintf(f, "--bytes %lld\n--temperature %.17g\n--seed %lld\n--prompt %s\n", (long long)o->bytes, o->temperature,
                (long long)o->seed, o->prompt);
        fclose(f);
    }
    plait_status st = plait_run_compare(world, "options of generate", text);
    free(text);
    return st;
}

static plait_status generate(plait_world *world, const options *o)
{
    plait_status st = PLAIT_OK;
    plait_config cfg = {0};
    plait_engine *engine = NULL;
    PLAIT_TRY(compare_options(world, o));
    PLAIT_TRY_TO(done, st, plait_run_config(world, &cfg, o->config, o->overrides, o->num_overrides));
    plait_engine_options eo = {.cfg = &cfg, .model = plait_model_find(cfg.model.arch), .shape = {.logits = true}};
    PLAIT_TRY_TO(done, st, plait_engine_create(world, &eo, &engine));
    PLAIT_TRY_TO(done, st, plait_weights_load(engine, o->weights));
    PLAIT_TRY_TO(done, st, continue_text(engine, &cfg, o, world->rank == 0));
done:
    if (st == PLAIT_OK || plait_comm_agreed()) {
        plait_engine_destroy(engine);
        plait_config_deinit(&cfg);
    }
    return st;
}

plait_status plait_command_generate(plait_world *world, int argc, char **argv)
{
    options o;
    plait_status st = plait_comm_agree(world->comm, parse(argc, argv, world->size == 1, &o));
    if (st == PLAIT_OK)
        st = generate(world, &o);
    free(o.overrides);
    return st;
}
