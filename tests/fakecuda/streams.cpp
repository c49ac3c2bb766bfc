// Streams: queues of operations, and who runs next.
//
// Three schedules. eager: everything runs as soon as it can, when it is given; this is how most faults stay unseen.
// lazy: nothing runs before somebody waits for it, and then no more than what that needs. random: by the seed, a device
// that is quick or slow for a while, and streams that overtake others for a while.
#include "tests/fakecuda/memory.h"
#include "tests/fakecuda/race.h"
#include "tests/fakecuda/report.h"
#include "tests/fakecuda/settings.h"
#include "tests/fakecuda/streams_impl.h"

#include <algorithm>
#include <ctime>
#include <unistd.h>

namespace fakecuda
{

namespace
{

// A lazy device begins by itself when the host has asked in vain for so long.
const double kLazyPatience = 200e-6;
const useconds_t kNap = 20;

std::vector<Stream *> streams; // [0]: the legacy default stream
unsigned num_streams;          // ever
Clock host_seen;
Clock departed; // what streams have done that are gone
const Ticket *running;

void merge(Clock *into, const Clock &from)
{
    if (into->size() < from.size())
        into->resize(from.size());
    for (size_t i = 0; i < from.size(); i++)
        (*into)[i] = std::max((*into)[i], from[i]);
}

Stream *add_stream()
{
    Stream *s = new Stream;
    s->number = num_streams++;
    streams.push_back(s);
    return s;
}

Stream *default_stream()
{
    if (streams.empty())
        add_stream();
    return streams[0];
}

bool all_done(const std::vector<TicketRef> &tickets)
{
    return std::all_of(tickets.begin(), tickets.end(), [](const TicketRef &t) { return t->done; });
}

bool may_run(const Stream *s)
{
    return !s->queue.empty() && all_done(s->queue.front().after);
}

// FAKECUDA_SLOW: an operation whose turn has come is under way for a while first.
bool is_slow(Operation *o)
{
    if (settings().slow <= 0.0)
        return false;
    const double now = seconds();
    if (o->not_before == 0.0)
        o->not_before = now + settings().slow;
    return now < o->not_before;
}

void remove(Stream *s)
{
    if (s->last)
        merge(&departed, s->last->seen);
    streams.erase(std::find(streams.begin(), streams.end(), s));
    delete s;
}

void finish(Stream *s)
{
    Ticket &t = *s->queue.front().ticket;
    t.done = true;
    t.stream = nullptr;
    t.when = seconds();
    s->queue.pop_front();
    if (s->destroyed && s->queue.empty())
        remove(s);
}

// Runs the first operation of a stream that may run, or a piece of it: true when it is done.
bool step(Stream *s)
{
    Operation &o = s->queue.front();
    if (is_slow(&o))
        return false;
    running = o.ticket.get();
    bool done;
    {
        DeviceAccess access;
        race::operation(o.ticket);
        done = o.run();
    }
    running = nullptr;
    if (done)
        finish(s);
    return done;
}

// Runs what `ticket` needs, in its stream and in those that it waits for: true when something was done.
bool run_towards(const TicketRef &ticket)
{
    Stream *s = ticket->stream;
    if (!s)
        return false;
    if (may_run(s))
        return step(s);
    const std::vector<TicketRef> after = s->queue.front().after;
    for (const TicketRef &t : after)
        if (!t->done && run_towards(t))
            return true;
    return false;
}

bool run_for(const TicketRef &ticket)
{
    if (settings().schedule == Schedule::lazy && run_towards(ticket))
        return true;
    // Also when what is needed stands still: another rank may wait for something else of this one.
    return progress();
}

// How many of 16 calls of the host find the device running.
unsigned mood()
{
    static unsigned now;
    static const unsigned moods[] = {0, 0, 1, 4, 12};
    if (stream_random().below(16) == 0)
        now = moods[stream_random().below(sizeof moods / sizeof moods[0])];
    return now;
}

// One stream is preferred for a while.
size_t choose(size_t ready)
{
    static uint64_t favourite;
    if (settings().schedule != Schedule::random)
        return 0;
    if (stream_random().below(8) == 0)
        favourite = stream_random()();
    return (stream_random().below(4) == 0 ? stream_random()() : favourite) % ready;
}

std::string text_of(const Operation &o)
{
    return o.ticket->name + (all_done(o.after) ? "" : " (waits for another stream)");
}

} // namespace

double seconds()
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

std::string running_operation()
{
    return running ? format("'%s' in stream %u", running->name.c_str(), running->stream_number) : "";
}

std::string queues()
{
    const size_t shown = 6;
    std::string text;
    for (const Stream *s : streams) {
        if (s->queue.empty())
            continue;
        text += format("  stream %u:", s->number);
        for (size_t i = 0; i < s->queue.size() && i < shown; i++)
            text += (i ? ", " : " ") + text_of(s->queue[i]);
        if (s->queue.size() > shown)
            text += format(", and %zu more", s->queue.size() - shown);
        text += "\n";
    }
    return text;
}

bool all_empty()
{
    return std::all_of(streams.begin(), streams.end(), [](const Stream *s) { return s->queue.empty(); });
}

bool in_operation()
{
    return running != nullptr;
}

Stream *create_stream(unsigned flags, int priority)
{
    default_stream();
    Stream *s = add_stream();
    s->flags = flags;
    s->blocking = !(flags & cudaStreamNonBlocking);
    s->priority = priority;
    return s;
}

void destroy_stream(Stream *s)
{
    if (s == default_stream())
        die("the default stream is destroyed");
    s->destroyed = true;
    if (s->queue.empty())
        remove(s);
}

Stream *stream_of(cudaStream_t handle)
{
    if (!handle || handle == cudaStreamLegacy)
        return default_stream();
    if (handle == cudaStreamPerThread)
        die("cudaStreamPerThread: not imitated");
    Stream *s = reinterpret_cast<Stream *>(handle);
    if (std::find(streams.begin(), streams.end(), s) == streams.end() || s->destroyed)
        die("%p is no stream, or one that was destroyed", static_cast<void *>(handle));
    return s;
}

TicketRef submit(Stream *s, std::string name, std::function<bool()> run, std::vector<TicketRef> after)
{
    if (running)
        die("'%s' is given to a stream by an operation of one", name.c_str());
    if (s == default_stream()) {
        for (const Stream *o : streams)
            if (o != s && o->blocking && o->last)
                after.push_back(o->last);
    } else if (s->blocking && default_stream()->last) {
        after.push_back(default_stream()->last);
    }
    auto t = std::make_shared<Ticket>();
    t->name = std::move(name);
    t->stream = s;
    t->stream_number = s->number;
    t->seen = host_seen;
    if (s == default_stream())
        merge(&t->seen, departed);
    if (s->last)
        merge(&t->seen, s->last->seen);
    for (const TicketRef &a : after)
        merge(&t->seen, a->seen);
    if (t->seen.size() <= s->number)
        t->seen.resize(s->number + 1);
    t->number = ++t->seen[s->number];
    s->queue.push_back({t, std::move(after), std::move(run), 0.0});
    s->last = t;
    api_call();
    return t;
}

void enqueue(cudaStream_t stream, std::string name, std::function<bool()> run)
{
    submit(stream_of(stream), std::move(name), std::move(run));
}

bool progress()
{
    if (running)
        return false;
    DeviceAccess access;
    std::vector<Stream *> ready;
    for (Stream *s : streams)
        if (may_run(s))
            ready.push_back(s);
    if (ready.empty())
        return false;
    const size_t first = choose(ready.size());
    for (size_t i = 0; i < ready.size(); i++)
        if (step(ready[(first + i) % ready.size()]))
            return true;
    return false;
}

void api_call()
{
    if (running)
        die("a function of a library is called by an operation of a stream");
    switch (settings().schedule) {
    case Schedule::eager: {
        DeviceAccess access;
        while (progress()) {}
        break;
    }
    case Schedule::lazy:
        break;
    case Schedule::random:
        while (stream_random().below(16) < mood() && progress()) {}
        break;
    }
}

void nap(double since, const char *what)
{
    if (seconds() - since > settings().timeout)
        die("no progress for %.3g s in %s: a deadlock?", settings().timeout, what);
    usleep(kNap);
}

void notice(const TicketRef &ticket)
{
    merge(&host_seen, ticket->seen);
}

void wait_for(const TicketRef &ticket, const char *what)
{
    if (!ticket)
        return;
    DeviceAccess access; // once for all that runs
    double since = seconds();
    while (!ticket->done) {
        if (run_for(ticket))
            since = seconds();
        else if (!ticket->done)
            nap(since, what);
    }
    notice(ticket);
}

void wait_for_stream(Stream *s, const char *what)
{
    wait_for(TicketRef(s->last), what);
}

void wait_for_all(const char *what)
{
    DeviceAccess access;
    for (double since = seconds(); !all_empty();) {
        if (progress())
            since = seconds();
        else
            nap(since, what);
    }
    merge(&host_seen, departed);
    for (const Stream *s : streams)
        if (s->last)
            notice(s->last);
}

void host_polls()
{
    static double asked_first;
    if (running)
        return;
    if (settings().schedule == Schedule::lazy) {
        const double now = seconds();
        if (asked_first == 0.0 || now - asked_first > 100 * kLazyPatience)
            asked_first = now;
        if (now - asked_first < kLazyPatience)
            return;
    }
    if (!progress())
        asked_first = 0.0;
}

} // namespace fakecuda
