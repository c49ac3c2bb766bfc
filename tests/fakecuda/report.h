// tests/fakecuda/report.h: who speaks when the emulation ends a process.
#ifndef PLAIT_TESTS_FAKECUDA_REPORT_H
#define PLAIT_TESTS_FAKECUDA_REPORT_H

#include <cstdint>
#include <string>

namespace fakecuda
{

// What runs now, for sentences: "kernel k, block (0, 0, 0), thread (3, 0, 0), last at f.cu:12"; empty outside of
// kernels.
std::string running_thread();
// "'memcpy' in stream 2"; empty outside of operations.
std::string running_operation();
// All that is queued, a stream a line.
std::string queues();

// printf to a string.
std::string format(const char *form, ...) __attribute__((format(printf, 1, 2)));

// "file.cu:12" of an address of this program's code, by the debug information; empty where there is none.
std::string source_line(uintptr_t code);

} // namespace fakecuda
#endif
