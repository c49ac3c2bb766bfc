// tests/fakecuda/streams_impl.h: streams, as the files of the runtime see them.
#ifndef PLAIT_TESTS_FAKECUDA_STREAMS_IMPL_H
#define PLAIT_TESTS_FAKECUDA_STREAMS_IMPL_H

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/fakecuda/streams.h"

namespace fakecuda
{

struct Stream;

// For each stream the number of its last operation that is known to have happened.
using Clock = std::vector<unsigned>;

// One operation, for those who wait for it; it outlives the operation, and its stream.
struct Ticket {
    std::string name;
    Stream *stream = nullptr; // NULL once done
    unsigned stream_number = 0;
    unsigned number = 0; // in its stream, from 1
    Clock seen;          // what is ordered before it, itself included
    unsigned race = 0;   // a number of the race detector
    bool done = false;
    double when = 0.0; // it was done
};
using TicketRef = std::shared_ptr<Ticket>;

struct Operation {
    TicketRef ticket;
    std::vector<TicketRef> after;
    std::function<bool()> run;
    double not_before = 0.0; // for a device that is slow: set when its turn comes
};

struct Stream {
    unsigned number = 0;
    bool blocking = true; // waits for the legacy default stream, and it for this one
    bool destroyed = false;
    int priority = 0;
    unsigned flags = 0;
    std::deque<Operation> queue;
    TicketRef last;
};

Stream *create_stream(unsigned flags, int priority);
// What it was given still happens.
void destroy_stream(Stream *stream);
// Dies when the handle is of no stream that lives.
Stream *stream_of(cudaStream_t handle);

// As enqueue; the operation also waits for `after`.
TicketRef submit(Stream *stream, std::string name, std::function<bool()> run, std::vector<TicketRef> after = {});

// The host waits. `what` is for the sentence about a deadlock.
void wait_for(const TicketRef &ticket, const char *what);
void wait_for_stream(Stream *stream, const char *what);
void wait_for_all(const char *what);
// The host has seen that the operation is done: later ones are ordered behind it.
void notice(const TicketRef &ticket);

// The host asked for something that is not done, and will ask again: operations run now and then.
void host_polls();

// Nothing is queued.
bool all_empty();

// True while an operation runs: no function of a library may be called then.
bool in_operation();

} // namespace fakecuda
#endif
