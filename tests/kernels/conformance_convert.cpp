// Rows of cast, add, zero and copy: bit for bit.
#include <cmath>
#include <cstring>

#include "kernels/ref/ref.h"
#include "tests/kernels/conformance.h"

namespace conformance
{

namespace
{

const plait_dtype kFloats[] = {PLAIT_FP32, PLAIT_BF16, PLAIT_FP16, PLAIT_FP64};

// Bit patterns of n elements: all of a 16-bit type if n allows, else random bits with zeros, subnormals, infinities,
// NaNs and ties of rounding to 16 bits among them.
std::vector<uint8_t> patterns(plait_dtype dtype, int64_t n, uint32_t stream)
{
    const size_t size = plait_dtype_size(dtype);
    std::vector<uint8_t> bytes(static_cast<size_t>(n) * size);
    const plait_rng rng = plait_rng_make(8, PLAIT_RNG_DATA, 0, 0, stream);
    const float special[] = {0.0f,      -0.0f,  1e-45f,  -1e-40f,  6e-8f,     3e-8f, 65519.0f,    65520.0f,
                             -65536.0f, 1e-30f, 3.4e38f, INFINITY, -INFINITY, NAN,   1.00390625f, 1.01171875f};
    for (int64_t i = 0; i < n; i++) {
        uint8_t *at = &bytes[static_cast<size_t>(i) * size];
        const uint32_t word[2] = {plait_rng_word(&rng, static_cast<uint64_t>(2 * i)),
                                  plait_rng_word(&rng, static_cast<uint64_t>(2 * i + 1))};
        if (size == 2 && n >= 65536) {
            const uint16_t pattern = static_cast<uint16_t>(i);
            std::memcpy(at, &pattern, 2);
        } else if (i % 3 == 1) {
            store(at, dtype, 0, special[word[0] % (sizeof special / sizeof *special)]);
        } else {
            std::memcpy(at, word, size);
            if (dtype == PLAIT_FP64 && i % 2) // within the range of float
                store(at, dtype, 0, static_cast<double>(static_cast<int32_t>(word[0])) * 0x1p-20);
        }
    }
    return bytes;
}

bool same_value(const void *got, const void *want, plait_dtype dtype, int64_t i)
{
    const size_t size = plait_dtype_size(dtype), at = static_cast<size_t>(i) * size;
    return !std::memcmp(static_cast<const char *>(got) + at, static_cast<const char *>(want) + at, size);
}

// As an operand whose elements are of that type.
Raw &elements(Bench &t, const std::vector<uint8_t> &bytes, plait_dtype dtype)
{
    Raw &r = plait_dtype_size(dtype) == 8   ? t.raw(std::vector<uint64_t>(bytes.size() / 8))
             : plait_dtype_size(dtype) == 4 ? t.raw(std::vector<uint32_t>(bytes.size() / 4))
                                            : t.raw(std::vector<uint16_t>(bytes.size() / 2));
    r.put(bytes);
    return r;
}

void cast(Bench &t, bool in_place)
{
    const plait_kernels &ref = *plait_kernels_ref(PLAIT_FP64);
    for (plait_dtype from : kFloats) {
        for (plait_dtype to : kFloats) {
            if (in_place && plait_dtype_size(from) != plait_dtype_size(to))
                continue;
            for (int64_t n : {1, 7, 31, 64, 257, 65536}) {
                t.say(std::string(plait_dtype_name(from)) + " to " + plait_dtype_name(to) + ", n " + std::to_string(n));
                const std::vector<uint8_t> src = patterns(from, n, 1);
                std::vector<uint8_t> want(static_cast<size_t>(n) * plait_dtype_size(to));
                if (ref.cast(nullptr, want.data(), to, src.data(), from, n) != PLAIT_OK)
                    t.fail(plait_error_text());
                const Raw &in = elements(t, src, from);
                Raw &out = elements(t, std::vector<uint8_t>(want.size(), 0xee), to);
                for (int threads : {2, 1}) {
                    if (in_place)
                        out.put(src);
                    t.once(
                        [&](const plait_kernels &k, const plait_exec *ex, Side at) {
                            const void *x = at.as<void>(in_place ? out : in);
                            return k.cast(ex, at.as<void>(out), to, x, from, n);
                        },
                        threads);
                    const std::vector<uint8_t> got = out.get<uint8_t>();
                    for (int64_t i = 0; i < n; i++)
                        if (!same_value(got.data(), want.data(), to, i))
                            t.check("cast.dst", 0, i, load(got.data(), to, i), load(want.data(), to, i), 0);
                }
            }
        }
    }
}

void add(Bench &t)
{
    for (plait_dtype dtype : kFloats) {
        for (int64_t n : {1, 7, 31, 64, 257, 50001}) {
            t.say(std::string(plait_dtype_name(dtype)) + ", n " + std::to_string(n));
            Array &y = t.values(1, n, dtype), &x = t.values(1, n, dtype);
            std::vector<double> want;
            for (int64_t i = 0; i < n; i++) {
                const double sum = y.at(0, i) + x.at(0, i);
                double rounded; // 16-bit types through fp32
                store(&rounded, dtype, 0, dtype == PLAIT_FP64 ? sum : static_cast<double>(static_cast<float>(sum)));
                want.push_back(load(&rounded, dtype, 0));
            }
            t.both([&](const plait_kernels &k, const plait_exec *ex, Side at) {
                return k.add(ex, at(y), at(x), at.reference ? PLAIT_FP64 : dtype, n);
            });
            y.d = want;
            t.compare("add.y", y, 1, [](int64_t, int64_t) { return 1; });
        }
    }
}

void bytes(Bench &t, bool zero)
{
    for (size_t n : {0, 1, 7, 31, 64, 257, 300001}) {
        t.say("bytes " + std::to_string(n));
        std::vector<uint8_t> src(n);
        for (size_t i = 0; i < n; i++)
            src[i] = static_cast<uint8_t>(i * 7 + 1);
        const Raw &from = t.raw(src), &to = t.raw(std::vector<uint8_t>(n, 0xee));
        for (int threads : {2, 1}) {
            t.once(
                [&](const plait_kernels &k, const plait_exec *ex, Side at) {
                    return zero ? k.zero(ex, at.as<void>(to), n) : k.copy(ex, at.as<void>(to), at.as<void>(from), n);
                },
                threads);
            const std::vector<uint8_t> got = to.get<uint8_t>();
            for (size_t i = 0; i < n; i++)
                t.check(zero ? "zero.p" : "copy.dst", 0, static_cast<int64_t>(i), got[i], zero ? 0 : src[i], 0);
        }
    }
}

} // namespace

void add_convert_rows(std::vector<Row> &rows)
{
    rows.push_back({"cast", PLAIT_OP_cast, [](Bench &t) { cast(t, false); }});
    rows.push_back({"cast_in_place", PLAIT_OP_cast, [](Bench &t) { cast(t, true); }});
    rows.push_back({"add", PLAIT_OP_add, add});
    rows.push_back({"zero", PLAIT_OP_zero, [](Bench &t) { bytes(t, true); }});
    rows.push_back({"copy", PLAIT_OP_copy, [](Bench &t) { bytes(t, false); }});
}

} // namespace conformance
