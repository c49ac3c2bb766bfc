// When everything happens, from traces that are written by hand: every number here can be found with paper and pencil.
#include "parallel/replay.h"
#include "schedule_testing.h"

namespace
{

// Waits are for requests in the order in which they were started.
class Trace
{
  public:
    Trace &compute(double seconds)
    {
        plait_trace_event e = {};
        e.kind = PLAIT_TRACE_COMPUTE;
        e.seconds = seconds;
        events_.push_back(e);
        return *this;
    }
    struct Op {
        plait_channel channel;
        plait_comm_kind kind;
        double seconds;
        int peer = 0;
    };
    Trace &start(const std::vector<Op> &ops)
    {
        plait_trace_event e = {};
        e.kind = PLAIT_TRACE_START;
        e.comm.request = requests_++;
        e.comm.first_op = static_cast<int>(ops_.size());
        e.comm.num_ops = static_cast<int>(ops.size());
        for (const Op &op : ops) {
            plait_trace_op o = {};
            o.channel = op.channel;
            o.kind = op.kind;
            o.peer = op.peer;
            o.seconds = op.seconds;
            ops_.push_back(o);
        }
        events_.push_back(e);
        return *this;
    }
    Trace &wait(int request)
    {
        plait_trace_event e = {};
        e.kind = PLAIT_TRACE_WAIT;
        e.comm.request = request;
        events_.push_back(e);
        return *this;
    }
    Trace &run(const std::vector<Op> &ops) { return start(ops).wait(requests_ - 1); }
    Trace &act(bool begins, plait_act a)
    {
        plait_trace_event e = {};
        e.kind = begins ? PLAIT_TRACE_BEGIN : PLAIT_TRACE_END;
        e.act.chunk = a.chunk;
        e.act.backward = a.kind == PLAIT_ACT_BWD;
        e.act.micro = a.micro;
        events_.push_back(e);
        return *this;
    }
    int requests() const { return requests_; }

    plait_step_trace view()
    {
        plait_step_trace t = {};
        t.num_events = static_cast<int>(events_.size());
        t.events = events_.data();
        t.num_ops = static_cast<int>(ops_.size());
        t.ops = ops_.data();
        t.num_requests = requests_;
        return t;
    }

  private:
    std::vector<plait_trace_event> events_;
    std::vector<plait_trace_op> ops_;
    int requests_ = 0;
};

struct Replayed {
    plait_status st;
    plait_prediction p = {};

    Replayed(std::vector<Trace> traces, bool overlap, double step_seconds = 0)
    {
        plait_machine machine = {};
        machine.overlap = overlap;
        machine.step_seconds = step_seconds;
        std::vector<plait_step_trace> views;
        for (Trace &t : traces)
            views.push_back(t.view());
        st = plait_replay(views.data(), static_cast<int>(views.size()), &machine, &p);
    }
    Replayed(const Replayed &) = delete;
    Replayed &operator=(const Replayed &) = delete;
    ~Replayed() { plait_prediction_deinit(&p); }

    // Compute, exposed communication, idle time and the host's of every stage are the step.
    void expect_sums(double step_seconds = 0) const
    {
        EXPECT_EQ(p.host_seconds, step_seconds);
        for (int i = 0; i < p.num_stages; i++) {
            double sum = p.stages[i].compute + p.stages[i].idle + p.host_seconds;
            for (const double seconds : p.stages[i].exposed)
                sum += seconds;
            EXPECT_NEAR(sum, p.step_seconds, 1e-9 * (1 + sum)) << "stage " << i;
        }
    }
};

constexpr plait_channel kWorld = PLAIT_CHANNEL_WORLD, kTensor = PLAIT_CHANNEL_TENSOR, kData = PLAIT_CHANNEL_DATA,
                        kActs = PLAIT_CHANNEL_ACTIVATIONS, kGrads = PLAIT_CHANNEL_GRADIENTS,
                        kEmbedding = PLAIT_CHANNEL_EMBEDDING;
constexpr plait_comm_kind kSum = PLAIT_COMM_ALL_REDUCE, kSend = PLAIT_COMM_SEND, kRecv = PLAIT_COMM_RECV;

} // namespace

