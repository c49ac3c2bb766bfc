#include "launcher/usage.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TRAIN  "train CONFIG [key=value ...]"
#define CONFIG "config CONFIG [key=value ...] [--ranks N] [--json]"
#define DIFF   "diff RUN_A RUN_B"
#define PLAN                                                                                                           \
    "plan CONFIG [key=value ...] [--ranks N] [--device-memory SIZE] [--machine FILE] [--estimator deepspeed] "         \
    "[--json] [--html FILE]"
#define COMPARE                                                                                                        \
    "compare CONFIG [key=value ...] [--ranks N] [--device-memory SIZE] [--machine FILE] [--measure] [--json FILE] "    \
    "[--html FILE]"
#define BENCH "bench --machine FILE [--dtypes fp32,bf16,fp16] [--quick]"
#define KERNELS                                                                                                        \
    "bench kernels [--backend auto|cpu|cuda] [--isa auto|avx2|avx512] [--dtypes LIST] [--against FILE] [--json FILE] " \
    "[--quick]"
#define GENERATE "generate WEIGHTS CONFIG --prompt TEXT --bytes N [--temperature T] [--seed S] [key=value ...]"
#define KEYS     "  key=value        overrides a key of CONFIG, such as train.train_iters=10; the last one wins\n"
#define HELP     "  -h, --help       prints this\n"

const char plait_usage[] =
    "usage: plait COMMAND\n"
    "  " TRAIN "        trains; under mpiexec on its ranks, else on one\n"
    "  " CONFIG "\n"
    "                                      prints every value, where it came from, and the "
    "parameters\n"
    "  " PLAN "\n"
    "                                      what each rank would hold, send and take, and whether it fits\n"
    "  " COMPARE "\n"
    "                                      the same model in every way to share it, side by side\n"
    "  " DIFF "                    compares metrics, weights or hashes of two runs\n"
    "  " GENERATE "\n"
    "                                      continues a text\n"
    "  " BENCH "\n"
    "  " KERNELS "\n"
    "                                      measures this machine, for plans of runs\n"
    "  version                             prints versions and what this build can do\n"
    "  help [COMMAND]                      prints this, or the options of a command\n";

const char plait_usage_train[] = "usage: plait " TRAIN "\n"
                                 "Trains what CONFIG describes; under mpiexec on its ranks, else on one.\n" KEYS HELP;

const char plait_usage_config[] =
    "usage: plait " CONFIG "\n"
    "       plait config --reference\n"
    "Prints every value, where it came from, and the parameters of each stage. Runs nothing.\n" KEYS
    "  --ranks N        for so many ranks; else as many as CONFIG asks for\n"
    "  --json           the values as one JSON object, without the parameters\n"
    "  --reference      the page of all keys\n" HELP;

const char plait_usage_diff[] =
    "usage: plait " DIFF "\n"
    "Compares two metrics files, two weight files or two files of tensor hashes to the last bit: prints the first\n"
    "difference with both values and their distance in units in the last place (ULPs), how much differs, and the\n"
    "largest difference. Ends with 0 when they are equal, with 8 when they differ.\n"
    "  metrics          of each step loss, grad_norm, lr, loss_scale, skipped and counted_tokens, of each evaluation\n"
    "                   loss; never times and rates, memory, communication or the fingerprint\n"
    "  weights          names, types, shapes and elements; not the metadata\n"
    "  tensor hashes    of each slice of each result its hash; not the rank that computed it\n" HELP;

const char plait_usage_plan[] =
    "usage: plait " PLAN "\n"
    "Prints what each rank of a run would hold, by category, and what a step would send, without running it; with a\n"
    "machine also how long a step would take. Where it does not fit, what would help is planned too, and the code is "
    "3.\n" KEYS "  --ranks N        for so many ranks; else as many as CONFIG asks for\n"
    "  --device-memory SIZE\n"
    "                   of each rank, such as 80GiB: overrides device.memory_limit in its turn\n"
    "  --machine FILE   how fast it is: from plait bench, or one of configs/machines\n"
    "  --estimator deepspeed\n"
    "                   what DeepSpeed's estimator says of the largest rank beside it (ZeRO-2 and 3)\n"
    "  --json           as one JSON object\n"
    "  --html FILE      also as a page with drawings: one file, which needs nothing else\n" HELP;

