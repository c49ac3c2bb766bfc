/* launcher/hash_file.h: the file of debug.tensor_hashes: a line for each record of parallel/tensor_hashes.h, in its
 * order, with tabs between the columns.
 *
 *   # plait tensor hashes
 *   # model.arch=llama model.num_layers=4 ...
 *   # ranks=8 tensor=2 pipeline=2 data=2 order=tp-cp-ep-dp-pp
 *   step  micro_batch  layer      operation  direction  slice  hash              rank  place
 *   1     0            embedding  embedding  forward    0      b2d3...c4         0     d0 p0 t0
 *   1     0            3          qkv        backward   5      0123456789abcdef  6     d0 p1 t0
 *   1     0            head       loss       forward    -      ...
 *   1     -            model.layers.0.mlp.up_proj.weight  gradient  -  -  0123456789abcdef  -  -
 *   # end
 *
 * The columns up to `hash` are the same for every topology. A step is written when it is done.
 */
#ifndef PLAIT_LAUNCHER_HASH_FILE_H
#define PLAIT_LAUNCHER_HASH_FILE_H

#include "launcher/line_file.h"
#include "parallel/engine.h"

PLAIT_BEGIN_DECLS

#define PLAIT_HASH_FILE_FIRST   "# plait tensor hashes"
#define PLAIT_HASH_FILE_COLUMNS "step\tmicro_batch\tlayer\toperation\tdirection\tslice\thash\trank\tplace"
#define PLAIT_HASH_FILE_LAST    "# end"

typedef struct plait_hash_file {
    plait_line_file file;
} plait_hash_file;

/* Rank 0 opens the file, if debug.tensor_hashes asks for one; an unwritable one is refused here. Collective. */
PLAIT_MUST_USE plait_status plait_hash_file_open(plait_hash_file *f, plait_comm *world, const plait_config *cfg);
/* The records of the engine's last step. */
PLAIT_MUST_USE plait_status plait_hash_file_step(plait_hash_file *f, const plait_engine *e, int64_t step);
PLAIT_MUST_USE plait_status plait_hash_file_end(plait_hash_file *f);
void plait_hash_file_close(plait_hash_file *f);

PLAIT_END_DECLS
#endif
