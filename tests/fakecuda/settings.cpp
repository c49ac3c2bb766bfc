// What the environment asks for, and the faults that it plans.
#include "tests/fakecuda/settings.h"
#include "tests/fakecuda/streams.h"

#include <cstdlib>

namespace fakecuda
{

namespace
{

const char *text_of(const char *variable)
{
    const char *text = getenv(variable);
    return text && *text ? text : nullptr;
}

[[noreturn]] void unknown(const char *variable, const char *text, const char *want)
{
    die("%s=%s: %s", variable, text, want);
}

// The whole text must be a number of at least `least`.
double number_in(const char *variable, double otherwise, double least)
{
    const char *text = text_of(variable);
    if (!text)
        return otherwise;
    char *end = nullptr;
    const double value = strtod(text, &end);
    if (*end || !(value >= least))
        unknown(variable, text, "not a number that means anything here");
    return value;
}

Schedule schedule_in(const char *variable)
{
    const char *text = text_of(variable);
    const std::string name = text ? text : "random";
    if (name == "eager")
        return Schedule::eager;
    if (name == "lazy")
        return Schedule::lazy;
    if (name == "random")
        return Schedule::random;
    unknown(variable, text, "eager, lazy or random");
}

Order order_in(const char *variable)
{
    const char *text = text_of(variable);
    const std::string name = text ? text : "forward";
    if (name == "forward")
        return Order::forward;
    if (name == "reverse")
        return Order::reverse;
    if (name == "random")
        return Order::random;
    unknown(variable, text, "forward, reverse or random");
}

// "WHAT:N" and "MICROSECONDS" may end in ":RANK": true when they are for this rank, which is taken off.
bool is_ours(std::string *text, size_t fields, int rank)
{
    size_t colons = 0;
    for (char c : *text)
        colons += c == ':';
    if (colons < fields)
        return true;
    const size_t last = text->rfind(':');
    const bool ours = atoi(text->c_str() + last + 1) == (rank < 0 ? 0 : rank);
    text->resize(last);
    return ours;
}

Fault fault_in(const char *variable, int rank)
{
    Fault fault;
    const char *given = text_of(variable);
    if (!given)
        return fault;
    std::string text = given;
    if (!is_ours(&text, 2, rank))
        return fault;
    const size_t colon = text.find(':');
    if (colon == std::string::npos || colon == 0 || atol(text.c_str() + colon + 1) < 1)
        unknown(variable, given, "WHAT:N or WHAT:N:RANK");
    fault.what = text.substr(0, colon);
    fault.call = atol(text.c_str() + colon + 1);
    return fault;
}

double slow_in(const char *variable, int rank)
{
    const char *given = text_of(variable);
    if (!given)
        return 0.0;
    std::string text = given;
    return is_ours(&text, 1, rank) ? 1e-6 * atof(text.c_str()) : 0.0;
}

Settings read()
{
    Settings s;
    const char *rank = text_of("PMI_RANK");
    s.rank = rank ? atoi(rank) : -1;
    s.schedule = schedule_in("FAKECUDA_SCHEDULE");
    s.threads = order_in("FAKECUDA_THREADS");
    s.devices = static_cast<int>(number_in("FAKECUDA_DEVICES", s.devices, 0));
    s.memory = static_cast<size_t>(number_in("FAKECUDA_MEMORY", static_cast<double>(s.memory), 0));
    s.guard = static_cast<long>(number_in("FAKECUDA_GUARD", static_cast<double>(s.guard), 1));
    s.timeout = number_in("FAKECUDA_TIMEOUT", s.timeout, 0);
    s.fault = fault_in("FAKECUDA_FAULT", s.rank);
    s.slow = slow_in("FAKECUDA_SLOW", s.rank);
    return s;
}

uint64_t seed_in_environment()
{
    return static_cast<uint64_t>(number_in("FAKECUDA_SEED", 1, 0));
}

// A kernel is launched as "(scale<float, 4>)" and named "scale".
std::string bare(const std::string &name)
{
    const size_t from = name.find_first_not_of("( ");
    const size_t to = name.find_first_of("<) ", from);
    return from == std::string::npos ? name : name.substr(from, to == std::string::npos ? to : to - from);
}

} // namespace

Settings &settings()
{
    static Settings s = read();
    return s;
}

bool fails(const char *what)
{
    Fault &fault = settings().fault;
    if (fault.what.empty() || (fault.what != what && fault.what != bare(what)))
        return false;
    return ++fault.seen == fault.call;
}

// A seed as small as 1 must fill all bits.
Random::Random(uint64_t seed) : state((seed + 1) * 0x9E3779B97F4A7C15u)
{
    for (int i = 0; i < 8; i++)
        (*this)();
}

uint64_t Random::operator()()
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state * 0x2545F4914F6CDD1Du;
}

Random &stream_random()
{
    static Random r(seed_in_environment());
    return r;
}

Random &thread_random()
{
    static Random r(seed_in_environment() + 1000003);
    return r;
}

void reseed(uint64_t seed)
{
    stream_random() = Random(seed);
    thread_random() = Random(seed + 1000003);
}

uint64_t random()
{
    return stream_random()();
}

} // namespace fakecuda
