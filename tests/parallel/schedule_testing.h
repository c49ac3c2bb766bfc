/* Helpers of the schedule tests: text to list and back, all stages of one pipeline. */
#pragma once

#include "parallel/schedule_impl.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

inline std::string text_of(const plait_schedule &s)
{
    std::string buf(size_t(s.num_acts) * 16 + 16, '\0');
    plait_schedule_text(&s, &buf[0], buf.size());
    buf.resize(std::strlen(buf.c_str()));
    return buf;
}

/* "rx0 F0 sy0" (one chunk) or "F1.0" (chunk 1, micro-batch 0) as a list; any order, also wrong ones. */
inline plait_schedule parse(const char *text, int stage, int stages, int chunks, int micros)
{
    static const char *const names[] = {"rx", "F", "sy", "ry", "B", "sx"};
    std::vector<plait_act> acts;
    std::istringstream words(text);
    for (std::string word; words >> word;) {
        size_t digits = word.find_first_of("0123456789"), dot = word.find('.');
        int kind = 0;
        while (word.substr(0, digits) != names[kind])
            kind++;
        int16_t chunk = dot == std::string::npos ? int16_t(0) : int16_t(std::stoi(word.substr(digits)));
        int micro = std::stoi(word.substr(dot == std::string::npos ? digits : dot + 1));
        acts.push_back({plait_act_kind(kind), chunk, micro});
    }
    plait_schedule s = {};
    s.acts = static_cast<plait_act *>(std::malloc(acts.size() * sizeof(plait_act) + 1));
    std::memcpy(s.acts, acts.data(), acts.size() * sizeof(plait_act));
    s.num_acts = int(acts.size());
    s.stage = stage;
    s.stages = stages;
    s.chunks = chunks;
    s.micros = micros;
    return s;
}

enum class Kind { kGpipe, k1F1B, kInterleaved, kForward };

inline const char *name_of(Kind k)
{
    static const char *const names[] = {"gpipe", "1f1b", "interleaved", "forward"};
    return names[int(k)];
}

/* All stages of one pipeline. */
struct Pipeline {
    std::vector<plait_schedule> stages;

    Pipeline() = default;
    Pipeline(const Pipeline &) = delete;
    Pipeline &operator=(const Pipeline &) = delete;
    ~Pipeline()
    {
        for (auto &s : stages)
            plait_schedule_deinit(&s);
    }
    void generate(Kind kind, int num_stages, int chunks, int micros)
    {
        static const plait_pipe_schedule kinds[] = {PLAIT_PIPE_GPIPE, PLAIT_PIPE_1F1B, PLAIT_PIPE_INTERLEAVED};
        for (int i = 0; i < num_stages; i++) {
            plait_schedule s;
            plait_status st = kind == Kind::kForward
                                  ? plait_schedule_init_forward(&s, i, num_stages, chunks, micros)
                                  : plait_schedule_init(&s, kinds[int(kind)], i, num_stages, chunks, micros);
            ASSERT_EQ(st, PLAIT_OK) << plait_error_text();
            stages.push_back(s);
        }
    }
};

struct Shape {
    Kind kind;
    int stages, chunks, micros;
};

inline std::string text_of(const Shape &g)
{
    std::ostringstream out;
    out << name_of(g.kind) << " stages " << g.stages << " chunks " << g.chunks << " micro-batches " << g.micros;
    return out.str();
}

/* The grid of sizes on which every property of every schedule is checked. */
inline std::vector<Shape> grid()
{
    std::vector<Shape> all;
    for (int p = 1; p <= 8; p++) {
        for (int m = 1; m <= 17; m++) {
            all.push_back({Kind::kGpipe, p, 1, m});
            all.push_back({Kind::k1F1B, p, 1, m});
            all.push_back({Kind::kInterleaved, p, 1, m});
            for (int v = 1; v <= 3; v++)
                all.push_back({Kind::kForward, p, v, m});
        }
        for (int v = 2; v <= 4; v++)
            for (int m = 1; m <= 3 * p; m++)
                all.push_back({Kind::kInterleaved, p, v, m});
    }
    return all;
}
