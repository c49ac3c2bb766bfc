// Jobs of two ranks that use the emulated NCCL wrongly, in the way their argument says: they end with a sentence, which
// CTest looks for (libraries.cmake). What is wrong is wrong on rank 1.
#include <unistd.h>

#include <cstring>

#include "tests/fakecuda/tests/device_array.h"
#include "tests/fakecuda/tests/nccl_world.h"

namespace
{

const size_t kCount = 8;

// NCCL's calls return at once: what is wrong shows where the host waits.
void meet(int rank, const char *what, ncclComm_t c)
{
    const DeviceArray<float> x(std::vector<float>(4 * kCount, 1.0f));
    float *const p = x.data();
    const auto is = [&](const char *name) { return rank == 1 && std::strcmp(what, name) == 0; };
    if (std::strcmp(what, "send") == 0) {
        if (rank == 0)
            ncclSend(p, kCount, ncclFloat32, 1, c, nullptr);
        else
            ncclRecv(p, kCount / 2, ncclFloat32, 0, c, nullptr);
    } else if (std::strcmp(what, "head_to_head") == 0) {
        ncclSend(p, kCount, ncclFloat32, 1 - rank, c, nullptr);
        ncclRecv(p + kCount, kCount, ncclFloat32, 1 - rank, c, nullptr);
    } else if (std::strcmp(what, "root") == 0) {
        ncclBroadcast(p, p, kCount, ncclFloat32, rank, c, nullptr);
    } else if (is("kind")) {
        ncclAllGather(p, p + 2 * kCount, kCount, ncclFloat32, c, nullptr);
    } else if (is("overlap")) {
        ncclAllReduce(p, p + 1, kCount, ncclFloat32, ncclSum, c, nullptr);
    } else if (is("host")) {
        float host[kCount] = {};
        ncclAllReduce(host, host, kCount, ncclFloat32, ncclSum, c, nullptr);
    } else if (is("bounds")) {
        ncclAllReduce(p, p, 4 * kCount + 1, ncclFloat32, ncclSum, c, nullptr);
    } else if (is("destroyed")) {
        ncclCommDestroy(c);
        ncclAllReduce(p, p, kCount, ncclFloat32, ncclSum, c, nullptr);
    } else if (is("average")) {
        ncclAllReduce(p, p, kCount, ncclFloat32, ncclAvg, c, nullptr);
    } else if (is("missing")) {
        sleep(4); // longer than the other's patience
    } else {
        ncclAllReduce(p, p, is("count") ? kCount - 1 : kCount, is("type") ? ncclInt32 : ncclFloat32,
                      is("op") ? ncclMax : ncclSum, c, nullptr);
    }
    cudaDeviceSynchronize();
}

} // namespace

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    World world;
    ncclComm_t c;
    if (ncclCommInitRank(&c, world.size, shared_id(), world.rank) != ncclSuccess)
        return 1;
    meet(world.rank, argv[1], c);
    ncclCommDestroy(c);
    return 0;
}
