/* launcher/options.h: the arguments of a command: options of a table, and words.
 */
#ifndef PLAIT_LAUNCHER_OPTIONS_H
#define PLAIT_LAUNCHER_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/status.h"

PLAIT_BEGIN_DECLS

typedef enum plait_option_kind {
    PLAIT_OPTION_FLAG,   /* bool: set to true */
    PLAIT_OPTION_TEXT,   /* const char *, borrowed; not empty */
    PLAIT_OPTION_WHOLE,  /* int64_t in [low, high] */
    PLAIT_OPTION_NUMBER, /* double in [low, high] */
    PLAIT_OPTION_KEY     /* plait_option_key: an override under another name */
} plait_option_kind;

typedef struct plait_option {
    const char *name; /* "--ranks" */
    plait_option_kind kind;
    void *out; /* as it was where the option is not given */
    double low, high;
} plait_option;

/* --device-memory 8GiB for device.memory_limit=8GiB, in its place among the words: the last of them wins. */
typedef struct plait_option_key {
    const char *key;
    char word[128]; /* as given last */
} plait_option_key;

/* What is no option, or a PLAIT_OPTION_KEY's word, goes into words[argc], in order. argv[0] is the command's name.
 * PLAIT_USAGE: an unknown option (with `usage`), or a value that is missing or none. */
PLAIT_MUST_USE plait_status plait_options_parse(const plait_option *options, int num_options, const char *usage,
                                                int argc, char **argv, const char **words, int *num_words);
/* Puts the configuration's file first among the words, which is the first that no option has made (`made`, of a
 * PLAIT_OPTION_KEY). PLAIT_USAGE, with `usage`: there is none. */
PLAIT_MUST_USE plait_status plait_options_file_first(const char **words, int num_words, const char *made,
                                                     const char *usage);
/* The words with blanks between them, cut at `size`. */
void plait_options_join(const char *const *words, int num_words, char *text, size_t size);

PLAIT_END_DECLS
#endif
