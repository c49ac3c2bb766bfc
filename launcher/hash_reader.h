/* launcher/hash_reader.h: a file of debug.tensor_hashes (launcher/hash_file.h), a record at a time.
 *
 * The last line may be cut off, when a run was killed or the file copied while it was written: it is left out. Anything
 * else that launcher/hash_file.h does not write is PLAIT_IO with path and line.
 */
#ifndef PLAIT_LAUNCHER_HASH_READER_H
#define PLAIT_LAUNCHER_HASH_READER_H

#include "launcher/line_reader.h"
#include "parallel/tensor_hashes.h"

PLAIT_BEGIN_DECLS

typedef struct plait_hash_line {
    plait_hash_record record;    /* its tensor is the field below */
    char tensor[PLAIT_NAME_MAX]; /* "": none */
    char place[32];              /* of the rank: "d0 p1 t0" */
} plait_hash_line;

typedef struct plait_hash_reader {
    plait_line_reader lines;
    char *model;          /* "model.arch=llama model.num_layers=4 ..." */
    plait_hash_line line; /* the record that was read last */
    bool more;            /* there is one */
} plait_hash_reader;

/* Reads up to the first record, which a file must have. Closed with plait_hash_reader_close also after a failure. */
PLAIT_MUST_USE plait_status plait_hash_reader_open(plait_hash_reader *r, const char *path);
void plait_hash_reader_close(plait_hash_reader *r);
/* The next record in r->line, or more = false. */
PLAIT_MUST_USE plait_status plait_hash_reader_next(plait_hash_reader *r);

PLAIT_END_DECLS
#endif
