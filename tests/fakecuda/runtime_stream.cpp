// cudart: streams and events.
#include "tests/fakecuda/memory.h"
#include "tests/fakecuda/runtime.h"
#include "tests/fakecuda/streams_impl.h"

#include <set>

namespace fakecuda
{

namespace
{

struct Event {
    TicketRef ticket; // of the last record; NULL before
    bool timing = true;
};

std::set<Event *> events;

Event *event_of(cudaEvent_t handle)
{
    Event *e = reinterpret_cast<Event *>(handle);
    if (!events.count(e))
        die("%p is no event, or one that was destroyed", static_cast<void *>(handle));
    return e;
}

bool nothing()
{
    return true;
}

} // namespace
} // namespace fakecuda

using namespace fakecuda;

// ---- streams ----

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int flags, int priority)
{
    FAKECUDA_ENTER(cudaErrorUnknown);
    if (flags & ~static_cast<unsigned>(cudaStreamNonBlocking))
        return set_error(cudaErrorInvalidValue);
    *stream = reinterpret_cast<cudaStream_t>(create_stream(flags, priority));
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags)
{
    FAKECUDA_ENTER(cudaErrorUnknown);
    return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    FAKECUDA_ENTER(cudaErrorUnknown);
    return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    FAKECUDA_ENTER(cudaErrorUnknown);
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority)
{
    FAKECUDA_ENTER(cudaErrorUnknown);
    *priority = stream_of(stream)->priority;
    return cudaSuccess;
}

cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned int *flags)
{
    FAKECUDA_ENTER(cudaErrorUnknown);
    *flags = stream_of(stream)->flags;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    FAKECUDA_ENTER(cudaErrorUnknown);
    destroy_stream(stream_of(stream));
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    FAKECUDA_ENTER(cudaErrorLaunchFailure);
    wait_for_stream(stream_of(stream), "cudaStreamSynchronize");
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    FAKECUDA_ENTER(cudaErrorLaunchFailure);
    Stream *s = stream_of(stream);
    if (!s->queue.empty())
        host_polls();
    if (!s->queue.empty())
        return cudaErrorNotReady;
    if (s->last)
        notice(s->last);
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
    FAKECUDA_ENTER(cudaErrorLaunchFailure);
    wait_for_all("cudaDeviceSynchronize");
    return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *argument)
{
    FAKECUDA_ENTER(cudaErrorUnknown);
    submit(stream_of(stream), "a function of the host", [=] {
        HostAccess access;
        function(argument);
        return true;
    });
    return cudaSuccess;
}

// ---- events ----

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
    FAKECUDA_ENTER(cudaErrorUnknown);
    Event *e = new Event;
    e->timing = !(flags & cudaEventDisableTiming);
    events.insert(e);
    *event = reinterpret_cast<cudaEvent_t>(e);
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    FAKECUDA_ENTER(cudaErrorUnknown);
    Event *e = event_of(event);
    events.erase(e);
    delete e;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    FAKECUDA_ENTER(cudaErrorUnknown);
    event_of(event)->ticket = submit(stream_of(stream), "an event", nothing);
    return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int)
{
    return cudaEventRecord(event, stream);
}

// An event that was never recorded is waited for by nobody.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int)
{
    FAKECUDA_ENTER(cudaErrorUnknown);
    const TicketRef ticket = event_of(event)->ticket;
    if (ticket)
        submit(stream_of(stream), "a wait for an event", nothing, {ticket});
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    FAKECUDA_ENTER(cudaErrorLaunchFailure);
    wait_for(TicketRef(event_of(event)->ticket), "cudaEventSynchronize");
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    FAKECUDA_ENTER(cudaErrorLaunchFailure);
    const TicketRef ticket = event_of(event)->ticket;
    if (!ticket)
        return cudaSuccess;
    if (!ticket->done)
        host_polls();
    if (!ticket->done)
        return cudaErrorNotReady;
    notice(ticket);
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to)
{
    FAKECUDA_ENTER(cudaErrorUnknown);
    const Event *a = event_of(from), *b = event_of(to);
    if (!a->ticket || !b->ticket || !a->timing || !b->timing)
        return set_error(cudaErrorInvalidResourceHandle);
    if (!a->ticket->done || !b->ticket->done)
        return cudaErrorNotReady;
    *milliseconds = static_cast<float>(1e3 * (b->ticket->when - a->ticket->when));
    return cudaSuccess;
}
