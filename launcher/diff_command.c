/* plait diff: are two runs the same, and if not, where do they part? */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "core/file.h"
#include "launcher/commands.h"
#include "launcher/diff.h"
#include "launcher/output.h"
#include "launcher/usage.h"

static plait_status parse(int argc, char **argv, const char *path[2])
{
    for (int i = 1; i < argc; i++)
        if (argv[i][0] == '-')
            PLAIT_FAIL(USAGE, "plait diff: unknown option %s\n%s", argv[i], plait_usage_diff);
    if (argc != 3)
        PLAIT_FAIL(USAGE, "plait diff takes two files, not %d\n%s", argc - 1, plait_usage_diff);
    path[0] = argv[1];
    path[1] = argv[2];
    return PLAIT_OK;
}

static const struct {
    const char *name;
    plait_status (*compare)(const char *const path[2], FILE *out, bool *differ);
} kinds[] = {
    {"a weight file", plait_diff_weights},
    {"a metrics file", plait_diff_metrics},
    {"a file of tensor hashes", plait_diff_hashes},
};
enum { WEIGHTS, METRICS, HASHES };

/* Weights begin with the length of their header, which is far below 2^32, so the upper half is zero; metrics are text
 * that begins with an object, hashes with a comment. */
static plait_status kind_of(const char *path, int *kind)
{
    unsigned char begin[8] = {0};
    int fd;
    int64_t size;
    PLAIT_TRY(plait_file_open(path, &fd, &size));
    const size_t n = size < (int64_t)sizeof begin ? (size_t)size : sizeof begin;
    plait_status st = plait_file_read(fd, path, 0, begin, n);
    close(fd);
    PLAIT_TRY(st);
    if (n == 0)
        PLAIT_FAIL(IO, "%s is empty", path);
    if (n == sizeof begin && memcmp(begin + 4, "\0\0\0", 4) == 0)
        *kind = WEIGHTS;
    else if (begin[0] == '{')
        *kind = METRICS;
    else if (begin[0] == '#')
        *kind = HASHES;
    else
        PLAIT_FAIL(IO, "%s is neither a metrics file nor a weight file nor one of tensor hashes", path);
    return PLAIT_OK;
}

static plait_status compare(const char *const path[2])
{
    int kind[2];
    bool differ = false;
    PLAIT_TRY(kind_of(path[0], &kind[0]));
    PLAIT_TRY(kind_of(path[1], &kind[1]));
    if (kind[0] != kind[1])
        PLAIT_FAIL(USAGE, "%s is %s, %s is %s: only files of one kind can be compared", path[0], kinds[kind[0]].name,
                   path[1], kinds[kind[1]].name);
    PLAIT_TRY(kinds[kind[0]].compare(path, stdout, &differ));
    PLAIT_TRY(plait_output_flush()); /* an answer that could not be given is worse than a difference */
    if (differ)
        PLAIT_FAIL(DIFFERENT, "%s and %s", path[0], path[1]);
    return PLAIT_OK;
}

plait_status plait_command_diff(plait_world *world, int argc, char **argv)
{
    const char *path[2];
    plait_status st = parse(argc, argv, path);
    /* Ranks without work wait for both files to be read, which takes as long as the disk does. */
    plait_comm_set_timeout(INFINITY);
    if (st == PLAIT_OK && world->rank == 0)
        st = compare(path);
    return plait_comm_agree(world->comm, st);
}
