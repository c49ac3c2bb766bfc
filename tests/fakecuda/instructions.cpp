// Models of mma.m16n8k16 and ldmatrix.x4, by the layouts of fragments in the PTX ISA (9.7.14).
#include "tests/fakecuda/instructions.h"
#include "tests/fakecuda/block.h"
#include "tests/fakecuda/race.h"
#include "tests/fakecuda/streams.h"

#include <cstdint>
#include <cstring>
#include <cuda_fp16.h>

namespace fakecuda
{

namespace
{

enum { M = 16, N = 8, K = 16 };

// 65536 values: a table is much faster than the conversion on the host.
const float *fp16_values()
{
    static float *values;
    if (!values) {
        values = new float[1 << 16];
        for (uint32_t i = 0; i < 1 << 16; i++) {
            __half_raw raw;
            raw.x = static_cast<unsigned short>(i);
            values[i] = __half2float(__half(raw));
        }
    }
    return values;
}

float bf16_value(uint32_t bits)
{
    const uint32_t wide = bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

// The two elements of a register.
void unpack(uint32_t bits, MmaType type, float *low, float *high)
{
    if (type == MmaType::bf16) {
        *low = bf16_value(bits & 0xffff);
        *high = bf16_value(bits >> 16);
    } else {
        const float *values = fp16_values();
        *low = values[bits & 0xffff];
        *high = values[bits >> 16];
    }
}

void gather(const BlockThread *lanes, MmaType type, float a[M][K], float b[K][N])
{
    for (int l = 0; l < kLanes; l++) {
        const uint32_t *r = static_cast<const uint32_t *>(lanes[l].in);
        const int g = l / 4, t = l % 4 * 2;
        for (int i = 0; i < 4; i++) {
            float *at = &a[g + i % 2 * 8][t + i / 2 * 8];
            unpack(r[i], type, at, at + 1);
        }
        for (int i = 0; i < 2; i++)
            unpack(r[4 + i], type, &b[t + i * 8][g], &b[t + i * 8 + 1][g]);
    }
}

} // namespace

void mma(BlockThread *lanes, MmaType type)
{
    float a[M][K], b[K][N], sum[M][N] = {};
    gather(lanes, type, a, b);
    for (int m = 0; m < M; m++)
        for (int k = 0; k < K; k++)
            for (int n = 0; n < N; n++)
                sum[m][n] += a[m][k] * b[k][n];
    for (int l = 0; l < kLanes; l++) {
        float *d = static_cast<float *>(lanes[l].out);
        const int g = l / 4, t = l % 4 * 2;
        for (int i = 0; i < 4; i++)
            d[i] += sum[g + i / 2 * 8][t + i % 2];
    }
}

void ldmatrix(BlockThread *lanes, bool transposed)
{
    Thread *const caller = current;
    uint16_t matrix[4][8][8];
    for (int l = 0; l < kLanes; l++) {
        current = &lanes[l];
        if (reinterpret_cast<uintptr_t>(lanes[l].in) % 16 != 0)
            die("ldmatrix at %s: the address of a row, %p, is not a multiple of 16", text_of(lanes[l].place).c_str(),
                lanes[l].in);
        race::access(lanes[l].in, 16, race::Kind::read, 0);
        memcpy(matrix[l / 8][l % 8], lanes[l].in, 16);
    }
    current = caller;
    for (int l = 0; l < kLanes; l++) {
        uint32_t *r = static_cast<uint32_t *>(lanes[l].out);
        const int row = l / 4, column = l % 4 * 2;
        for (int i = 0; i < 4; i++) {
            const uint32_t low = transposed ? matrix[i][column][row] : matrix[i][row][column];
            const uint32_t high = transposed ? matrix[i][column + 1][row] : matrix[i][row][column + 1];
            r[i] = low | high << 16;
        }
    }
}

} // namespace fakecuda
