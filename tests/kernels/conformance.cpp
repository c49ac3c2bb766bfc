#include "tests/kernels/conformance.h"

#include <cmath>
#include <cstdio>
#include <cstring>

#include "kernels/ref/ref.h"
#include "tests/kernels/bounds.h"

namespace conformance
{

namespace
{

constexpr unsigned char kPoison = 0xff; // a byte that makes a NaN of every float type
constexpr size_t kGuard = 64;
constexpr size_t kScratch = 4 << 20;
constexpr size_t kMaxFailures = 4; // of one row: more say nothing new

} // namespace

double load(const void *p, plait_dtype dtype, int64_t i)
{
    switch (dtype) {
    case PLAIT_FP32:
        return static_cast<const float *>(p)[i];
    case PLAIT_BF16:
        return plait_bf16_to_float(static_cast<const uint16_t *>(p)[i]);
    case PLAIT_FP16:
        return plait_fp16_to_float(static_cast<const uint16_t *>(p)[i]);
    default:
        return static_cast<const double *>(p)[i];
    }
}

void store(void *p, plait_dtype dtype, int64_t i, double value)
{
    switch (dtype) {
    case PLAIT_FP32:
        static_cast<float *>(p)[i] = static_cast<float>(value);
        break;
    case PLAIT_BF16:
        static_cast<uint16_t *>(p)[i] = plait_float_to_bf16(static_cast<float>(value));
        break;
    case PLAIT_FP16:
        static_cast<uint16_t *>(p)[i] = plait_float_to_fp16(static_cast<float>(value));
        break;
    default:
        static_cast<double *>(p)[i] = value;
    }
}

Array::Array(int64_t rows_, int64_t cols_, int64_t ld_, plait_dtype dtype_)
    : rows(rows_), cols(cols_), ld(ld_ ? ld_ : cols_), dtype(dtype_), d(static_cast<size_t>(rows * ld), std::nan("")),
      size_(d.size() * plait_dtype_size(dtype)), bytes_(std::aligned_alloc(64, (size_ + kGuard + 63) / 64 * 64))
{
    std::memset(bytes_.get(), kPoison, size_ + kGuard);
}

double Array::max_abs() const
{
    double max = 0;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            max = std::fmax(max, std::fabs(at(r, c)));
    return max;
}

double Array::got(int64_t r, int64_t c) const
{
    return load(bytes_.get(), dtype, r * ld + c);
}

void Array::set(int64_t r, int64_t c, double value)
{
    store(bytes_.get(), dtype, r * ld + c, value);
    d[static_cast<size_t>(r * ld + c)] = got(r, c);
}

void Array::round()
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            set(r, c, at(r, c));
}

bool Array::guards_intact() const
{
    const unsigned char *p = static_cast<const unsigned char *>(bytes_.get());
    const size_t element = plait_dtype_size(dtype), row = static_cast<size_t>(ld) * element;
    for (size_t r = 0; r < static_cast<size_t>(rows); r++)
        for (size_t i = static_cast<size_t>(cols) * element; i < row; i++)
            if (p[r * row + i] != kPoison)
                return false;
    for (size_t i = 0; i < kGuard; i++)
        if (p[size_ + i] != kPoison)
            return false;
    return true;
}

Bench::Bench(const plait_kernels &table_) : table(table_), T(table_.dtype), A(table_.acc), scratch_(kScratch) {}

Array &Bench::values(int64_t rows, int64_t cols, plait_dtype dtype, int64_t ld, double size, double offset)
{
    Array &a = arrays_.emplace_back(rows, cols, ld, dtype);
    const plait_rng rng = plait_rng_make(1234, PLAIT_RNG_DATA, 0, 0, stream_++);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            a.set(r, c, offset + size * plait_rng_normal(&rng, static_cast<uint64_t>(r * cols + c)));
    return a;
}

Array &Bench::output(int64_t rows, int64_t cols, plait_dtype dtype, int64_t ld)
{
    return arrays_.emplace_back(rows, cols, ld, dtype);
}

void Bench::both(const Call &call, int threads, int again)
{
    std::vector<std::vector<char>> before, first;
    auto snapshot = [&](std::vector<std::vector<char>> &into) {
        for (const Array &a : arrays_) {
            const char *p = static_cast<const char *>(a.bytes());
            into.emplace_back(p, p + a.size());
        }
    };
    plait_exec ex = {&table, nullptr, nullptr, scratch_.data(), scratch_.size(), threads};

    snapshot(before);
    if (call(table, &ex, {false}) != PLAIT_OK)
        fail(plait_error_text());
    snapshot(first);
    for (size_t i = 0; i < arrays_.size(); i++)
        std::memcpy(arrays_[i].bytes(), before[i].data(), before[i].size());
    ex.threads = again;
    if (call(table, &ex, {false}) != PLAIT_OK)
        fail(plait_error_text());
    for (size_t i = 0; i < arrays_.size(); i++) {
        if (std::memcmp(arrays_[i].bytes(), first[i].data(), first[i].size()))
            fail(std::to_string(threads) + " and " + std::to_string(again) + " threads give different bits");
        if (!arrays_[i].guards_intact())
            fail("wrote outside of a matrix");
    }

    ex.k = plait_kernels_ref(PLAIT_FP64);
    if (call(*ex.k, &ex, {true}) != PLAIT_OK)
        fail(plait_error_text());
}

void Bench::check(const char *output, int64_t r, int64_t c, double got, double want, double bound)
{
    if (std::fabs(got - want) <= bound || got == want || failures.size() >= kMaxFailures)
        return;
    char text[256];
    std::snprintf(text, sizeof text, "%s[%lld,%lld] is %.9g, not %.9g: off by %.2g, bound %.2g", output,
                  static_cast<long long>(r), static_cast<long long>(c), got, want, std::fabs(got - want), bound);
    fail(text);
}

void Bench::compare(const char *output, const Array &a, double K, const Scale &scale)
{
    compare(output, a, K, scale, A);
}

void Bench::compare(const char *output, const Array &a, double K, const Scale &scale, plait_dtype acc)
{
    const double bound = bound_of(output, a.dtype, acc, K);
    const double tiny = bound > 0 ? half_subnormal(a.dtype) : 0;
    for (int64_t r = 0; r < a.rows; r++)
        for (int64_t c = 0; c < a.cols; c++)
            check(output, r, c, a.got(r, c), a.at(r, c), bound * scale(r, c) + tiny);
}

const std::vector<Row> &rows()
{
    static const std::vector<Row> all = [] {
        std::vector<Row> list;
        add_linear_rows(list);
        add_norm_rows(list);
        add_attention_rows(list);
        add_pointwise_rows(list);
        add_loss_rows(list);
        add_optim_rows(list);
        add_fixed_rows(list);
        add_hash_rows(list);
        add_convert_rows(list);
        return list;
    }();
    return all;
}

std::vector<std::string> run(const Row &row, const plait_kernels &table)
{
    Bench bench(table);
    row.run(bench);
    return bench.failures;
}

} // namespace conformance
