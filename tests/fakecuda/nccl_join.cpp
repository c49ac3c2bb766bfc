// How the ranks of a communicator find each other. A unique id names a page of shared memory, where each rank writes
// who it is; ranks are on one node. A split is one message from every rank of the parent to every other.
#include "tests/fakecuda/nccl_impl.h"
#include "tests/fakecuda/streams.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <ctime>

namespace fakecuda::nccl
{

namespace
{

constexpr int MOST_RANKS = 256, MOST_CONTEXTS = 4096; // contexts of one rank

struct Id {
    char page[64];
    int context;
};
static_assert(sizeof(Id) <= sizeof(ncclUniqueId), "");

// In shared memory, zero at first.
struct Page {
    struct Rank {
        std::atomic<int> here;
        int size, world, device;
    } ranks[MOST_RANKS];
    std::atomic<int> left;
};

int new_context()
{
    static int made;
    if (made == MOST_CONTEXTS)
        die("more than %d communicators of one rank", MOST_CONTEXTS);
    return world_rank() * MOST_CONTEXTS + made++;
}

// One rank's way into a communicator.
class Join
{
  public:
    Join(ncclComm *c, const Id &id) : c_(c), id_(id)
    {
        const int file = shm_open(id.page, O_RDWR | O_CREAT, 0600);
        if (file < 0 || ftruncate(file, sizeof(Page)) != 0)
            die("ncclCommInitRank: no shared memory");
        void *p = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        close(file);
        if (p == MAP_FAILED)
            die("ncclCommInitRank: no shared memory");
        page_ = static_cast<Page *>(p);
        Page::Rank &me = page_->ranks[c->rank];
        if (me.here.load() != 0)
            die("ncclCommInitRank: two ranks %d", c->rank);
        me.size = c->size;
        me.world = world_rank();
        me.device = c->device;
        me.here.store(1);
    }
    Join(const Join &) = delete;

    bool advance()
    {
        for (int r = 0; r < c_->size; r++)
            if (page_->ranks[r].here.load() == 0)
                return false;
        take();
        if (page_->left.fetch_add(1) + 1 == c_->size)
            shm_unlink(id_.page);
        munmap(page_, sizeof(Page));
        return true;
    }

  private:
    void take()
    {
        c_->context = id_.context;
        c_->world.clear();
        for (int r = 0; r < c_->size; r++) {
            if (page_->ranks[r].size != c_->size)
                die("ncclCommInitRank: rank %d says %d ranks, rank %d says %d", c_->rank, c_->size, r,
                    page_->ranks[r].size);
            c_->world.push_back(page_->ranks[r].world);
        }
        check_devices();
    }

    // NCCL's kernels of two ranks would wait for each other on one device, so it refuses.
    void check_devices()
    {
        for (int r = 0; r < c_->size; r++)
            for (int q = 0; q < r; q++)
                if (page_->ranks[r].device == page_->ranks[q].device && c_->state != ncclInvalidUsage)
                    c_->fail(ncclInvalidUsage, "Duplicate GPU detected : rank " + std::to_string(q) + " and rank " +
                                                   std::to_string(r) + " both on CUDA device " +
                                                   std::to_string(page_->ranks[r].device));
    }

    ncclComm *c_;
    const Id id_;
    Page *page_;
};

// One rank's part in a split.
class Split
{
  public:
    Split(ncclComm *parent, ncclComm *c, int color, int key) : parent_(parent), c_(c)
    {
        all_.resize(static_cast<size_t>(parent->size));
        mine() = {color, key, new_context()};
        for (int r = 0; r < parent->size; r++) {
            if (r == parent->rank)
                continue;
            requests_.add(receive_bytes(*parent, r, Purpose::split, &all_[static_cast<size_t>(r)], sizeof(Part)));
            requests_.add(send_bytes(*parent, r, Purpose::split, &mine(), sizeof(Part)));
        }
    }

    bool advance()
    {
        if (!requests_.done())
            return false;
        std::vector<int> members; // ranks of the parent
        for (int r = 0; r < parent_->size; r++)
            if (part(r).color == mine().color)
                members.push_back(r);
        std::stable_sort(members.begin(), members.end(), [this](int a, int b) { return part(a).key < part(b).key; });
        if (!c_ || mine().color == NCCL_SPLIT_NOCOLOR)
            return true;
        c_->context = part(members[0]).context;
        c_->size = static_cast<int>(members.size());
        for (int r : members) {
            if (r == parent_->rank)
                c_->rank = static_cast<int>(c_->world.size());
            c_->world.push_back(parent_->world[static_cast<size_t>(r)]);
        }
        return true;
    }

  private:
    struct Part {
        int color, key, context;
    };
    Part &part(int rank) { return all_[static_cast<size_t>(rank)]; }
    Part &mine() { return part(parent_->rank); }

    ncclComm *parent_, *c_;
    std::vector<Part> all_;
    Requests requests_;
};

} // namespace

ncclResult_t make_unique_id(ncclUniqueId *out)
{
    Id id;
    std::memset(&id, 0, sizeof id);
    id.context = new_context();
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    std::snprintf(id.page, sizeof id.page, "/fakenccl-%d-%d-%lld", static_cast<int>(getpid()), id.context,
                  static_cast<long long>(now.tv_sec) * 1000000000 + now.tv_nsec);
    std::memset(out, 0, sizeof *out);
    std::memcpy(out->internal, &id, sizeof id);
    return ncclSuccess;
}

std::function<bool()> join(ncclComm *c, const ncclUniqueId &unique)
{
    Id id;
    std::memcpy(&id, unique.internal, sizeof id);
    if (std::strncmp(id.page, "/fakenccl-", 10) != 0)
        die("ncclCommInitRank: the unique id comes from no ncclGetUniqueId");
    if (c->size > MOST_RANKS)
        die("ncclCommInitRank: more than %d ranks are not emulated", MOST_RANKS);
    auto way = std::make_shared<Join>(c, id);
    return [way] { return way->advance(); };
}

std::function<bool()> split(ncclComm *parent, ncclComm *c, int color, int key)
{
    auto way = std::make_shared<Split>(parent, c, color, key);
    return [way] { return way->advance(); };
}

} // namespace fakecuda::nccl