TEST(Replay, NothingTakesNoTimeButTheHosts)
{
    Replayed r({Trace()}, true, 0.25);
    ASSERT_EQ(r.st, PLAIT_OK);
    EXPECT_EQ(r.p.step_seconds, 0.25);
    EXPECT_EQ(r.p.stages[0].compute, 0);
    EXPECT_EQ(plait_prediction_bubble(&r.p), 0);
}

// A sum of 3 seconds beside 2 seconds of computing: one is seen, or all three.
TEST(Replay, OverlapHidesWhatIsComputedMeanwhile)
{
    for (const bool overlap : {true, false}) {
        Replayed r({Trace().compute(1).start({{kTensor, kSum, 3}}).compute(2).wait(0).compute(4)}, overlap);
        ASSERT_EQ(r.st, PLAIT_OK);
        EXPECT_EQ(r.p.stages[0].compute, 7);
        EXPECT_EQ(r.p.stages[0].exposed[kTensor], overlap ? 1 : 3);
        EXPECT_EQ(r.p.stages[0].idle, 0);
        EXPECT_EQ(r.p.step_seconds, overlap ? 8 : 10);
    }
}

// One that is over before it is waited for costs nothing with overlap.
TEST(Replay, OverlapHidesAllOfAShortOne)
{
    Replayed r({Trace().start({{kData, kSum, 3}}).compute(5).wait(0)}, true);
    ASSERT_EQ(r.st, PLAIT_OK);
    EXPECT_EQ(r.p.stages[0].exposed[kData], 0);
    EXPECT_EQ(r.p.step_seconds, 5);
}

// Operations of one communicator run one behind the other, those of two at once.
TEST(Replay, ACommunicatorIsAQueue)
{
    const auto step = [](plait_channel second, bool overlap) {
        Replayed r({Trace().start({{kData, kSum, 3}}).start({{second, kSum, 2}}).wait(0).wait(1)}, overlap);
        EXPECT_EQ(r.st, PLAIT_OK);
        return r.p.step_seconds;
    };
    EXPECT_EQ(step(kData, true), 5);
    EXPECT_EQ(step(kTensor, true), 3);
    EXPECT_EQ(step(kData, false), 5);
    EXPECT_EQ(step(kTensor, false), 5);
}

// Waiting in that queue is communication that nothing hides, not waiting for another stage; of messages too.
TEST(Replay, TheQueueIsNoIdleTime)
{
    Replayed alone({Trace().start({{kData, kSum, 3}}).start({{kData, kSum, 2}}).wait(1).wait(0)}, true);
    ASSERT_EQ(alone.st, PLAIT_OK);
    EXPECT_EQ(alone.p.stages[0].exposed[kData], 5);
    EXPECT_EQ(alone.p.stages[0].idle, 0);
    Replayed two({Trace().compute(1).start({{kActs, kSend, 3, 1}}).start({{kActs, kSend, 2, 1}}).wait(0).wait(1),
                  Trace().start({{kActs, kRecv, 3, 0}}).start({{kActs, kRecv, 2, 0}}).wait(1).wait(0)},
                 true);
    ASSERT_EQ(two.st, PLAIT_OK);
    EXPECT_EQ(two.p.stages[1].exposed[kActs], 5);
    EXPECT_EQ(two.p.stages[1].idle, 1) << "until the first message leaves";
    Replayed all({Trace().run({{kWorld, kSum, 1}}), Trace().compute(2).run({{kWorld, kSum, 1}})}, true);
    ASSERT_EQ(all.st, PLAIT_OK);
    EXPECT_EQ(all.p.stages[0].idle, 2);
}

