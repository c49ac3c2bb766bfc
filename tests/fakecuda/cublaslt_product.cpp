// The arithmetic of the emulated cuBLASLt.
//
// Both matrices are widened to fp32 panels, ROWS of op(A) and COLS of op(B) wide, filled up with zeros: a tile of D is
// one loop over k with its sums in registers, and all elements of D, at the edges too, are computed by the same
// instructions.
#include "tests/fakecuda/cublaslt_impl.h"
#include "tests/fakecuda/streams.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

namespace fakecuda::lt
{

size_t size_of(uint32_t type)
{
    return type == CUDA_R_32F ? 4 : 2;
}

namespace
{

constexpr uint64_t ROWS = 16, COLS = 6;
typedef float Lanes __attribute__((vector_size(32)));
constexpr uint64_t LANES = 8;

float load(const char *p, uint32_t type, int64_t i)
{
    if (type == CUDA_R_32F)
        return reinterpret_cast<const float *>(p)[i];
    if (type == CUDA_R_16BF)
        return __bfloat162float(reinterpret_cast<const __nv_bfloat16 *>(p)[i]);
    return __half2float(reinterpret_cast<const __half *>(p)[i]);
}

void store(char *p, uint32_t type, int64_t i, float x)
{
    if (type == CUDA_R_32F)
        reinterpret_cast<float *>(p)[i] = x;
    else if (type == CUDA_R_16BF)
        reinterpret_cast<__nv_bfloat16 *>(p)[i] = __float2bfloat16_rn(x);
    else
        reinterpret_cast<__half *>(p)[i] = __float2half_rn(x);
}

// To TF32: 10 bits of mantissa, to nearest even.
float round_tf32(float x)
{
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7f800000u) == 0x7f800000u)
        return x;
    bits = (bits + 0xfffu + (bits >> 13 & 1u)) & ~0x1fffu;
    std::memcpy(&x, &bits, sizeof bits);
    return x;
}

float gelu(float x)
{
    return 0.5f * x * (1.0f + std::tanh(0.7978845608028654f * (x + 0.044715f * x * x * x)));
}

float gelu_slope(float x)
{
    const float u = 0.7978845608028654f * (x + 0.044715f * x * x * x), t = std::tanh(u);
    return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * 0.7978845608028654f * (1.0f + 3.0f * 0.044715f * x * x);
}

// Elements from one row, and from one column, to the next.
struct Steps {
    int64_t row, col;
};
Steps steps_of(const Layout &l)
{
    return l.order == CUBLASLT_ORDER_ROW ? Steps{l.ld, 1} : Steps{1, l.ld};
}

// Says that the matrix is touched: a line at a time where lines have gaps, which may be somebody else's.
void touch_matrix(const char *p, const Layout &l, Access access, const char *what)
{
    const bool by_rows = l.order == CUBLASLT_ORDER_ROW;
    const uint64_t lines = by_rows ? l.rows : l.cols, length = by_rows ? l.cols : l.rows;
    const size_t size = size_of(l.type);
    if (static_cast<uint64_t>(l.ld) == length)
        return touch(p, lines * length * size, access, what);
    for (uint64_t i = 0; i < lines; i++)
        touch(p + i * static_cast<uint64_t>(l.ld) * size, length * size, access, what);
}

// Panels of `width` lines: element (line, k) at [line / width][k][line % width]. Grown, never shrunk: calls are many.
struct Panels {
    std::vector<float> floats;
    uint64_t width, k;

    void fill(const char *p, uint32_t type, uint64_t lines, int64_t line_step, int64_t k_step, bool tf32)
    {
        const uint64_t count = (lines + width - 1) / width * width * k;
        if (floats.size() < count)
            floats.resize(count);
        for (uint64_t i = 0; i < lines; i += width)
            fill_one(panel(i), p + static_cast<int64_t>(i) * line_step * static_cast<int64_t>(size_of(type)), type,
                     std::min(width, lines - i), line_step, k_step, tf32);
    }
    float *panel(uint64_t line) { return floats.data() + line * k; }

