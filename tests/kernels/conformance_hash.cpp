// The row of hash: every bit is compared with the formula of kernels/kernels.h.
#include <xxhash.h>

#include "tests/kernels/conformance.h"

namespace conformance
{

namespace
{

void hash(Bench &t)
{
    const struct {
        int64_t rows;
        size_t row_bytes, stride;
    } sizes[] = {{0, 16, 16}, {1, 0, 0},   {1, 1, 1},     {1, 100003, 100003},
                 {3, 0, 8},   {5, 24, 24}, {7, 130, 256}, {31, 1000, 2000}};
    for (const auto &s : sizes)
        for (int threads : {1, 2}) {
            t.say("rows " + std::to_string(s.rows) + ", bytes " + std::to_string(s.row_bytes) + ", stride " +
                  std::to_string(s.stride));
            std::vector<unsigned char> x(static_cast<size_t>(s.rows) * s.stride + 1);
            for (size_t i = 0; i < x.size(); i++)
                x[i] = static_cast<unsigned char>(i * 7919 >> 3);
            uint64_t want = 0, got = 1;
            for (int64_t r = 0; r < s.rows; r++)
                want = XXH3_64bits_withSeed(&x[static_cast<size_t>(r) * s.stride], s.row_bytes, want);
            const Raw &matrix = t.raw(x);
            t.once(
                [&](const plait_kernels &k, const plait_exec *ex, Side at) {
                    return k.hash(ex, &got, at.as<unsigned char>(matrix), s.rows, s.row_bytes, s.stride);
                },
                threads);
            if (got != want)
                t.fail("hash.out has other bits");
        }
}

} // namespace

void add_hash_rows(std::vector<Row> &rows)
{
    rows.push_back({"hash", PLAIT_OP_hash, hash});
}

} // namespace conformance
