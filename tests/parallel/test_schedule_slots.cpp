#include "schedule_testing.h"

#include <algorithm>

/* First and last position of a segment's life in the list, -1 where it does not exist. */
struct Life {
    int first = -1, last = -1;
};

static std::vector<Life> lives_of(const plait_schedule &s, plait_segment segment)
{
    const plait_act_kind begins[] = {PLAIT_ACT_RECV_X, PLAIT_ACT_FWD, PLAIT_ACT_RECV_DY};
    std::vector<Life> lives(size_t(s.chunks * s.micros));
    for (int i = 0; i < s.num_acts; i++) {
        Life &l = lives[size_t(plait_schedule_id(&s, s.acts[i]))];
        if (s.acts[i].kind == begins[segment])
            l.first = i;
        if (s.acts[i].kind == (s.forward_only ? PLAIT_ACT_FWD : PLAIT_ACT_BWD))
            l.last = i;
    }
    return lives;
}

/* Largest sum of sizes that live at once. */
static size_t peak_of(const plait_schedule &s, const std::vector<Life> &lives, const std::vector<size_t> &bytes)
{
    size_t peak = 0;
    for (int i = 0; i < s.num_acts; i++) {
        size_t now = 0;
        for (size_t id = 0; id < lives.size(); id++)
            if (lives[id].first >= 0 && lives[id].first <= i && i <= lives[id].last)
                now += bytes[id / size_t(s.micros)];
        peak = std::max(peak, now);
    }
    return peak;
}

static bool overlap(const Life &a, const Life &b)
{
    return a.first <= b.last && b.first <= a.last;
}

static const plait_segment kSegments[] = {PLAIT_SEG_X, PLAIT_SEG_BODY, PLAIT_SEG_DY};

TEST(ScheduleSlots, NoTwoThatLiveAtOnceShareOneAndThereAreNoMoreThanNeeded)
{
    for (const Shape &g : grid()) {
        SCOPED_TRACE(text_of(g));
        Pipeline p;
        p.generate(g.kind, g.stages, g.chunks, g.micros);
        for (const plait_schedule &s : p.stages)
            for (plait_segment segment : kSegments) {
                SCOPED_TRACE("stage " + std::to_string(s.stage) + " segment " + std::to_string(segment));
                std::vector<Life> lives = lives_of(s, segment);
                std::vector<int> slot(lives.size());
                int slots = plait_schedule_colour(&s, segment, slot.data());
                EXPECT_EQ(size_t(slots), peak_of(s, lives, std::vector<size_t>(size_t(s.chunks), 1)));
                for (size_t a = 0; a < lives.size(); a++) {
                    EXPECT_EQ(slot[a] >= 0, lives[a].first >= 0) << "id " << a;
                    EXPECT_LT(slot[a], slots);
                    for (size_t b = 0; b < a; b++)
                        ASSERT_FALSE(slot[a] >= 0 && slot[a] == slot[b] && overlap(lives[a], lives[b]))
                            << a << " and " << b;
                }
                if (segment == PLAIT_SEG_BODY)
                    EXPECT_EQ(slots, s.max_in_flight);
                else
                    EXPECT_LE(slots, s.max_in_flight + 1); /* one more is on its way */
            }
    }
}

TEST(ScheduleSlots, RangesInThePoolDoNotOverlapAndEqualOnesTakeNoMoreThanNeeded)
{
    const std::vector<size_t> kinds[] = {
        {100, 100, 100, 100}, {64, 1000, 0, 320}, {5000, 1, 65, 700}, {1024, 960, 960, 960}};
    for (const Shape &g : grid())
        for (const auto &bytes : kinds) {
            SCOPED_TRACE(text_of(g) + " first chunk of " + std::to_string(bytes[0]));
            Pipeline p;
            p.generate(g.kind, g.stages, g.chunks, g.micros);
            std::vector<size_t> rounded;
            for (size_t b : bytes)
                rounded.push_back((b + PLAIT_SLOT_ALIGN - 1) / PLAIT_SLOT_ALIGN * PLAIT_SLOT_ALIGN);
            for (const plait_schedule &s : p.stages)
                for (plait_segment segment : kSegments) {
                    std::vector<Life> lives = lives_of(s, segment);
                    std::vector<size_t> at(lives.size());
                    size_t pool = 0;
                    ASSERT_EQ(plait_schedule_pack(&s, segment, bytes.data(), at.data(), &pool), PLAIT_OK);
                    size_t peak = peak_of(s, lives, rounded);
                    EXPECT_GE(pool, peak);
                    std::vector<int> slot_of(lives.size());
                    EXPECT_LE(pool, size_t(plait_schedule_colour(&s, segment, slot_of.data())) *
                                        *std::max_element(rounded.begin(), rounded.begin() + s.chunks));
                    if (bytes[0] == 100 || s.chunks == 1) {
                        EXPECT_EQ(pool, peak);
                    }
                    for (size_t a = 0; a < lives.size(); a++) {
                        ASSERT_EQ(at[a] == PLAIT_NO_OFFSET, lives[a].first < 0);
                        if (lives[a].first < 0)
                            continue;
                        size_t size_a = rounded[a / size_t(s.micros)];
                        ASSERT_EQ(at[a] % PLAIT_SLOT_ALIGN, 0u);
                        ASSERT_LE(at[a] + size_a, pool);
                        for (size_t b = 0; b < a; b++) {
                            if (lives[b].first < 0 || !overlap(lives[a], lives[b]))
                                continue;
                            size_t size_b = rounded[b / size_t(s.micros)];
                            ASSERT_TRUE(at[a] + size_a <= at[b] || at[b] + size_b <= at[a]) << a << " and " << b;
                        }
                    }
                }
        }
}
