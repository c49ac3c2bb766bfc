// NCCL on the host, over MPI: the functions.
//
// Operations are in the order of their streams, and those of one communicator one after the other, as NCCL launches
// them. What never matches on another rank waits for ever, which is reported when the host waits for it. A non-blocking
// communicator is as slow as it may be: what it is given is not launched before the host has asked
// ncclCommGetAsyncError.
#include "tests/fakecuda/nccl_impl.h"
#include "tests/fakecuda/streams.h"

#include <algorithm>
#include <cstring>
#include <set>

namespace fakecuda::nccl
{

namespace
{

// Never destroyed, as communicators may end with the process.
std::string &last_sentence = *new std::string;

struct Given {
    ncclComm *c;
    cudaStream_t stream;
    Call call;
};

// Between ncclGroupStart and ncclGroupEnd.
int group_depth;
std::vector<Given> &group = *new std::vector<Given>;
ncclResult_t group_error = ncclSuccess;

} // namespace

void say(const std::string &sentence)
{
    last_sentence = sentence;
}

const char *said()
{
    return last_sentence.c_str();
}

void wait_until(const std::function<bool()> &done, const char *what)
{
    double since = seconds();
    while (!done()) {
        if (progress())
            since = seconds();
        else
            nap(since, what);
    }
}

namespace
{

// ---- the state of a communicator ----

ncclComm *opened(const ncclComm *c, const char *function)
{
    if (c && (c->destroyed || c->aborted))
        die("%s: the communicator has been %s", function, c->destroyed ? "destroyed" : "aborted");
    return const_cast<ncclComm *>(c);
}

ncclResult_t refuse(ncclResult_t error, const std::string &sentence)
{
    say(sentence);
    return error;
}

// Looks how far it is with what it was asked to do.
void look(ncclComm *c)
{
    if (c->state != ncclInProgress || !c->going_on())
        return;
    c->going_on = nullptr;
    if (c->state == ncclInProgress)
        c->state = ncclSuccess;
}

// The rest happens later; a blocking communicator waits for it here.
ncclResult_t go_on(ncclComm *c, std::function<bool()> more, const char *what)
{
    c->state = ncclInProgress;
    c->going_on = std::move(more);
    if (!c->blocking)
        return ncclInProgress;
    wait_until(
        [c] {
            look(c);
            return c->state != ncclInProgress;
        },
        what);
    return c->state;
}

// Whether it takes operations now.
ncclResult_t check_ready(const ncclComm *c, const char *function)
{
    if (!c)
        return refuse(ncclInvalidArgument, std::string(function) + ": no communicator");
    if (c->state == ncclInProgress)
        return refuse(ncclInvalidArgument,
                      std::string(function) +
                          ": the communicator is used before the previous operation returned ncclSuccess");
    if (c->state != ncclSuccess)
        return c->state;
    if (c->finalized)
        return refuse(ncclInvalidArgument, std::string(function) + ": the communicator is finalized");
    return ncclSuccess;
}

bool is_idle(const ncclComm *c)
{
    return c->given.empty() && c->finished == c->launched;
}

// ---- batches ----

// A piece of the work of a batch whose streams have all come to it; true when it is over.
bool advance(Batch &b)
{
    ncclComm *c = b.c;
    if (b.done)
        return true;
    if (b.arrived < b.streams.size() || b.turn != c->finished ||
        (c->state != ncclSuccess && c->state != ncclInProgress))
        return false;
    std::set<int> held; // channels on which an earlier call has not sent yet
    bool all = true;
    for (Exchange &e : b.calls) {
        if (!e.done())
            e.advance(!held.count(e.channel()));
        if (!e.has_sent_data())
            held.insert(e.channel());
        all = all && e.done();
    }
    if (!all)
        return false;
    b.done = true;
    c->finished++;
    c->running.erase(std::find_if(c->running.begin(), c->running.end(), [&b](const auto &r) { return r.get() == &b; }));
    return true;
}

std::string name_of(const Batch &b)
{
    std::string name = name_of(b.calls[0].call().kind);
    if (b.calls.size() > 1)
        name += " and " + std::to_string(b.calls.size() - 1) + " more";
    return name + ", rank " + std::to_string(b.c->rank) + " of " + std::to_string(b.c->size);
}

void launch(const std::shared_ptr<Batch> &b)
{
    b->turn = b->c->launched++;
    b->c->running.push_back(b);
    for (cudaStream_t stream : b->streams)
        enqueue(stream, name_of(*b), [b, here = false]() mutable {
            b->arrived += here ? 0 : 1;
            here = true;
            return advance(*b);
        });
}

ncclResult_t give(const std::shared_ptr<Batch> &b)
{
    ncclComm *c = b->c;
    if (c->blocking) {
        launch(b);
        return ncclSuccess;
    }
    c->given.push_back(b);
    return go_on(
        c,
        [c] {
            for (const auto &given : c->given)
                launch(given);
            c->given.clear();
            return true;
        },
        "");
}

// A batch for each communicator of the group, in the order of their first calls.
ncclResult_t give_group()
{
    std::vector<Given> calls;
    calls.swap(group);
    std::vector<std::shared_ptr<Batch>> batches;
    for (const Given &g : calls) {
        auto b = std::find_if(batches.begin(), batches.end(), [&g](const auto &x) { return x->c == g.c; });
        if (b == batches.end()) {
            batches.push_back(std::make_shared<Batch>());
            b = batches.end() - 1;
            (*b)->c = g.c;
        }
        (*b)->calls.emplace_back(g.c, g.call);
        if (std::find((*b)->streams.begin(), (*b)->streams.end(), g.stream) == (*b)->streams.end())
            (*b)->streams.push_back(g.stream);
    }
    ncclResult_t result = ncclSuccess;
    for (const auto &b : batches)
        if (give(b) == ncclInProgress)
            result = ncclInProgress;
    return result;
}

// ---- calls ----

void check_buffer(const void *p, size_t bytes, Kind kind, const char *which)
{
    if (bytes > 0 && !is_device(p) && !is_pinned(p))
        die("%s: the %s buffer %p is not memory of the device", name_of(kind), which, p);
}

// In place is one exact way each (NCCL's documentation, "In-place operations"); any other overlap is a mistake.
void check_overlap(const ncclComm &c, const Call &call)
{
    const char *in = static_cast<const char *>(call.in), *out = static_cast<const char *>(call.out);
    const size_t in_bytes = bytes_in(c, call), out_bytes = bytes_out(c, call),
                 offset = static_cast<size_t>(c.rank) * call.count * size_of(call.type);
    if (in_bytes == 0 || out_bytes == 0 || in >= out + out_bytes || out >= in + in_bytes)
        return;
    const bool in_place = call.kind == Kind::all_gather       ? in == out + offset
                          : call.kind == Kind::reduce_scatter ? out == in + offset
                                                              : in == out;
    if (!in_place)
        die("%s: the buffers overlap, but not as in-place operations do", name_of(call.kind));
}

ncclResult_t add(const Call &call, ncclComm *c, cudaStream_t stream)
{
    const char *function = name_of(call.kind);
    api_call();
    ncclResult_t result = check_ready(opened(c, function), function);
    if (result == ncclSuccess && (call.root < 0 || call.root >= c->size))
        result = refuse(ncclInvalidArgument, std::string(function) + ": there is no rank " + std::to_string(call.root));
    if (result != ncclSuccess) {
        if (group_depth > 0)
            group_error = result;
        return result;
    }
    if (call.op < ncclSum || call.op >= ncclAvg)
        die("%s: operation %d is not emulated", function, static_cast<int>(call.op));
    check_buffer(call.in, bytes_in(*c, call), call.kind, "send");
    check_buffer(call.out, bytes_out(*c, call), call.kind, "receive");
    check_overlap(*c, call);
    if (call.count == 0 && is_collective(call.kind))
        return ncclSuccess; // NCCL leaves it out, also when others do not
    group.push_back({c, stream, call});
    return group_depth > 0 ? ncclSuccess : give_group();
}

bool is_blocking(const ncclConfig_t *config, bool otherwise)
{
    return !config || config->blocking == NCCL_CONFIG_UNDEF_INT ? otherwise : config->blocking != 0;
}

ncclResult_t check_config(const ncclConfig_t *config, const char *function)
{
    if (config && config->magic != 0xcafebeef)
        return refuse(ncclInvalidArgument, std::string(function) + ": the config is not NCCL_CONFIG_INITIALIZER's");
    return ncclSuccess;
}

// Calls that are no operations, and that are not emulated within a group.
void check_no_group(const char *function)
{
    api_call();
    if (group_depth > 0)
        die("%s: not emulated between ncclGroupStart and ncclGroupEnd", function);
}

} // namespace
} // namespace fakecuda::nccl

