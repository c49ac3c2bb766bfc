/* kernels/ref/ref.h: the reference implementation of the table.
 *
 * Plain loops of one thread: the specification that other tables are compared with. One set of sources is compiled
 * twice, for float and for double; the double table is the oracle of whole runs. Every sum is formed in double, in the
 * order in which it is written here, and rounded once. No function uses the scratch of plait_exec or fails.
 */
#ifndef PLAIT_KERNELS_REF_REF_H
#define PLAIT_KERNELS_REF_REF_H

#include "kernels/kernels.h"

PLAIT_BEGIN_DECLS

/* The table named "ref" for fp32 or fp64; NULL for other types. */
const plait_kernels *plait_kernels_ref(plait_dtype dtype);

PLAIT_END_DECLS
#endif
