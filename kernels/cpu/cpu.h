/* kernels/cpu/cpu.h: the fast tables for processors.
 *
 * The same sources are compiled several times, for plain C, AVX2 and AVX-512, and for fp32, bf16 and fp16; a table is
 * chosen at run time. Results do not depend on the number of threads.
 */
#ifndef PLAIT_KERNELS_CPU_CPU_H
#define PLAIT_KERNELS_CPU_CPU_H

#include "kernels/kernels.h"

PLAIT_BEGIN_DECLS

/* The table of `dtype`, for `isa` or (auto) the best this processor has. NULL: the processor lacks `isa`, or there is
 * no such table (fp64, int32). Asked for avx2, it also limits the library of matrix products to AVX2, which works only
 * before that library's first call in the process. */
const plait_kernels *plait_kernels_cpu(plait_dtype dtype, plait_isa isa);

/* The plain C table of `dtype`, which auto takes on a processor without AVX2. NULL for fp64 and int32. */
const plait_kernels *plait_kernels_cpu_portable(plait_dtype dtype);

PLAIT_END_DECLS
#endif