// Without overlap what nobody waits for never ran, and nothing else waits for it.
TEST(Replay, WaitsOutOfOrder)
{
    for (const bool overlap : {true, false}) {
        Replayed r({Trace().start({{kData, kSum, 3}}).start({{kTensor, kSum, 2}}).wait(1).wait(0)}, overlap);
        ASSERT_EQ(r.st, PLAIT_OK);
        EXPECT_EQ(r.p.stages[0].exposed[kTensor], 2);
        EXPECT_EQ(r.p.stages[0].exposed[kData], overlap ? 1 : 3);
        r.expect_sums();
    }
}

// The receiver is idle until the message leaves, and waits for its way; the sender goes on.
TEST(Replay, AMessageBeginsWhenItIsSent)
{
    for (const bool overlap : {true, false}) {
        Replayed r({Trace().compute(2).start({{kActs, kSend, 0.5, 1}}).compute(3).wait(0),
                    Trace().run({{kActs, kRecv, 0.5, 0}}).compute(1)},
                   overlap);
        ASSERT_EQ(r.st, PLAIT_OK);
        EXPECT_EQ(r.p.stages[0].compute, 5);
        EXPECT_EQ(r.p.stages[0].exposed[kActs], 0);
        EXPECT_EQ(r.p.stages[1].idle, 2 + 1.5); // for the message, and for stage 0 at the end
        EXPECT_EQ(r.p.stages[1].exposed[kActs], 0.5);
        EXPECT_EQ(r.p.step_seconds, 5);
        r.expect_sums();
    }
}

// A receive that was started early is over when it is waited for, with overlap; without, it takes its time there. The
// sender waits for its buffer until the receiver has come.
TEST(Replay, AReceiveThatWasStartedEarly)
{
    for (const bool overlap : {true, false}) {
        Replayed r({Trace().compute(1).run({{kActs, kSend, 0.5, 1}}),
                    Trace().start({{kActs, kRecv, 0.5, 0}}).compute(3).wait(0)},
                   overlap);
        ASSERT_EQ(r.st, PLAIT_OK);
        EXPECT_EQ(r.p.stages[0].exposed[kActs], 0.5);
        // With overlap at the end of the step, without before its message is taken.
        EXPECT_EQ(r.p.stages[0].idle, overlap ? 1.5 : 2);
        EXPECT_EQ(r.p.stages[1].exposed[kActs], overlap ? 0 : 0.5);
        EXPECT_EQ(r.p.step_seconds, overlap ? 3 : 3.5);
        r.expect_sums();
    }
}

// Messages of one sender arrive in their order on each communicator, whatever goes on beside them.
TEST(Replay, MessagesMatchInOrderOnEachCommunicator)
{
    for (const bool overlap : {true, false}) {
        Replayed r(
            {Trace()
                 .compute(1)
                 .start({{kActs, kSend, 1, 1}})
                 .compute(4)
                 .start({{kActs, kSend, 2, 1}})
                 .run({{kGrads, kRecv, 0.25, 1}})
                 .wait(0)
                 .wait(1),
             Trace().start({{kGrads, kSend, 0.25, 0}}).run({{kActs, kRecv, 1, 0}}).run({{kActs, kRecv, 2, 0}}).wait(0)},
            overlap);
        ASSERT_EQ(r.st, PLAIT_OK);
        // The first comes at 2, the second leaves at 5.
        EXPECT_EQ(r.p.stages[1].exposed[kActs], 3);
        EXPECT_EQ(r.p.stages[1].idle, 1 + 3);
        EXPECT_EQ(r.p.step_seconds, overlap ? 7 : 7);
        r.expect_sums();
    }
}

