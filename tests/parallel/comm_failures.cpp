// A job that goes wrong on purpose, in the way its argument says; CTest looks at what is printed and how it ends
// (CMakeLists.txt). No case may hang.
#include "comm_testing.h"
#include "parallel/comm_impl.h"

#include <csignal>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <vector>

namespace
{

plait_world world;

plait_status all_reduce(plait_comm *c, int64_t count)
{
    std::vector<float> x((size_t)count, 1.0f);
    plait_comm_op op = plait_comm_make(PLAIT_COMM_ALL_REDUCE, x.data(), x.data(), count, PLAIT_FP32);
    return plait_comm_run(c, &op, testing_exec());
}

// Rank 1 starts another operation than the others.
plait_status mismatch(plait_comm *c)
{
    if (world.rank != 1)
        return all_reduce(c, 8 * world.size);
    std::vector<float> x((size_t)world.size * 2, 1.0f);
    plait_comm_op op = plait_comm_make(PLAIT_COMM_ALL_GATHER, x.data(), x.data(), world.size, PLAIT_FP32);
    return plait_comm_run(c, &op, testing_exec());
}

plait_status run(const char *what)
{
    plait_comm *c = nullptr;
    plait_ledger ledger = {};
    std::vector<int> ranks((size_t)world.size);
    std::iota(ranks.begin(), ranks.end(), 0);
    plait_comm_set_exec(testing_exec());
    PLAIT_TRY(plait_comm_create(&world, "test", ranks.data(), world.size, &c));
    PLAIT_TRY(plait_comm_reserve(c, 1 << 16, 4096, PLAIT_TIER_HOST, &ledger));
    PLAIT_TRY(all_reduce(c, 100));
    if (std::strcmp(what, "mismatch") == 0)
        return mismatch(c);
    if (world.rank == 1 && std::strcmp(what, "killed") == 0)
        std::raise(SIGKILL);
    if (world.rank == 1 && std::strcmp(what, "fails") == 0)
        PLAIT_FAIL(IO, "the disk of rank 1 is full");
    if (std::strcmp(what, "well") == 0) {
        plait_comm_destroy(c);
        return PLAIT_OK;
    }
    return all_reduce(c, 100);
}

} // namespace

int main(int argc, char **argv)
{
    plait_status st = plait_world_init(&world, &argc, &argv);
    plait_comm_set_timeout(60.0);
    if (st == PLAIT_OK)
        st = run(argc > 1 ? argv[1] : "");
    if (st != PLAIT_OK) {
        std::fprintf(stderr, "rank %d: %s: %s\n", world.rank, plait_status_text(st), plait_error_text());
        plait_world_abort(&world, plait_status_exit_code(st));
    }
    plait_world_finalize(&world);
    return 0;
}
