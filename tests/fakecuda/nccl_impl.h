// tests/fakecuda/nccl_impl.h: what the parts of the emulated NCCL share.
//
// nccl.cpp           the functions: groups, and what a communicator lets be done when
// nccl_join.cpp      how ranks find each other: unique ids, splits
// nccl_exchange.cpp  one operation: headers that must agree, then data
// nccl_wire.cpp      the communicator of MPI that messages go by
//
// Nothing here waits inside of an operation of a stream: everything is a state that is asked again and again, since on
// a GPU the operations of two communicators run at the same time, and beside what the host does.
#ifndef PLAIT_TESTS_FAKECUDA_NCCL_IMPL_H
#define PLAIT_TESTS_FAKECUDA_NCCL_IMPL_H

#include <mpi.h>
#include <nccl.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace fakecuda::nccl
{

// MPI's world for NCCL's messages alone; dies where MPI is not initialized.
MPI_Comm wire();
int world_rank(); // 0 without MPI

struct Batch;

} // namespace fakecuda::nccl

// Never freed: whoever uses it after its end is told so.
struct ncclComm {
    int context = -1; // tells its messages from those of others
    int rank = -1, size = 0, device = -1;
    std::vector<int> world; // its ranks in MPI's world
    bool blocking = true;

    // ncclInProgress while something goes on that the host does not wait for; an error for good.
    ncclResult_t state = ncclSuccess;
    std::function<bool()> going_on;                              // asked again until true
    std::vector<std::shared_ptr<fakecuda::nccl::Batch>> given;   // not launched until the host asks how it goes
    std::vector<std::shared_ptr<fakecuda::nccl::Batch>> running; // and after an abort those that MPI may still read

    bool finalized = false, aborted = false, destroyed = false;
    uint64_t launched = 0, finished = 0; // batches: they run one after the other, whatever their streams
    uint64_t collectives = 0;

    void fail(ncclResult_t error, const std::string &sentence);
};

namespace fakecuda::nccl
{

// The sentence of ncclGetLastError.
void say(const std::string &sentence);
const char *said();

// Lets streams run until `done`; reports a deadlock after a while.
void wait_until(const std::function<bool()> &done, const char *what);

// ---- messages ----

// Of one communicator, between two of its ranks, in order for each purpose.
enum class Purpose { split, collective_header, collective_data, send_header, recv_header, data };
constexpr int PURPOSES = 8;
MPI_Request send_bytes(const ncclComm &c, int to, Purpose purpose, const void *bytes, size_t size);
MPI_Request receive_bytes(const ncclComm &c, int from, Purpose purpose, void *bytes, size_t size);

// Messages under way.
class Requests
{
  public:
    void add(MPI_Request r) { all_.push_back(r); }
    bool done();
    void cancel(); // receives end; what is sent is left to itself

  private:
    std::vector<MPI_Request> all_;
};

// ---- ranks that find each other ----

ncclResult_t make_unique_id(ncclUniqueId *id);
// What to ask until the communicator is ready, or has failed.
std::function<bool()> join(ncclComm *c, const ncclUniqueId &id);
std::function<bool()> split(ncclComm *parent, ncclComm *c, int color, int key);

// ---- operations ----

enum class Kind { all_reduce, reduce_scatter, all_gather, broadcast, reduce, send, recv };
const char *name_of(Kind kind);
inline bool is_collective(Kind kind)
{
    return kind != Kind::send && kind != Kind::recv;
}

// A call, as it was made.
struct Call {
    Kind kind;
    const void *in;
    void *out;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t op;
    int root; // or the peer
};
size_t size_of(ncclDataType_t type);
size_t bytes_in(const ncclComm &c, const Call &call);
size_t bytes_out(const ncclComm &c, const Call &call);

// One operation of one rank under way. It copies its input before it sends, and its output when all has come.
class Exchange
{
  public:
    Exchange(ncclComm *c, const Call &call);

    // A piece of the work. Data may only be sent after the data of earlier operations of the same channel: a peer takes
    // it in order.
    void advance(bool may_send_data);
    bool has_sent_data() const { return phase_ > Phase::headers; }
    bool done() const { return phase_ == Phase::done; }
    int channel() const { return is_collective(call_.kind) ? -1 : call_.root * 2 + (call_.kind == Kind::send); }
    void cancel() { requests_.cancel(); }
    const Call &call() const { return call_; }

  private:
    enum class Phase { none, headers, data, done };
    struct Header {
        int32_t kind, type, op, root;
        uint64_t count, sequence;
    };

    void touch_buffers() const;
    void exchange_headers();
    void check_header(int peer) const;
    void exchange_data();
    void send_to(int peer, size_t offset, size_t bytes);
    void receive_from(int peer, size_t bytes);
    void finish();
    void reduce_into_first() const;
    char *part(int rank) { return received_.data() + static_cast<size_t>(rank) * bytes_; }
    bool is_peer(int rank) const;
    std::string text(const Header &h, int rank) const;

    ncclComm *c_;
    Call call_;
    Phase phase_ = Phase::none;
    size_t bytes_; // of `count` elements
    Header mine_;
    std::vector<Header> theirs_;
    mutable std::vector<char> received_; // a part for each rank
    std::vector<char> sent_;
    Requests requests_;
};

// The calls of one group on one communicator: as on a GPU one kernel, that begins when all its streams have come to it
// and earlier ones of the communicator are over.
struct Batch {
    ncclComm *c;
    std::vector<Exchange> calls;
    std::vector<cudaStream_t> streams;
    size_t arrived = 0;
    uint64_t turn = 0;
    bool done = false;
};

} // namespace fakecuda::nccl
#endif