// Two messages on one way: with overlap the second leaves behind the first, on another communicator beside it.
TEST(Replay, MessagesOfOneCommunicatorFollowEachOther)
{
    const auto step = [](plait_channel second) {
        Replayed r({Trace().start({{kActs, kSend, 2, 1}}).start({{second, kSend, 1, 1}}).wait(0).wait(1),
                    Trace().start({{kActs, kRecv, 2, 0}}).start({{second, kRecv, 1, 0}}).wait(0).wait(1)},
                   true);
        EXPECT_EQ(r.st, PLAIT_OK);
        r.expect_sums();
        return r.p.step_seconds;
    };
    EXPECT_EQ(step(kActs), 3);
    EXPECT_EQ(step(kGrads), 2);
}

// Both send and then receive: a message that is sent waits for nothing.
TEST(Replay, MessagesCross)
{
    for (const bool overlap : {true, false}) {
        const auto side = [](int other, plait_channel sends, plait_channel receives) {
            return Trace().compute(1).start({{sends, kSend, 1, other}}).run({{receives, kRecv, 1, other}}).wait(0);
        };
        Replayed r({side(1, kActs, kGrads), side(0, kGrads, kActs)}, overlap);
        ASSERT_EQ(r.st, PLAIT_OK);
        EXPECT_EQ(r.p.step_seconds, 2);
        r.expect_sums();
    }
}

// A collective of the world begins when the last stage has come to it.
TEST(Replay, TheWorldWaitsForTheLast)
{
    for (const bool overlap : {true, false}) {
        const auto stage = [](double seconds) {
            return Trace().compute(seconds).run({{kWorld, kSum, 0.5}}).run({{kWorld, kSum, 0.25}});
        };
        Replayed r({stage(1), stage(3), stage(2)}, overlap, 0.125);
        ASSERT_EQ(r.st, PLAIT_OK);
        EXPECT_EQ(r.p.step_seconds, 3.75 + 0.125);
        const double idle[] = {2, 0, 1};
        for (int i = 0; i < 3; i++) {
            EXPECT_EQ(r.p.stages[i].idle, idle[i]);
            EXPECT_EQ(r.p.stages[i].exposed[kWorld], 0.75);
        }
        EXPECT_DOUBLE_EQ(plait_prediction_bubble(&r.p), 3 / (3 * 3.75));
        r.expect_sums(0.125);
    }
}

// That of a tied embedding joins the first and the last stage alone.
TEST(Replay, TheEmbeddingGroupIsTwoStages)
{
    for (const bool overlap : {true, false}) {
        Replayed r({Trace().compute(1).run({{kEmbedding, kSum, 0.5}}), Trace().compute(4),
                    Trace().compute(2).run({{kEmbedding, kSum, 0.5}})},
                   overlap);
        ASSERT_EQ(r.st, PLAIT_OK);
        EXPECT_EQ(r.p.step_seconds, 4);
        EXPECT_EQ(r.p.stages[1].idle, 0);
        EXPECT_EQ(r.p.stages[0].idle, 1 + 1.5);
        EXPECT_EQ(r.p.stages[2].idle, 1.5);
        r.expect_sums();
    }
}

TEST(Replay, StagesThatWaitForEachOtherAreAnError)
{
    for (const bool overlap : {true, false}) {
        const auto side = [](int other) {
            return Trace().compute(1).run({{kActs, kRecv, 1, other}}).run({{kActs, kSend, 1, other}});
        };
        Replayed r({side(1), side(0)}, overlap);
        EXPECT_EQ(r.st, PLAIT_INTERNAL);
        EXPECT_NE(std::string(plait_error_text()).find("pipeline stage 0 waits at event 2 of 5"), std::string::npos)
            << plait_error_text();
    }
}

// A message that nobody sends, and a collective that one stage leaves out.
TEST(Replay, WhatIsMissingIsAnError)
{
    for (const bool overlap : {true, false}) {
        EXPECT_EQ(Replayed({Trace(), Trace().run({{kActs, kRecv, 1, 0}})}, overlap).st, PLAIT_INTERNAL);
        EXPECT_EQ(Replayed({Trace().run({{kWorld, kSum, 1}}), Trace()}, overlap).st, PLAIT_INTERNAL);
        EXPECT_EQ(Replayed({Trace().run({{kActs, kSend, 1, 1}}), Trace()}, overlap).st, PLAIT_INTERNAL);
    }
}

