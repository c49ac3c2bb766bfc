#include "tests/kernels/conformance.h"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>

#include "kernels/ref/ref.h"
#include "tests/kernels/bounds.h"

namespace conformance
{

namespace
{

constexpr size_t kMaxFailures = 4; // of one row: more say nothing new

// What runs on a backend need, once for all rows: until the process ends.
class Device
{
  public:
    explicit Device(const plait_backend *backend) : backend_(backend)
    {
        if (backend->open(0, 1) != PLAIT_OK || backend->stream_create(&stream_) != PLAIT_OK)
            die(plait_error_text());
    }
    Device(const Device &) = delete;

    plait_exec exec(const plait_kernels &table, size_t scratch_bytes, int threads)
    {
        if (scratch_bytes > bytes_) {
            if (scratch_)
                backend_->tensors->free(backend_->tensors->self, scratch_, bytes_);
            scratch_ = backend_->tensors->alloc(backend_->tensors->self, scratch_bytes);
            bytes_ = scratch_bytes;
            if (!scratch_)
                die("no memory for scratch");
        }
        plait_exec ex = {};
        ex.k = &table;
        ex.backend = backend_;
        ex.stream = stream_;
        ex.scratch = scratch_bytes > 0 ? scratch_ : nullptr;
        ex.scratch_bytes = scratch_bytes;
        ex.threads = threads;
        return ex;
    }

  private:
    [[noreturn]] void die(const char *what) const
    {
        std::fprintf(stderr, "%s: %s\n", backend_->name, what);
        std::exit(2);
    }
    const plait_backend *backend_;
    void *stream_ = nullptr, *scratch_ = nullptr;
    size_t bytes_ = 0;
};

Device &device_of(const plait_backend *backend)
{
    static auto *devices = new std::map<const plait_backend *, Device>; // what is below may be gone before it
    return devices->try_emplace(backend, backend).first->second;
}

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

Memory::Memory(const Setting &setting, size_t size, size_t element)
    : backend_(setting.backend), size_(size), odd_(setting.odd ? element : 0),
      host_(static_cast<char *>(std::aligned_alloc(64, (size + 2 * kGuard + 63) / 64 * 64))), device_(nullptr),
      place_(bytes())
{
    std::memset(host_.get(), kPoison, whole());
    if (backend_ == plait_backend_cpu())
        return;
    device_of(backend_); // chooses the device
    device_ = static_cast<char *>(backend_->tensors->alloc(backend_->tensors->self, odd_ + whole()));
    if (!device_) {
        std::fprintf(stderr, "%s: no memory for %zu bytes\n", backend_->name, odd_ + whole());
        std::exit(2);
    }
    place_ = device_ + odd_ + kGuard;
}

Memory::~Memory()
{
    if (device_)
        backend_->tensors->free(backend_->tensors->self, device_, odd_ + whole());
}

plait_status Memory::upload(const plait_exec *ex) const
{
    return device_ ? backend_->upload(ex, device_ + odd_, host_.get(), whole()) : PLAIT_OK;
}

plait_status Memory::download(const plait_exec *ex) const
{
    return device_ ? backend_->download(ex, host_.get(), device_ + odd_, whole()) : PLAIT_OK;
}

bool Memory::outer_guards_intact() const
{
    const unsigned char *before = reinterpret_cast<const unsigned char *>(host_.get());
    const unsigned char *after = before + kGuard + size_;
    for (size_t i = 0; i < kGuard; i++)
        if (before[i] != kPoison || after[i] != kPoison)
            return false;
    return true;
}

Array::Array(const Setting &setting, int64_t rows_, int64_t cols_, int64_t ld_, plait_dtype dtype_)
    : Memory(setting, static_cast<size_t>(rows_ * (ld_ ? ld_ : cols_)) * plait_dtype_size(dtype_),
             plait_dtype_size(dtype_)),
      rows(rows_), cols(cols_), ld(ld_ ? ld_ : cols_), dtype(dtype_), d(static_cast<size_t>(rows * ld), std::nan(""))
{
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
    return load(bytes(), dtype, r * ld + c);
}

void Array::set(int64_t r, int64_t c, double value)
{
    store(bytes(), dtype, r * ld + c, value);
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
    const unsigned char *p = static_cast<const unsigned char *>(bytes());
    const size_t element = plait_dtype_size(dtype), row = static_cast<size_t>(ld) * element;
    for (size_t r = 0; r < static_cast<size_t>(rows); r++)
        for (size_t i = static_cast<size_t>(cols) * element; i < row; i++)
            if (p[r * row + i] != kPoison)
                return false;
    return outer_guards_intact();
}

Bench::Bench(const plait_kernels &table_, const Setting &setting)
    : table(table_), T(table_.dtype), A(table_.acc), setting_(setting)
{
}

Array &Bench::values(int64_t rows, int64_t cols, plait_dtype dtype, int64_t ld, double size, double offset)
{
    Array &a = arrays_.emplace_back(setting_, rows, cols, ld, dtype);
    const plait_rng rng = plait_rng_make(1234, PLAIT_RNG_DATA, 0, 0, stream_++);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            a.set(r, c, offset + size * plait_rng_normal(&rng, static_cast<uint64_t>(r * cols + c)));
    return a;
}

Array &Bench::output(int64_t rows, int64_t cols, plait_dtype dtype, int64_t ld)
{
    return arrays_.emplace_back(setting_, rows, cols, ld, dtype);
}

template <typename F> void Bench::each_memory(F f)
{
    for (Array &a : arrays_)
        f(a);
    for (Raw &r : raws_)
        f(r);
}

void Bench::once(const Call &call, int threads)
{
    const plait_exec ex = device_of(setting_.backend).exec(table, setting_.scratch_bytes, threads);
    const auto must = [&](plait_status st) {
        if (st != PLAIT_OK)
            fail(plait_error_text());
    };
    each_memory([&](const Memory &m) { must(m.upload(&ex)); });
    must(call(table, &ex, {false}));
    each_memory([&](const Memory &m) { must(m.download(&ex)); });
    must(setting_.backend->finish(&ex));
    each_memory([&](const auto &m) {
        if (!m.guards_intact())
            fail("wrote outside of a matrix");
    });
}

void Bench::both(const Call &call, int threads, int again)
{
    std::deque<std::vector<char>> before, first;
    const auto bytes_of = [](const Memory &m) {
        const char *p = static_cast<const char *>(m.bytes());
        return std::vector<char>(p, p + m.size());
    };
    each_memory([&](const Memory &m) { before.push_back(bytes_of(m)); });
    for (Raw &r : raws_)
        r.copy = bytes_of(r);

    once(call, threads);
    each_memory([&](const Memory &m) {
        first.push_back(bytes_of(m));
        std::memcpy(m.bytes(), before.front().data(), m.size());
        before.pop_front();
    });
    once(call, again);
    each_memory([&](const Memory &m) {
        if (std::memcmp(m.bytes(), first.front().data(), m.size()))
            fail(std::to_string(threads) + " and " + std::to_string(again) + " threads give different bits");
        first.pop_front();
    });

    const plait_kernels &ref = *plait_kernels_ref(PLAIT_FP64);
    const plait_exec ex = device_of(plait_backend_cpu()).exec(ref, 0, 1);
    if (call(ref, &ex, {true}) != PLAIT_OK)
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

std::vector<std::string> run(const Row &row, const plait_kernels &table, const Setting &setting)
{
    Bench bench(table, setting);
    row.run(bench);
    return bench.failures;
}

} // namespace conformance