const char plait_usage_compare[] =
    "usage: plait " COMPARE "\n"
    "Plans the model of CONFIG, with its global batch, in every way that so many ranks allow: tensor, pipeline and "
    "data\n"
    "parallelism, ZeRO stages, and products of them; prints memory, communication and time of each, and what is\n"
    "smallest, what is fastest and why. Those that are not possible are listed with the reason. Ends with 3 where\n"
    "device.memory_limit is given and none fits.\n" KEYS
    "  --ranks N        for so many ranks; else as many as CONFIG asks for\n"
    "  --device-memory SIZE\n"
    "                   of each rank, such as 80GiB: overrides device.memory_limit in its turn\n"
    "  --machine FILE   predicts times: from plait bench, or one of configs/machines\n"
    "  --measure        runs each for a few steps under mpiexec on this machine\n"
    "  --steps N        so many (7); times are the median of all but the first two\n"
    "  --limit S        seconds for each run (600); what takes longer is ended and said\n"
    "  --mpiexec CMD    what starts them, with arguments (\"mpiexec -bind-to core\"; mpiexec)\n"
    "  --json FILE      writes all of it as one JSON object\n"
    "  --html FILE      writes it as a page with drawings: one file, which needs nothing else\n" HELP;

const char plait_usage_generate[] =
    "usage: plait " GENERATE "\n"
    "Continues a text with the model of CONFIG; without mpiexec on one rank, whatever grid CONFIG asks for.\n"
    "  --prompt TEXT    what to continue\n"
    "  --bytes N        at most so many bytes\n"
    "  --temperature T  0: always the likeliest byte; default 0.8\n"
    "  --seed S         of what is drawn; default 1\n" KEYS HELP;

const char plait_usage_bench[] =
    "usage: plait " BENCH "\n"
    "       plait " KERNELS "\n"
    "Measures how fast this machine computes, with all of its cores in one rank; under mpiexec with its ranks at the\n"
    "same time, and how fast these talk to each other. Some minutes a type. With `kernels` each operation once, at "
    "the\n"
    "sizes of a real model, on the host or on the first GPU, as a table; the rates of what memory bounds also as a "
    "part\n"
    "of that of a copy.\n"
    "  --machine FILE   where to: what it has from runs with other ranks or types stays\n"
    "  --backend WHERE  auto: a GPU if there is one\n"
    "  --isa ISA        vector instructions of the host; auto: the widest there are\n"
    "  --against FILE   a machine file (configs/machines/): what each rate is of what that says\n"
    "  --json FILE      the table for programs\n"
    "  --dtypes LIST    types to compute in; default fp32,bf16,fp16\n"
    "  --quick          few points and little time: to try it, not to plan with\n" HELP;

const char plait_usage_version[] = "usage: plait version\n"
                                   "Prints versions and what this build can do.\n" HELP;

plait_status plait_option_whole(const char *option, const char *text, int64_t low, int64_t high, int64_t *out)
{
    errno = 0;
    *out = text && *text && text[strspn(text, "0123456789")] == '\0' ? strtoll(text, NULL, 10) : -1;
    if (*out < low || *out > high || errno != 0)
        PLAIT_FAIL(USAGE, "%s takes a whole number from %lld to %lld, not %s%s%s", option, (long long)low,
                   (long long)high, text ? "'" : "nothing", text ? text : "", text ? "'" : "");
    return PLAIT_OK;
}

plait_status plait_option_number(const char *option, const char *text, double low, double high, double *out)
{
    char *end = NULL;
    errno = 0;
    /* Only decimal digits: strtod would also take nan, inf and 0x1p3. */
    *out = text && *text && text[strspn(text, "+-.0123456789eE")] == '\0' ? strtod(text, &end) : -1;
    if (!end || *end || errno != 0 || !(*out >= low && *out <= high))
        PLAIT_FAIL(USAGE, "%s takes a number from %g to %g, not %s%s%s", option, low, high, text ? "'" : "nothing",
                   text ? text : "", text ? "'" : "");
    return PLAIT_OK;
}