  private:
    void fill_one(float *to, const char *p, uint32_t type, uint64_t lines, int64_t line_step, int64_t k_step, bool tf32)
    {
        for (uint64_t l = 0; l < k; l++, to += width) {
            for (uint64_t i = 0; i < width; i++)
                to[i] = i < lines
                            ? load(p, type, static_cast<int64_t>(i) * line_step + static_cast<int64_t>(l) * k_step)
                            : 0.0f;
            for (uint64_t i = 0; tf32 && i < width; i++)
                to[i] = round_tf32(to[i]);
        }
    }
};

// sums[c][r] = sum over k of a[k][r] b[k][c].
__attribute__((always_inline)) inline void tile(float (&sums)[COLS][ROWS], const float *a, const float *b, uint64_t k)
{
    Lanes low[COLS] = {}, high[COLS] = {};
    for (uint64_t l = 0; l < k; l++, a += ROWS, b += COLS) {
        Lanes x, y;
        std::memcpy(&x, a, sizeof x);
        std::memcpy(&y, a + LANES, sizeof y);
        for (uint64_t c = 0; c < COLS; c++) {
            low[c] = x * b[c] + low[c];
            high[c] = y * b[c] + high[c];
        }
    }
    for (uint64_t c = 0; c < COLS; c++) {
        std::memcpy(sums[c], &low[c], sizeof low[c]);
        std::memcpy(sums[c] + LANES, &high[c], sizeof high[c]);
    }
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) void tile_avx2(float (&sums)[COLS][ROWS], const float *a, const float *b,
                                                   uint64_t k)
{
    tile(sums, a, b, k);
}
#endif

void tile_of(float (&sums)[COLS][ROWS], const float *a, const float *b, uint64_t k)
{
#if defined(__x86_64__)
    static const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (avx2)
        return tile_avx2(sums, a, b, k);
#endif
    tile(sums, a, b, k);
}

// One product of a batch.
class Multiplication
{
  public:
    Multiplication(const Product &x, int64_t index) : x_(x), p_(x.p), epilogue_(x.p.op.epilogue)
    {
        a_ = x.a + index * p_.a.stride * static_cast<int64_t>(size_of(p_.a.type));
        b_ = x.b + index * p_.b.stride * static_cast<int64_t>(size_of(p_.b.type));
        d_ = x.d + index * p_.d.stride * static_cast<int64_t>(size_of(p_.d.type));
        if (x.beta != 0)
            c_ = x.c + index * p_.c.stride * static_cast<int64_t>(size_of(p_.c.type));
        if (adds_bias(epilogue_) || writes_bias(epilogue_))
            bias_ = static_cast<char *>(p_.op.bias) +
                    index * p_.op.bias_stride * static_cast<int64_t>(size_of(bias_type(p_)));
        if (has_aux(epilogue_))
            aux_ =
                static_cast<char *>(p_.op.aux) + index * p_.op.aux_stride * static_cast<int64_t>(size_of(aux_type(p_)));
    }

    void run()
    {
        touch_all();
        fill_panels();
        if (epilogue_ & (CUBLASLT_EPILOGUE_BGRADA | CUBLASLT_EPILOGUE_BGRADB))
            store_input_sums();
        column_sums_.assign(writes_bias(epilogue_) ? p_.m : 0, 0.0f);
        for (uint64_t i = 0; i < p_.m; i += ROWS)
            for (uint64_t j = 0; j < p_.n; j += COLS) {
                float sums[COLS][ROWS];
                tile_of(sums, rows().panel(i), cols().panel(j), p_.k);
                store_tile(sums, i, j);
            }
        if (epilogue_ == CUBLASLT_EPILOGUE_DGELU_BGRAD)
            for (uint64_t i = 0; i < p_.m; i++)
                store(bias_, bias_type(p_), static_cast<int64_t>(i), column_sums_[i]);
    }

  private:
    // Kept from call to call for their memory; never destroyed, as a last product may run when the process ends.
    static Panels &rows()
    {
        static auto *panels = new Panels{{}, ROWS, 0};
        return *panels;
    }
    static Panels &cols()
    {
        static auto *panels = new Panels{{}, COLS, 0};
        return *panels;
    }