namespace
{

// What a stage of a pipeline records in a step (parallel/pipeline.c): messages in their groups, waits for the input and
// for the output buffer's last message; at the end the rest, and a sum of the world.
Trace trace_of(const plait_schedule &s, double forward, double backward, double message)
{
    std::vector<plait_act_link> links(static_cast<size_t>(s.num_acts));
    EXPECT_EQ(plait_schedule_link(&s, links.data()), PLAIT_OK) << plait_error_text();
    std::vector<int> request(links.size(), -1); // of the group that begins there
    Trace t;
    const auto wait = [&](int position) {
        const int first = position < 0 ? -1 : links[static_cast<size_t>(position)].group;
        if (first >= 0 && request[static_cast<size_t>(first)] >= 0)
            t.wait(request[static_cast<size_t>(first)]);
        if (first >= 0)
            request[static_cast<size_t>(first)] = -1; // waited for once
    };
    for (int i = 0, length; i < s.num_acts; i += length) {
        const plait_act a = s.acts[i];
        length = 1;
        if (plait_act_role(a) == PLAIT_ROLE_COMPUTE) {
            wait(links[static_cast<size_t>(i)].recv);
            wait(links[static_cast<size_t>(i)].reuse);
            t.act(true, a).compute(a.kind == PLAIT_ACT_FWD ? forward : backward).act(false, a);
            continue;
        }
        length = plait_schedule_group_length(&s, links.data(), i);
        std::vector<Trace::Op> ops;
        for (int k = i; k < i + length; k++) {
            const int dir = plait_act_dir(s.acts[k]);
            const bool sends = plait_act_role(s.acts[k]) == PLAIT_ROLE_SEND;
            const int from = dir == PLAIT_DIR_FWD ? PLAIT_DIR_BWD : PLAIT_DIR_FWD;
            ops.push_back({dir == PLAIT_DIR_FWD ? kActs : kGrads, sends ? kSend : kRecv, message,
                           plait_schedule_peer(s.stage, s.stages, sends ? dir : from)});
        }
        request[static_cast<size_t>(i)] = t.requests();
        t.start(ops);
    }
    for (int i = 0; i < s.num_acts; i++)
        if (links[static_cast<size_t>(i)].group == i)
            wait(i);
    return t.run({{kWorld, kSum, message}});
}

std::vector<Trace> traces_of(const Shape &g, double forward, double backward, double message)
{
    Pipeline p;
    std::vector<Trace> traces;
    p.generate(g.kind, g.stages, g.chunks, g.micros);
    for (const plait_schedule &s : p.stages)
        traces.push_back(trace_of(s, forward, backward, message));
    return traces;
}

} // namespace

// Idle time of p equal stages as a part of all time: (p - 1) / (m + p - 1) with GPipe (Huang et al. 2019) and 1F1B
// (Narayanan et al. 2019), (p - 1) / (v m + p - 1) with v chunks (Narayanan et al. 2021, section 2.2), where backward
// may be longer than forward. A chunk is 1 / v of a stage.
TEST(Replay, BubblesOfEqualStages)
{
    for (const bool overlap : {true, false})
        for (const double backward : {1.0, 2.0, 3.5})
            for (int p = 1; p <= 8; p++)
                for (int m = p; m <= 4 * p; m += p)
                    for (const Shape &g : {Shape{Kind::kGpipe, p, 1, m}, Shape{Kind::k1F1B, p, 1, m},
                                           Shape{Kind::kInterleaved, p, 2, m}, Shape{Kind::kInterleaved, p, 3, m}}) {
                        if (p == 1 && g.chunks > 1)
                            continue; // no stage to interleave with
                        SCOPED_TRACE(text_of(g) + (overlap ? " overlap" : ""));
                        const int v = g.chunks;
                        Replayed r(traces_of(g, 1.0 / v, backward / v, 0), overlap);
                        ASSERT_EQ(r.st, PLAIT_OK) << plait_error_text();
                        EXPECT_NEAR(plait_prediction_bubble(&r.p), (p - 1.0) / (v * m + p - 1.0), 1e-9);
                        EXPECT_NEAR(r.p.step_seconds, (1 + backward) * (m + (p - 1.0) / v), 1e-9 * m * p);
                        for (int i = 0; i < p; i++)
                            EXPECT_NEAR(r.p.stages[i].compute, (1 + backward) * m, 1e-9 * m);
                        r.expect_sums();
                    }
}

