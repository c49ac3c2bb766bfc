#include "replicas.h"

#include "kernels/backend.h"

#include <gtest/gtest.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>

std::vector<char> gather_bytes(plait_world *world, const void *mine, size_t bytes)
{
    std::vector<char> all;
    for (int q = 0; q < world->size; q++) {
        size_t n = bytes;
        EXPECT_EQ(plait_comm_broadcast_bytes(world->comm, &n, sizeof n, q), PLAIT_OK) << plait_error_text();
        const size_t at = all.size();
        all.resize(at + n);
        if (q == world->rank && n > 0)
            std::memcpy(&all[at], mine, n);
        EXPECT_EQ(plait_comm_broadcast_bytes(world->comm, all.data() + at, n, q), PLAIT_OK) << plait_error_text();
    }
    return all;
}

namespace
{

struct Held {
    char key[200]; // the elements of a logical tensor
    uint64_t hash; // of their bits
};

// The part of a parameter that this rank holds, with its bits.
std::vector<Held> held_parameters(const plait_training &t)
{
    const plait_zero *z = plait_engine_zero(t.engine);
    const plait_param_list *list = plait_engine_params(t.engine);
    const bool sharded = t.cfg->zero.stage == 3;
    const plait_dtype dtype = sharded ? plait_dtype_acc(t.cfg->precision.dtype) : t.cfg->precision.dtype;
    std::vector<Held> all;
    for (int i = 0; i < list->num_params; i++) {
        const plait_param *p = &list->params[i];
        int64_t begin = p->offset, end = p->offset + plait_param_numel(p);
        std::vector<char> bits;
        if (sharded) {
            int64_t held, held_end;
            plait_zero_held(z, p->unit, &held, &held_end);
            begin = std::max(begin, held);
            end = std::min(end, held_end);
            if (begin >= end)
                continue;
            bits.resize((size_t)(end - begin) * plait_dtype_size(dtype));
            EXPECT_EQ(plait_zero_read(z, p->unit, begin, end - begin, bits.data()), PLAIT_OK) << plait_error_text();
        } else {
            const plait_exec *ex = plait_engine_exec(t.engine);
            bits.resize((size_t)(end - begin) * plait_dtype_size(dtype));
            EXPECT_EQ(
                plait_download(ex, bits.data(), plait_at(plait_zero_param(z, p->unit), dtype, begin), bits.size()),
                PLAIT_OK)
                << plait_error_text();
            EXPECT_EQ(plait_finish(ex), PLAIT_OK) << plait_error_text();
        }
        Held h = {};
        std::snprintf(h.key, sizeof h.key, "%s rows %lld+%lld columns %lld+%lld elements %lld to %lld", p->name,
                      (long long)p->row0, (long long)p->rows, (long long)p->col0, (long long)p->cols,
                      (long long)(begin - p->offset), (long long)(end - p->offset));
        h.hash = XXH3_64bits(bits.data(), bits.size());
        all.push_back(h);
    }
    return all;
}

} // namespace

int64_t check_replicas(const plait_training &t)
{
    const std::vector<Held> mine = held_parameters(t);
    const std::vector<char> bytes = gather_bytes(t.world, mine.data(), mine.size() * sizeof(Held));
    std::map<std::string, uint64_t> first;
    int64_t compared = 0;
    for (size_t at = 0; at < bytes.size(); at += sizeof(Held)) {
        Held h;
        std::memcpy(&h, &bytes[at], sizeof h);
        const auto found = first.emplace(h.key, h.hash);
        if (found.second)
            continue;
        compared++;
        EXPECT_EQ(found.first->second, h.hash) << "copies differ: " << h.key;
    }
    return compared;
}
