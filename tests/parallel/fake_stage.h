/* A stage with a known closed form: virtual stage k computes y = a_k x + b_k with small integers, so that everything is
 * exact and every wrong, lost or overwritten message shows. Each slot carries the signature of the micro-batch that
 * lives in it from forward to backward. */
#pragma once

#include "parallel/stage.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

struct FakeStage {
    int stage, stages, chunks;
    int64_t count; /* elements of a message, fp32 */
    std::vector<double> da, db;
    std::string calls; /* " F0 B0", with chunks " F1.0" */
    std::string fail_at;
    std::map<std::pair<int, int>, plait_tensor> slots;

    FakeStage(int stage_, int stages_, int chunks_, int64_t count_)
        : stage(stage_), stages(stages_), chunks(chunks_), count(count_), da(size_t(chunks_)), db(size_t(chunks_))
    {
    }
    plait_stage handle();

    int last() const { return stages * chunks - 1; }
    int virtual_stage(int chunk) const { return chunk * stages + stage; }
    static double a(int k) { return 1 + k % 2; }
    static double b(int k) { return k % 3 - 1; }
    /* What goes into virtual stage 0, made from the tokens of the micro-batch. */
    static double token_value(const plait_micro_batch &m, int64_t i) { return m.tokens[0] + i % 13; }
    /* d loss / d y of the last virtual stage for one unit of grad_scale. */
    static double weight(int micro, int64_t i) { return double(i % 3 + 1) * (micro + 1); }

    /* x of virtual stage k = slope * token_value + offset */
    static std::pair<double, double> input_line(int k)
    {
        double slope = 1, offset = 0;
        for (int j = 0; j < k; j++) {
            slope *= a(j);
            offset = a(j) * offset + b(j);
        }
        return {slope, offset};
    }
    /* d y_last / d y_k */
    double tail_slope(int k) const
    {
        double slope = 1;
        for (int j = k + 1; j <= last(); j++)
            slope *= a(j);
        return slope;
    }
    size_t slot_elements(int chunk) const { return size_t(40 + 100 * ((chunk + stage) % 3)); }
    static int32_t signature(const plait_call &c)
    {
        return int32_t(c.step * 100000 + uint32_t(c.chunk * 1000 + c.micro));
    }

    plait_status record(const char *what, const plait_call &c)
    {
        std::ostringstream text;
        text << what;
        if (chunks > 1)
            text << c.chunk << ".";
        text << c.micro;
        calls += (calls.empty() ? "" : " ") + text.str();
        if (text.str() == fail_at)
            PLAIT_FAIL(NUMERIC, "no luck in %s", fail_at.c_str());
        return PLAIT_OK;
    }

    plait_status forward(const plait_call &c, const float *x, float *y)
    {
        int k = virtual_stage(c.chunk);
        PLAIT_TRY(record("F", c));
        EXPECT_EQ(x == nullptr, k == 0);
        EXPECT_EQ(y == nullptr, k == last() && c.mode != PLAIT_MODE_LOGITS);
        plait_tensor &slot = slots.at({c.chunk, c.slot});
        for (size_t i = 0; i < slot_elements(c.chunk); i++)
            static_cast<int32_t *>(slot.data)[i] = signature(c);
        for (int64_t i = 0; i < count; i++) {
            double in = k == 0 ? token_value(c.batch, i) : double(x[i]), out = a(k) * in + b(k);
            if (y)
                y[i] = float(out);
            if (k == last() && c.mode != PLAIT_MODE_LOGITS)
                *c.loss += out * weight(c.micro, i);
        }
        return PLAIT_OK;
    }

    plait_status backward(const plait_call &c, const float *dy, const float *x, float *dx)
    {
        int k = virtual_stage(c.chunk);
        PLAIT_TRY(record("B", c));
        EXPECT_EQ(dy == nullptr, k == last());
        EXPECT_EQ(dx == nullptr, k == 0);
        EXPECT_EQ(x == nullptr, k == 0);
        const plait_tensor &slot = slots.at({c.chunk, c.slot});
        int overwritten = 0, wrong_x = 0;
        for (size_t i = 0; i < slot_elements(c.chunk); i++)
            overwritten += static_cast<const int32_t *>(slot.data)[i] != signature(c);
        std::pair<double, double> line = input_line(k);
        for (int64_t i = 0; i < count; i++) {
            double in = line.first * token_value(c.batch, i) + line.second;
            wrong_x += x && double(x[i]) != in;
            double d = dy ? double(dy[i]) : weight(c.micro, i) * c.grad_scale;
            da[size_t(c.chunk)] += d * in;
            db[size_t(c.chunk)] += d;
            if (dx)
                dx[i] = float(d * a(k));
        }
        EXPECT_EQ(overwritten, 0) << "slot " << c.slot << " of chunk " << c.chunk << ", micro-batch " << c.micro;
        EXPECT_EQ(wrong_x, 0) << "input of chunk " << c.chunk << ", micro-batch " << c.micro;
        return PLAIT_OK;
    }

    plait_status bind(int chunk, int slot, plait_arena *mem)
    {
        plait_tensor small, body;
        PLAIT_TRY(plait_arena_tensor(mem, PLAIT_INT32, plait_shape_1d(3), &small));
        PLAIT_TRY(plait_arena_tensor(mem, PLAIT_INT32, plait_shape_1d(int64_t(slot_elements(chunk))), &body));
        slots[{chunk, slot}] = body;
        return PLAIT_OK;
    }
};

inline plait_stage FakeStage::handle()
{
    static const plait_stage_ops ops = {
        [](void *self, const plait_call *c, const void *x, void *y) {
            return static_cast<FakeStage *>(self)->forward(*c, static_cast<const float *>(x), static_cast<float *>(y));
        },
        [](void *self, const plait_call *c, const void *dy, const void *x, void *dx) {
            return static_cast<FakeStage *>(self)->backward(*c, static_cast<const float *>(dy),
                                                            static_cast<const float *>(x), static_cast<float *>(dx));
        },
        [](void *self, int chunk, int slot, plait_arena *mem) {
            return static_cast<FakeStage *>(self)->bind(chunk, slot, mem);
        }};
    return {&ops, this};
}
