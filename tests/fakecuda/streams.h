// tests/fakecuda/streams.h: what the parts of the emulation (runtime, cuBLASLt, NCCL) give to streams and ask of them.
//
// A stream is a queue of operations. Nothing runs when it is given: a scheduler (eager, lazy, or seeded random) picks
// among the streams whose first operation may run, whenever the host calls into a library or waits. So an event that
// nobody waits for becomes a wrong result, or in the race build a sentence.
#ifndef PLAIT_TESTS_FAKECUDA_STREAMS_H
#define PLAIT_TESTS_FAKECUDA_STREAMS_H

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace fakecuda
{

// Gives `stream` an operation. `run` is called when its turn comes, on and on until it returns true, other streams in
// between: false means that it waits for something outside, such as another rank. While it runs, device memory may be
// read and written.
void enqueue(cudaStream_t stream, std::string name, std::function<bool()> run);

enum class Access { read, write };
// Inside of an operation, before the bytes are touched: they must be in one live allocation of the device (dies if not)
// or in host memory; the race build compares them with what other operations touch.
void touch(const void *bytes, size_t size, Access access, const char *what);
bool is_device(const void *p);
bool is_pinned(const void *p);

// Lets operations run: all of them (eager), or a few (random). Every function of a library calls it once.
void api_call();
// Runs an operation of some stream, or a piece of one; false when none can. For a host that waits.
bool progress();
// A waiting host without progress: sleeps a little, and dies with all queues once `since` is too long ago.
double seconds();
void nap(double since, const char *what);

// A number of the seeded generator of the schedule.
uint64_t random();

// Faults that a test has asked for (fakecuda.h): true when this call of `what` is to fail.
bool fails(const char *what);

// Ends the process with exit code 97: the sentence, the kernel and thread or the operation that runs, and all queues.
[[noreturn]] void die(const char *format, ...) __attribute__((format(printf, 1, 2)));

} // namespace fakecuda
#endif