void ncclComm::fail(ncclResult_t error, const std::string &sentence)
{
    state = error;
    fakecuda::nccl::say(sentence);
}

using namespace fakecuda::nccl;
using fakecuda::api_call;
using fakecuda::die;

extern "C" {

ncclResult_t ncclGetVersion(int *version)
{
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    // As NCCL 2.28 says them.
    static const char *const texts[] = {"no error",
                                        "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
                                        "unhandled system error (run with NCCL_DEBUG=INFO for details)",
                                        "internal error - please report this issue to the NCCL developers",
                                        "invalid argument (run with NCCL_DEBUG=WARN for details)",
                                        "invalid usage (run with NCCL_DEBUG=WARN for details)",
                                        "remote process exited or there was a network error",
                                        "NCCL operation in progress"};
    return result >= 0 && result < ncclNumResults ? texts[result] : "unknown result code";
}

const char *ncclGetLastError(ncclComm_t)
{
    return said();
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    api_call();
    return id ? make_unique_id(id) : refuse(ncclInvalidArgument, "ncclGetUniqueId: no id");
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int size, ncclUniqueId id, int rank, ncclConfig_t *config)
{
    const char *function = "ncclCommInitRank";
    check_no_group(function);
    if (!out || size < 1 || rank < 0 || rank >= size)
        return refuse(ncclInvalidArgument,
                      std::string(function) + ": rank " + std::to_string(rank) + " of " + std::to_string(size));
    *out = nullptr;
    if (const ncclResult_t error = check_config(config, function))
        return error;
    if (fakecuda::fails(function))
        return refuse(ncclSystemError, "ncclCommInitRank failed, as the test has asked");
    ncclComm *c = new ncclComm;
    c->size = size;
    c->rank = rank;
    c->blocking = is_blocking(config, true);
    if (cudaGetDevice(&c->device) != cudaSuccess)
        return refuse(ncclUnhandledCudaError, "ncclCommInitRank: cudaGetDevice failed");
    const ncclResult_t result = go_on(c, join(c, id), function);
    if (result == ncclSuccess || result == ncclInProgress)
        *out = c;
    return result;
}

ncclResult_t ncclCommInitRank(ncclComm_t *out, int size, ncclUniqueId id, int rank)
{
    return ncclCommInitRankConfig(out, size, id, rank, nullptr);
}

ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int key, ncclComm_t *out, ncclConfig_t *config)
{
    const char *function = "ncclCommSplit";
    check_no_group(function);
    ncclResult_t error = check_ready(opened(parent, function), function);
    if (error == ncclSuccess)
        error = check_config(config, function);
    if (error == ncclSuccess && (!out || (color < 0 && color != NCCL_SPLIT_NOCOLOR)))
        error = refuse(ncclInvalidArgument, "ncclCommSplit: color " + std::to_string(color));
    if (error != ncclSuccess)
        return error;
    if (!is_idle(parent))
        die("ncclCommSplit: the communicator has operations that are not over, which may deadlock");
    ncclComm *c = new ncclComm;
    c->device = parent->device;
    c->blocking = is_blocking(config, parent->blocking);
    *out = color == NCCL_SPLIT_NOCOLOR ? nullptr : c;
    if (!*out) { // takes part in the messages; nobody will ask how it went
        wait_until(split(parent, nullptr, color, key), function);
        return ncclSuccess;
    }
    return go_on(c, split(parent, c, color, key), function);
}

