// Rows of fixed_add, fixed_read and fixed_squares: exact, so every bit is compared with core/fixed.h.
#include <cmath>

#include "tests/kernels/conformance.h"

namespace conformance
{

namespace
{

const int64_t kLengths[] = {1, 7, 31, 257, 70001};

// Gradients of many sizes, and in places what does not fit.
std::vector<double> numbers(const Array &x)
{
    std::vector<double> all;
    for (int64_t i = 0; i < x.cols; i++)
        all.push_back(x.got(0, i));
    return all;
}

void add(Bench &t)
{
    const struct {
        const char *name;
        double put, limit;
        int32_t overflow;
    } cases[] = {{"small", 1e-9, 256, 0},
                 {"half of a unit", 0x1p-44, 256, 0},
                 {"largest", 255.99, 256, 0},
                 {"too large", 256, 256, 1},
                 {"minus", -256, 256, 1},
                 {"too large of many", 16, 16, 1},
                 {"largest of many", -15.99, 16, 0},
                 {"infinite", INFINITY, 256, 1},
                 {"not a number", NAN, 256, 1}};
    for (const auto &c : cases)
        for (int64_t n : kLengths)
            for (int threads : {1, 2}) {
                const double scale = 0x1p-3;
                t.say(std::string(c.name) + ", n " + std::to_string(n) + ", threads " + std::to_string(threads));
                Array &x = t.values(1, n, t.A, 0, 1e-3);
                x.set(0, n / 2, c.put / scale);
                std::vector<int64_t> sum(static_cast<size_t>(n), 5), want = sum;
                const std::vector<double> in = numbers(x);
                for (size_t i = 0; i < in.size(); i++) {
                    int64_t term;
                    plait_fixed_from(in[i] * scale, c.limit, &term);
                    want[i] += term;
                }
                const Raw &sums = t.raw(sum), &flag = t.scalar(int32_t{0});
                t.once(
                    [&](const plait_kernels &k, const plait_exec *ex, Side at) {
                        return k.fixed_add(ex, at.as<int64_t>(sums), at(x), scale, c.limit, n, at.as<int32_t>(flag));
                    },
                    threads);
                if (sums.get<int64_t>() != want)
                    t.fail("fixed_add.sum has other bits");
                const int32_t overflow = flag.get<int32_t>()[0];
                if (overflow != c.overflow)
                    t.fail("fixed_add.overflow is " + std::to_string(overflow));
            }
}

void read(Bench &t)
{
    for (int64_t n : kLengths) {
        t.say("n " + std::to_string(n));
        std::vector<int64_t> sum;
        for (int64_t i = 0; i < n; i++) /* more bits than fp32 has, of either sign */
            sum.push_back((i % 2 ? 1 : -1) * (INT64_C(0x123456789abcd) >> (i % 40)) + i);
        Array &y = t.output(1, n, t.A);
        const Raw &sums = t.raw(sum);
        t.once([&](const plait_kernels &k, const plait_exec *ex,
                   Side at) { return k.fixed_read(ex, at(y), at.as<int64_t>(sums), n); },
               2);
        for (int64_t i = 0; i < n; i++)
            if (y.got(0, i) != static_cast<double>(static_cast<float>(sum[static_cast<size_t>(i)])) * 0x1p-43)
                t.fail("fixed_read.y at " + std::to_string(i));
    }
}

// total += squares of x; the flag.
int32_t add_squares(Bench &t, const Array &x, plait_fixed_squares &total, int threads)
{
    const Raw &sum = t.scalar(total), &flag = t.scalar(int32_t{0});
    t.once(
        [&](const plait_kernels &k, const plait_exec *ex, Side at) {
            return k.fixed_squares(ex, at.as<plait_fixed_squares>(sum), at(x), x.cols, at.as<int32_t>(flag));
        },
        threads);
    total = sum.get<plait_fixed_squares>()[0];
    return flag.get<int32_t>()[0];
}

void squares(Bench &t)
{
    for (double put : {0.25, 0x1p11, 0x1p12})
        for (int64_t n : kLengths) {
            t.say("n " + std::to_string(n));
            Array &x = t.output(1, n, t.A);
            plait_fixed_squares want = 7;
            for (int64_t i = 0; i < n; i++) { /* multiples of the unit */
                const int64_t k = (i * 7919 + 1) % 100003 - 50000;
                x.set(0, i, static_cast<double>(k) * 0x1p-43);
                want += static_cast<plait_fixed_squares>(k * k);
            }
            const int64_t first = 1 - 50000;
            want -= static_cast<plait_fixed_squares>(first * first);
            x.set(0, 0, put);
            const bool fits = put < 0x1p12;
            const uint64_t k = fits ? static_cast<uint64_t>(put * 0x1p43) : 0;
            want += static_cast<plait_fixed_squares>(k) * k;
            plait_fixed_squares total = 7;
            const int32_t overflow = add_squares(t, x, total, 2);
            if (total != want)
                t.fail("fixed_squares.total has other bits");
            if (overflow != !fits)
                t.fail("fixed_squares.overflow is " + std::to_string(overflow));
        }
}

// Each fits; the sum of all does only where there are not too many.
void sum_of_squares(Bench &t)
{
    for (int64_t n : {INT64_C(1) << 15, (INT64_C(1) << 16) + 64}) {
        t.say("n " + std::to_string(n));
        Array &x = t.output(1, n, t.A);
        for (int64_t i = 0; i < n; i++)
            x.set(0, i, 4095.99);
        for (int threads : {1, 2}) {
            plait_fixed_squares total = 0;
            const int32_t overflow = add_squares(t, x, total, threads);
            if (overflow != (n > (1 << 16)))
                t.fail("fixed_squares.overflow is " + std::to_string(overflow));
        }
    }
}

} // namespace

void add_fixed_rows(std::vector<Row> &rows)
{
    rows.push_back({"fixed_add", PLAIT_OP_fixed_add, add});
    rows.push_back({"fixed_read", PLAIT_OP_fixed_read, read});
    rows.push_back({"fixed_squares", PLAIT_OP_fixed_squares, squares});
    rows.push_back({"fixed_squares_sum", PLAIT_OP_fixed_squares, sum_of_squares});
}

} // namespace conformance
