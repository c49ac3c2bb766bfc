// One operation of the emulated NCCL between the ranks of its communicator.
//
// First all that take part tell each other what they are about to do: what must agree and does not ends the process
// with a sentence, where NCCL would hang or add the wrong bytes. A send also waits for its receive, as NCCL's may. Then
// the data goes from every rank to every rank that needs it.
//
// Sums are formed in the order of ranks and in the type of the data, which for 16-bit types means a rounding after each
// addition. NCCL's order depends on its algorithm and topology; nobody may rely on a better one.
#include "tests/fakecuda/nccl_impl.h"
#include "tests/fakecuda/streams.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <climits>
#include <cmath>
#include <cstring>
#include <type_traits>

namespace fakecuda::nccl
{

// ---- messages ----

namespace
{

int tag_of(const ncclComm &c, Purpose purpose)
{
    return c.context * PURPOSES + static_cast<int>(purpose);
}

int checked_size(size_t size)
{
    if (size > INT_MAX)
        die("NCCL: a message of %zu bytes is not emulated", size);
    return static_cast<int>(size);
}

} // namespace

MPI_Request send_bytes(const ncclComm &c, int to, Purpose purpose, const void *bytes, size_t size)
{
    MPI_Request r;
    PMPI_Isend(bytes, checked_size(size), MPI_BYTE, c.world[static_cast<size_t>(to)], tag_of(c, purpose), wire(), &r);
    return r;
}

MPI_Request receive_bytes(const ncclComm &c, int from, Purpose purpose, void *bytes, size_t size)
{
    MPI_Request r;
    PMPI_Irecv(bytes, checked_size(size), MPI_BYTE, c.world[static_cast<size_t>(from)], tag_of(c, purpose), wire(), &r);
    return r;
}

bool Requests::done()
{
    int all = 1;
    if (!all_.empty())
        PMPI_Testall(static_cast<int>(all_.size()), all_.data(), &all, MPI_STATUSES_IGNORE);
    if (all)
        all_.clear();
    return all != 0;
}

void Requests::cancel()
{
    for (MPI_Request &r : all_) {
        if (r == MPI_REQUEST_NULL)
            continue;
        PMPI_Cancel(&r);
        PMPI_Request_free(&r);
    }
    all_.clear();
}

// ---- elements ----

size_t size_of(ncclDataType_t type)
{
    switch (type) {
    case ncclInt8:
    case ncclUint8:
        return 1;
    case ncclFloat16:
    case ncclBfloat16:
        return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
        return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
        return 8;
    default:
        die("NCCL: type %d is not emulated", static_cast<int>(type));
    }
}

namespace
{

const char *type_name(int type)
{
    static const char *const names[] = {"int8",   "uint8",   "int32",   "uint32",  "int64",
                                        "uint64", "float16", "float32", "float64", "bfloat16"};
    return type >= 0 && type < 10 ? names[type] : "of an unknown type";
}

const char *op_name(int op)
{
    static const char *const names[] = {"sum", "prod", "max", "min"};
    return op >= 0 && op < 4 ? names[op] : "no operation";
}

// Integers wrap, so they are added as what wraps without undefined behaviour.
template <typename T, bool = std::is_integral<T>::value> struct Wrapping {
    typedef typename std::make_unsigned<T>::type type;
};
template <typename T> struct Wrapping<T, false> {
    typedef T type;
};

template <typename T> T combined(T a, T b, ncclRedOp_t op)
{
    typedef typename Wrapping<T>::type U;
    switch (op) {
    case ncclSum:
        return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
    case ncclProd:
        return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
    default:
        break;
    }
    if constexpr (std::is_floating_point<T>::value) // a NaN loses against a number, as with fmaxf
        return op == ncclMax ? std::fmax(a, b) : std::fmin(a, b);
    return op == ncclMax ? (a > b ? a : b) : (a < b ? a : b);
}

template <typename T> void combine(char *into, const char *from, size_t count, ncclRedOp_t op)
{
    for (size_t i = 0; i < count; i++) {
        T a, b;
        std::memcpy(&a, into + i * sizeof(T), sizeof(T));
        std::memcpy(&b, from + i * sizeof(T), sizeof(T));
        a = combined(a, b, op);
        std::memcpy(into + i * sizeof(T), &a, sizeof(T));
    }
}

// 16-bit types: in fp32, which has room for the exact sum or product to be rounded once.
template <typename T, float (*widen)(T), T (*narrow)(float)>
void combine_narrow(char *into, const char *from, size_t count, ncclRedOp_t op)
{
    for (size_t i = 0; i < count; i++) {
        T a, b;
        std::memcpy(&a, into + i * sizeof(T), sizeof(T));
        std::memcpy(&b, from + i * sizeof(T), sizeof(T));
        a = narrow(combined(widen(a), widen(b), op));
        std::memcpy(into + i * sizeof(T), &a, sizeof(T));
    }
}

float widen_half(__half x)
{
    return __half2float(x);
}
__half narrow_half(float x)
{
    return __float2half_rn(x);
}
float widen_bf16(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}
__nv_bfloat16 narrow_bf16(float x)
{
    return __float2bfloat16_rn(x);
}

void combine(char *into, const char *from, size_t count, ncclDataType_t type, ncclRedOp_t op)
{
    switch (type) {
    case ncclInt8:
        return combine<int8_t>(into, from, count, op);
    case ncclUint8:
        return combine<uint8_t>(into, from, count, op);
    case ncclInt32:
        return combine<int32_t>(into, from, count, op);
    case ncclUint32:
        return combine<uint32_t>(into, from, count, op);
    case ncclInt64:
        return combine<int64_t>(into, from, count, op);
    case ncclUint64:
        return combine<uint64_t>(into, from, count, op);
    case ncclFloat16:
        return combine_narrow<__half, widen_half, narrow_half>(into, from, count, op);
    case ncclBfloat16:
        return combine_narrow<__nv_bfloat16, widen_bf16, narrow_bf16>(into, from, count, op);
    case ncclFloat32:
        return combine<float>(into, from, count, op);
    case ncclFloat64:
        return combine<double>(into, from, count, op);
    default:
        die("NCCL: type %d is not emulated", static_cast<int>(type));
    }
}

bool reduces(Kind kind)
{
    return kind == Kind::all_reduce || kind == Kind::reduce_scatter || kind == Kind::reduce;
}

bool has_root(Kind kind)
{
    return kind == Kind::broadcast || kind == Kind::reduce;
}

} // namespace

// ---- calls ----

const char *name_of(Kind kind)
{
    static const char *const names[] = {"ncclAllReduce", "ncclReduceScatter", "ncclAllGather", "ncclBroadcast",
                                        "ncclReduce",    "ncclSend",          "ncclRecv"};
    return names[static_cast<int>(kind)];
}

size_t bytes_in(const ncclComm &c, const Call &call)
{
    const size_t bytes = call.count * size_of(call.type);
    if (call.kind == Kind::recv || (call.kind == Kind::broadcast && c.rank != call.root))
        return 0;
    return call.kind == Kind::reduce_scatter ? bytes * static_cast<size_t>(c.size) : bytes;
}

size_t bytes_out(const ncclComm &c, const Call &call)
{
    const size_t bytes = call.count * size_of(call.type);
    if (call.kind == Kind::send || (call.kind == Kind::reduce && c.rank != call.root))
        return 0;
    return call.kind == Kind::all_gather ? bytes * static_cast<size_t>(c.size) : bytes;
}

// ---- the exchange ----

Exchange::Exchange(ncclComm *c, const Call &call) : c_(c), call_(call), bytes_(call.count * size_of(call.type))
{
    std::memset(&mine_, 0, sizeof mine_);
    mine_.kind = static_cast<int32_t>(call.kind);
    mine_.type = call.type;
    mine_.op = reduces(call.kind) ? call.op : -1;
    mine_.root = has_root(call.kind) ? call.root : -1;
    mine_.count = call.count;
    if (is_collective(call.kind))
        mine_.sequence = c->collectives++;
}

bool Exchange::is_peer(int rank) const
{
    return is_collective(call_.kind) ? rank != c_->rank : rank == call_.root;
}

void Exchange::touch_buffers() const
{
    if (const size_t in = bytes_in(*c_, call_))
        touch(call_.in, in, Access::read, "send buffer");
    if (const size_t out = bytes_out(*c_, call_))
        touch(call_.out, out, Access::write, "receive buffer");
}

void Exchange::advance(bool may_send_data)
{
    if (phase_ == Phase::none) {
        if (fails(name_of(call_.kind)))
            return c_->fail(ncclRemoteError, std::string(name_of(call_.kind)) + " failed, as the test has asked");
        touch_buffers();
        exchange_headers();
        phase_ = Phase::headers;
    }
    if (phase_ == Phase::headers && may_send_data && requests_.done()) {
        for (int r = 0; r < c_->size; r++)
            if (is_peer(r))
                check_header(r);
        exchange_data();
        phase_ = Phase::data;
    }
    if (phase_ == Phase::data && requests_.done()) {
        finish();
        phase_ = Phase::done;
    }
}

void Exchange::exchange_headers()
{
    const bool collective = is_collective(call_.kind), sends = call_.kind == Kind::send;
    const Purpose mine = collective ? Purpose::collective_header
                         : sends    ? Purpose::send_header
                                    : Purpose::recv_header,
                  theirs = collective ? Purpose::collective_header
                           : sends    ? Purpose::recv_header
                                      : Purpose::send_header;
    theirs_.resize(static_cast<size_t>(c_->size));
    for (int r = 0; r < c_->size; r++) {
        if (!is_peer(r))
            continue;
        requests_.add(receive_bytes(*c_, r, theirs, &theirs_[static_cast<size_t>(r)], sizeof(Header)));
        requests_.add(send_bytes(*c_, r, mine, &mine_, sizeof mine_));
    }
}

std::string Exchange::text(const Header &h, int rank) const
{
    const Kind kind = static_cast<Kind>(h.kind);
    std::string s = "rank " + std::to_string(rank) + " does " + name_of(kind) + " of " + std::to_string(h.count) + " " +
                    type_name(h.type);
    if (reduces(kind))
        s += std::string(", ") + op_name(h.op);
    if (has_root(kind))
        s += ", root " + std::to_string(h.root);
    if (is_collective(kind))
        s += ", as number " + std::to_string(h.sequence) + " of the communicator";
    return s;
}

void Exchange::check_header(int peer) const
{
    const Header &h = theirs_[static_cast<size_t>(peer)];
    const bool same = is_collective(call_.kind)
                          ? std::memcmp(&h, &mine_, sizeof h) == 0
                          : h.count == mine_.count && h.type == mine_.type; // their kinds are told by the purpose
    if (!same)
        die("NCCL: %s; %s", text(mine_, c_->rank).c_str(), text(h, peer).c_str());
}

void Exchange::send_to(int peer, size_t offset, size_t bytes)
{
    requests_.add(send_bytes(*c_, peer, is_collective(call_.kind) ? Purpose::collective_data : Purpose::data,
                             sent_.data() + offset, bytes));
}

void Exchange::receive_from(int peer, size_t bytes)
{
    requests_.add(receive_bytes(*c_, peer, is_collective(call_.kind) ? Purpose::collective_data : Purpose::data,
                                part(peer), bytes));
}

void Exchange::exchange_data()
{
    const bool is_root = has_root(call_.kind) && c_->rank == call_.root;
    const char *in = static_cast<const char *>(call_.in);
    if (const size_t size = bytes_in(*c_, call_))
        sent_.assign(in, in + size);
    received_.resize(bytes_ * static_cast<size_t>(c_->size));
    for (int r = 0; r < c_->size; r++) {
        const bool me = r == c_->rank;
        const size_t block = call_.kind == Kind::reduce_scatter ? static_cast<size_t>(r) * bytes_ : 0;
        switch (call_.kind) {
        case Kind::all_reduce:
        case Kind::all_gather:
        case Kind::reduce_scatter:
            if (me) {
                std::memcpy(part(r), sent_.data() + block, bytes_);
            } else {
                receive_from(r, bytes_);
                send_to(r, block, bytes_);
            }
            break;
        case Kind::broadcast:
            if (is_root && me)
                std::memcpy(part(r), sent_.data(), bytes_);
            else if (is_root)
                send_to(r, 0, bytes_);
            else if (r == call_.root)
                receive_from(r, bytes_);
            break;
        case Kind::reduce:
            if (is_root && me)
                std::memcpy(part(r), sent_.data(), bytes_);
            else if (is_root)
                receive_from(r, bytes_);
            else if (r == call_.root)
                send_to(r, 0, bytes_);
            break;
        case Kind::send:
            if (r == call_.root)
                send_to(r, 0, bytes_);
            break;
        case Kind::recv:
            if (r == call_.root)
                receive_from(r, bytes_);
            break;
        }
    }
}

void Exchange::reduce_into_first() const
{
    for (int r = 1; r < c_->size; r++)
        combine(received_.data(), received_.data() + static_cast<size_t>(r) * bytes_, call_.count, call_.type,
                call_.op);
}

void Exchange::finish()
{
    const size_t size = bytes_out(*c_, call_);
    if (reduces(call_.kind) && size > 0)
        reduce_into_first();
    const bool from_root = call_.kind == Kind::broadcast || call_.kind == Kind::recv;
    if (size > 0)
        std::memcpy(call_.out, from_root ? part(call_.root) : received_.data(), size);
    received_ = {};
    sent_ = {};
}

} // namespace fakecuda::nccl
