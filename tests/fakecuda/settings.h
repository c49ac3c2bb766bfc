// tests/fakecuda/settings.h: what the environment asks for (fakecuda.h), read once.
#ifndef PLAIT_TESTS_FAKECUDA_SETTINGS_H
#define PLAIT_TESTS_FAKECUDA_SETTINGS_H

#include <cstddef>
#include <cstdint>
#include <string>

namespace fakecuda
{

enum class Schedule { eager, lazy, random };
enum class Order { forward, reverse, random };

struct Fault {
    std::string what; // empty: none
    long call = 1;
    long seen = 0; // calls so far
};

struct Settings {
    Schedule schedule = Schedule::random;
    Order threads = Order::forward;
    int devices = 8;
    size_t memory = static_cast<size_t>(4) << 30;
    long guard = 1;        // operations after which device memory is closed to the host once
    double timeout = 20.0; // seconds
    double slow = 0.0;     // seconds that each operation takes longer
    Fault fault;
    int rank = -1; // of MPI, -1 without mpiexec
};

// Tests of the emulation itself change them between two kernels; nobody else does.
Settings &settings();

// Puts them back at its end.
class KeepSettings
{
  public:
    KeepSettings() : before(settings()) {}
    ~KeepSettings() { settings() = before; }
    KeepSettings(const KeepSettings &) = delete;
    KeepSettings &operator=(const KeepSettings &) = delete;

  private:
    const Settings before;
};

// Xorshift64*: the same numbers everywhere for the same seed.
class Random
{
  public:
    explicit Random(uint64_t seed);
    uint64_t operator()();
    // Below `n`, which is not 0. The bias is of no account here.
    uint64_t below(uint64_t n) { return (*this)() % n; }

  private:
    uint64_t state;
};

// One sequence decides about streams, the other about threads, so that the order of threads changes no schedule.
Random &stream_random();
Random &thread_random();
void reseed(uint64_t seed);

} // namespace fakecuda
#endif
