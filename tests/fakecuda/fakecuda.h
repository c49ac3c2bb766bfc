/* tests/fakecuda/fakecuda.h: what a test asks of the emulation.
 *
 * The environment decides how a program runs, so that the same binary runs in every way:
 *
 *   FAKECUDA_SCHEDULE=eager|lazy|random  when operations of streams run (random)
 *   FAKECUDA_SEED=N                      of random (1)
 *   FAKECUDA_THREADS=forward|reverse|random   the order of the threads and of the blocks of a kernel (forward)
 *   FAKECUDA_DEVICES=N                   devices of a node (8)
 *   FAKECUDA_MEMORY=BYTES                of a device (4 GiB)
 *   FAKECUDA_GUARD=N                     device memory is closed to the host after every N-th operation (1); it takes a
 *                                        third of the time of many small ones
 *   FAKECUDA_TIMEOUT=SECONDS             without progress, until a deadlock is reported (20)
 *   FAKECUDA_FAULT=WHAT:N[:RANK]         the N-th call of WHAT fails (cudaMalloc, cudaMallocHost, cublasLtMatmul, a
 *                                        kernel's name, ncclAllReduce, ...: an operation of NCCL fails when it runs, as
 *                                        an asynchronous error), on MPI rank RANK alone
 *   FAKECUDA_SLOW=MICROSECONDS[:RANK]    every operation takes that much longer
 */
#ifndef PLAIT_TESTS_FAKECUDA_FAKECUDA_H
#define PLAIT_TESTS_FAKECUDA_FAKECUDA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Device memory: bytes allocated now, the most so far, and calls of cudaMalloc so far. */
size_t fakecuda_allocated(void);
size_t fakecuda_high_water(void);
long fakecuda_allocations(void);

/* Kernels run so far, and threads in them. */
long fakecuda_kernels(void);
long fakecuda_threads(void);

#ifdef __cplusplus
}
#endif
#endif