// The same of any number of micro-batches, fewer than stages too.
TEST(Replay, BubblesOfAnyNumberOfMicroBatches)
{
    for (const bool overlap : {true, false})
        for (const Kind kind : {Kind::kGpipe, Kind::k1F1B})
            for (int p = 1; p <= 6; p++)
                for (int m = 1; m <= 13; m++) {
                    const Shape g{kind, p, 1, m};
                    SCOPED_TRACE(text_of(g) + (overlap ? " overlap" : ""));
                    Replayed r(traces_of(g, 1, 2, 0), overlap);
                    ASSERT_EQ(r.st, PLAIT_OK) << plait_error_text();
                    EXPECT_NEAR(plait_prediction_bubble(&r.p), (p - 1.0) / (m + p - 1.0), 1e-9);
                }
}

// With messages that take time every schedule still ends, and every second of every stage is accounted for. It is never
// shorter than without, and never as long as if nothing were done at the same time.
TEST(Replay, EverySecondIsAccountedFor)
{
    for (const Shape &g : grid()) {
        if (g.kind == Kind::kForward || (g.stages == 1 && g.chunks > 1))
            continue;
        SCOPED_TRACE(text_of(g));
        Replayed free(traces_of(g, 1, 2, 0), true);
        for (const bool overlap : {true, false}) {
            Replayed r(traces_of(g, 1, 2, 0.125), overlap);
            ASSERT_EQ(r.st, PLAIT_OK) << plait_error_text();
            r.expect_sums();
            EXPECT_GE(r.p.step_seconds, free.p.step_seconds - 1e-9);
            const double work = 3.0 * g.chunks * g.micros, messages = 2 * 0.125 * g.chunks * g.micros;
            EXPECT_LE(r.p.step_seconds, g.stages * (work + messages) + 0.125);
        }
    }
}

// Forwards and backwards of a stage follow each other, begin to end, in the order of its list.
TEST(Replay, SpansAreTheList)
{
    const Shape g{Kind::kInterleaved, 3, 2, 6};
    Pipeline p;
    p.generate(g.kind, g.stages, g.chunks, g.micros);
    Replayed r(traces_of(g, 1, 2, 0.5), true);
    ASSERT_EQ(r.st, PLAIT_OK);
    ASSERT_EQ(r.p.num_spans, 3 * 2 * 2 * 6);
    int k = 0;
    for (const plait_schedule &s : p.stages) {
        double end = 0;
        for (int i = 0; i < s.num_acts; i++) {
            if (plait_act_role(s.acts[i]) != PLAIT_ROLE_COMPUTE)
                continue;
            const plait_span &span = r.p.spans[k++];
            EXPECT_EQ(span.stage, s.stage);
            EXPECT_EQ(span.chunk, s.acts[i].chunk);
            EXPECT_EQ(span.micro, s.acts[i].micro);
            EXPECT_EQ(span.backward, s.acts[i].kind == PLAIT_ACT_BWD);
            EXPECT_GE(span.begin, end);
            EXPECT_NEAR(span.end - span.begin, span.backward ? 2 : 1, 1e-12);
            end = span.end;
        }
        EXPECT_LE(end, r.p.step_seconds);
    }
}