ncclResult_t ncclCommFinalize(ncclComm_t c)
{
    check_no_group("ncclCommFinalize");
    if (!c)
        return ncclSuccess;
    if (const ncclResult_t error = check_ready(opened(c, "ncclCommFinalize"), "ncclCommFinalize"))
        return error;
    c->finalized = true;
    return go_on(
        c, [c] { return is_idle(c); }, "ncclCommFinalize");
}

ncclResult_t ncclCommDestroy(ncclComm_t c)
{
    check_no_group("ncclCommDestroy");
    if (!opened(c, "ncclCommDestroy"))
        return ncclSuccess;
    wait_until(
        [c] {
            look(c);
            return c->state != ncclInProgress && (c->state != ncclSuccess || is_idle(c));
        },
        "ncclCommDestroy");
    if (c->state != ncclSuccess)
        die("ncclCommDestroy: the communicator has failed, and only ncclCommAbort ends what it has begun");
    c->destroyed = true;
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t c)
{
    check_no_group("ncclCommAbort");
    if (!opened(c, "ncclCommAbort"))
        return ncclSuccess;
    c->aborted = true;
    for (const auto &b : c->running) {
        for (Exchange &e : b->calls)
            e.cancel();
        b->done = true;
    }
    c->given.clear();
    return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *state)
{
    api_call();
    if (!opened(c, "ncclCommGetAsyncError") || !state)
        return refuse(ncclInvalidArgument, "ncclCommGetAsyncError: no communicator");
    look(c);
    *state = c->state;
    return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t c, int *count)
{
    const ncclResult_t error = check_ready(opened(c, "ncclCommCount"), "ncclCommCount");
    if (error == ncclSuccess)
        *count = c->size;
    return error;
}

