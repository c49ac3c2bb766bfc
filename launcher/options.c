#include "launcher/options.h"

#include <stdio.h>
#include <string.h>

#include "launcher/usage.h"

static const plait_option *find(const plait_option *options, int num, const char *name)
{
    for (int i = 0; i < num; i++)
        if (strcmp(options[i].name, name) == 0)
            return &options[i];
    return NULL;
}

/* Given twice both have the word of the second, which wins anyway. */
static plait_status set_key(const char *name, const char *value, plait_option_key *out)
{
    const int length = snprintf(out->word, sizeof out->word, "%s=%s", out->key, value);
    if (length < 0 || (size_t)length >= sizeof out->word)
        PLAIT_FAIL(USAGE, "%s: a value of %zu characters is none", name, strlen(value));
    return PLAIT_OK;
}

static plait_status set(const plait_option *o, const char *value)
{
    if (o->kind == PLAIT_OPTION_WHOLE)
        return plait_option_whole(o->name, value, (int64_t)o->low, (int64_t)o->high, o->out);
    if (o->kind == PLAIT_OPTION_NUMBER)
        return plait_option_number(o->name, value, o->low, o->high, o->out);
    if (!value || !*value)
        PLAIT_FAIL(USAGE, "%s: a value is missing", o->name);
    if (o->kind == PLAIT_OPTION_KEY)
        return set_key(o->name, value, o->out);
    memcpy(o->out, &value, sizeof value);
    return PLAIT_OK;
}

plait_status plait_options_parse(const plait_option *options, int num_options, const char *usage, int argc, char **argv,
                                 const char **words, int *num_words)
{
    *num_words = 0;
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] != '-') {
            words[(*num_words)++] = argv[i];
            continue;
        }
        const plait_option *o = find(options, num_options, argv[i]);
        if (!o)
            PLAIT_FAIL(USAGE, "plait %s: unknown option %s\n%s", argv[0], argv[i], usage);
        if (o->kind == PLAIT_OPTION_FLAG) {
            *(bool *)o->out = true;
            continue;
        }
        i++;
        PLAIT_TRY(set(o, i < argc ? argv[i] : NULL));
        if (o->kind == PLAIT_OPTION_KEY)
            words[(*num_words)++] = ((plait_option_key *)o->out)->word;
    }
    return PLAIT_OK;
}

plait_status plait_options_file_first(const char **words, int num_words, const char *made, const char *usage)
{
    int i = 0;
    while (i < num_words && words[i] == made)
        i++;
    if (i == num_words)
        PLAIT_FAIL(USAGE, "%s", usage);
    const char *file = words[i];
    memmove(words + 1, words, (size_t)i * sizeof *words);
    words[0] = file;
    return PLAIT_OK;
}

void plait_options_join(const char *const *words, int num_words, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < num_words && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? " " : "", words[i]);
}
