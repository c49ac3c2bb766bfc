#include "launcher/usage.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TRAIN    "train CONFIG [key=value ...]"
#define CONFIG   "config CONFIG [key=value ...] [--ranks N] [--json]"
#define DIFF     "diff RUN_A RUN_B"
#define GENERATE "generate WEIGHTS CONFIG --prompt TEXT --bytes N [--temperature T] [--seed S] [key=value ...]"
#define KEYS     "  key=value        overrides a key of CONFIG, such as train.train_iters=10; the last one wins\n"
#define HELP     "  -h, --help       prints this\n"

const char plait_usage[] = "usage: plait COMMAND\n"
                           "  " TRAIN "        trains; under mpiexec on its ranks, else on one\n"
                           "  " CONFIG "\n"
                           "                                      prints every value, where it came from, and the "
                           "parameters\n"
                           "  " DIFF "                    compares metrics, weights or hashes of two runs\n"
                           "  " GENERATE "\n"
                           "                                      continues a text\n"
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

const char plait_usage_generate[] =
    "usage: plait " GENERATE "\n"
    "Continues a text with the model of CONFIG; without mpiexec on one rank, whatever grid CONFIG asks for.\n"
    "  --prompt TEXT    what to continue\n"
    "  --bytes N        at most so many bytes\n"
    "  --temperature T  0: always the likeliest byte; default 0.8\n"
    "  --seed S         of what is drawn; default 1\n" KEYS HELP;

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