ncclResult_t ncclCommUserRank(const ncclComm_t c, int *rank)
{
    const ncclResult_t error = check_ready(opened(c, "ncclCommUserRank"), "ncclCommUserRank");
    if (error == ncclSuccess)
        *rank = c->rank;
    return error;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t c, int *device)
{
    const ncclResult_t error = check_ready(opened(c, "ncclCommCuDevice"), "ncclCommCuDevice");
    if (error == ncclSuccess)
        *device = c->device;
    return error;
}

ncclResult_t ncclGroupStart(void)
{
    api_call();
    group_depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    api_call();
    if (group_depth == 0)
        return refuse(ncclInvalidUsage, "ncclGroupEnd: not in a group call.");
    if (--group_depth > 0)
        return ncclSuccess;
    const ncclResult_t error = group_error;
    group_error = ncclSuccess;
    if (error == ncclSuccess)
        return give_group();
    group.clear();
    return error;
}

ncclResult_t ncclAllReduce(const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t c,
                           cudaStream_t stream)
{
    return add({Kind::all_reduce, in, out, count, type, op, 0}, c, stream);
}

ncclResult_t ncclReduceScatter(const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t c, cudaStream_t stream)
{
    return add({Kind::reduce_scatter, in, out, count, type, op, 0}, c, stream);
}

ncclResult_t ncclAllGather(const void *in, void *out, size_t count, ncclDataType_t type, ncclComm_t c,
                           cudaStream_t stream)
{
    return add({Kind::all_gather, in, out, count, type, ncclSum, 0}, c, stream);
}

ncclResult_t ncclBroadcast(const void *in, void *out, size_t count, ncclDataType_t type, int root, ncclComm_t c,
                           cudaStream_t stream)
{
    return add({Kind::broadcast, in, out, count, type, ncclSum, root}, c, stream);
}

ncclResult_t ncclReduce(const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t c, cudaStream_t stream)
{
    return add({Kind::reduce, in, out, count, type, op, root}, c, stream);
}

ncclResult_t ncclSend(const void *in, size_t count, ncclDataType_t type, int peer, ncclComm_t c, cudaStream_t stream)
{
    return add({Kind::send, in, nullptr, count, type, ncclSum, peer}, c, stream);
}

ncclResult_t ncclRecv(void *out, size_t count, ncclDataType_t type, int peer, ncclComm_t c, cudaStream_t stream)
{
    return add({Kind::recv, nullptr, out, count, type, ncclSum, peer}, c, stream);
}

} // extern "C"