    void touch_all()
    {
        touch_matrix(a_, p_.a, Access::read, "A");
        touch_matrix(b_, p_.b, Access::read, "B");
        if (c_)
            touch_matrix(c_, p_.c, Access::read, "C");
        touch_matrix(d_, p_.d, Access::write, "D");
        if (bias_)
            touch(bias_, bias_length(p_) * size_of(bias_type(p_)),
                  writes_bias(epilogue_) ? Access::write : Access::read, "bias");
        if (aux_) {
            Layout aux = p_.d;
            aux.order = CUBLASLT_ORDER_COL;
            aux.ld = p_.op.aux_ld;
            aux.type = aux_type(p_);
            touch_matrix(aux_, aux, epilogue_ & CUBLASLT_EPILOGUE_GELU ? Access::write : Access::read, "aux");
        }
    }

    void fill_panels()
    {
        const bool tf32 = p_.op.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && p_.a.type == CUDA_R_32F;
        const Steps a = steps_of(p_.a), b = steps_of(p_.b);
        rows().k = cols().k = p_.k;
        if (p_.op.trans_a == CUBLAS_OP_N)
            rows().fill(a_, p_.a.type, p_.m, a.row, a.col, tf32);
        else
            rows().fill(a_, p_.a.type, p_.m, a.col, a.row, tf32);
        if (p_.op.trans_b == CUBLAS_OP_N)
            cols().fill(b_, p_.b.type, p_.n, b.col, b.row, tf32);
        else
            cols().fill(b_, p_.b.type, p_.n, b.row, b.col, tf32);
    }

    // BGRADA, BGRADB: sums of op(A)'s rows, of op(B)'s columns.
    void store_input_sums()
    {
        Panels &from = epilogue_ & CUBLASLT_EPILOGUE_BGRADA ? rows() : cols();
        for (uint64_t i = 0; i < bias_length(p_); i++) {
            const float *line = from.panel(i / from.width * from.width) + i % from.width;
            float sum = 0.0f;
            for (uint64_t l = 0; l < p_.k; l++)
                sum += line[l * from.width];
            store(bias_, bias_type(p_), static_cast<int64_t>(i), sum);
        }
    }

    void store_tile(const float (&sums)[COLS][ROWS], uint64_t i0, uint64_t j0)
    {
        const uint64_t row_count = std::min(ROWS, p_.m - i0), col_count = std::min(COLS, p_.n - j0);
        for (uint64_t c = 0; c < col_count; c++)
            for (uint64_t r = 0; r < row_count; r++)
                store_element(sums[c][r], static_cast<int64_t>(i0 + r), static_cast<int64_t>(j0 + c));
    }

    void store_element(float sum, int64_t i, int64_t j)
    {
        const Steps c = steps_of(p_.c), d = steps_of(p_.d);
        float x = x_.alpha * sum;
        if (c_)
            x += x_.beta * load(c_, p_.c.type, i * c.row + j * c.col);
        if (epilogue_ != CUBLASLT_EPILOGUE_DEFAULT)
            x = post_process(x, i, j);
        store(d_, p_.d.type, i * d.row + j * d.col, x);
    }

    float post_process(float x, int64_t i, int64_t j)
    {
        const int64_t aux = j * p_.op.aux_ld + i;
        if (adds_bias(epilogue_))
            x += load(bias_, bias_type(p_), i);
        if (epilogue_ & CUBLASLT_EPILOGUE_GELU) {
            if (aux_)
                store(aux_, aux_type(p_), aux, x);
            x = gelu(x);
        } else if (aux_) {
            x *= gelu_slope(load(aux_, aux_type(p_), aux));
            if (!column_sums_.empty())
                column_sums_[static_cast<size_t>(i)] += x;
        }
        return x;
    }

    const Product &x_;
    const Problem &p_;
    const uint32_t epilogue_;
    const char *a_, *b_, *c_ = nullptr;
    char *d_, *bias_ = nullptr, *aux_ = nullptr;
    std::vector<float> column_sums_; // of DGELU_BGRAD, over D's columns in their order
};

} // namespace

void multiply(const Product &x)
{
    for (int64_t i = 0; i < x.p.d.batch; i++)
        Multiplication(x, i).run();
}

} // namespace fakecuda::lt
