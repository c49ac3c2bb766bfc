#include "traffic.h"

#include "training_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

namespace
{

// What a rank's model consists of, from the sizes of the model alone.
struct Shape {
    const plait_config &cfg;
    const plait_topology &topo;
    int64_t C, tp, heads_width, kv_width, ffn;
    bool gpt, sp, tied_here; // tied_here: embedding and head are one matrix on this stage

    Shape(const plait_config &cfg, const plait_topology &topo)
        : cfg(cfg), topo(topo), C(cfg.model.hidden_size), tp(topo.tp),
          heads_width(cfg.model.num_attention_heads / tp * cfg.model.kv_channels),
          kv_width(std::max<int64_t>(1, cfg.model.num_query_groups / tp) * cfg.model.kv_channels),
          ffn(cfg.model.ffn_hidden_size / tp), gpt(cfg.model.arch == PLAIT_ARCH_GPT2),
          sp(cfg.parallelism.sequence_parallel && tp > 1), tied_here(cfg.model.tie_word_embeddings && topo.pp == 1)
    {
    }

    bool first(int chunk) const { return chunk == 0 && topo.p == 0; }
    bool last(int chunk) const { return chunk == chunks() - 1 && topo.p == topo.pp - 1; }
    int chunks() const { return (int)cfg.parallelism.num_chunks; }
    int layers(int chunk) const
    {
        const int64_t k = (int64_t)chunk * topo.pp + topo.p, stages = (int64_t)topo.pp * chunks();
        return (int)(plait_config_first_layer(&cfg, k + 1, stages) - plait_config_first_layer(&cfg, k, stages));
    }

    int64_t layer_size() const
    {
        const int64_t matrices = heads_width * C + 2 * kv_width * C + C * heads_width + (gpt ? 2 : 3) * ffn * C;
        const int64_t split_biases = gpt ? heads_width + 2 * kv_width + ffn : 0;
        return matrices + split_biases + replicated_in_layer();
    }
    // Norms and the biases of row-parallel layers: neighbours.
    int64_t replicated_in_layer() const { return gpt ? 6 * C : 2 * C; }
    int64_t final_norm() const { return gpt ? 2 * C : C; }
    int64_t positions() const { return gpt ? cfg.model.max_position_embeddings * C : 0; }
    int64_t words() const { return cfg.model.padded_vocab_size / tp * C; }
    // Blocks of rows of the token matrix or head.
    int64_t blocks() const
    {
        const int64_t rows = cfg.model.padded_vocab_size / tp;
        const int64_t most =
            std::max<int64_t>(1, cfg.zero.max_unit_bytes / (C * (int64_t)plait_dtype_size(cfg.precision.dtype)));
        const int64_t count = (rows + most - 1) / most, of_each = (rows + count - 1) / count;
        return (rows + of_each - 1) / of_each;
    }

    // Full recomputation. Layer i of a chunk is replayed: in its own backward, or before, to give the next its input.
    bool replayed(int i) const
    {
        const bool full = cfg.recompute.granularity == PLAIT_RECOMPUTE_FULL;
        return full && (cfg.recompute.method == PLAIT_RECOMPUTE_UNIFORM || i < cfg.recompute.num_layers);
    }
    bool gives_input(int chunk, int i) const
    {
        const int64_t group = cfg.recompute.method == PLAIT_RECOMPUTE_UNIFORM ? cfg.recompute.num_layers : 1;
        return replayed(i) && i + 1 < layers(chunk) && (i + 1) % group != 0;
    }
};

// Sums over the rank's units: how many, or how large.
struct Sums {
    int64_t n = 0, u_n = 0, a_n = 0;
    void add(int64_t size, int64_t u, int64_t a)
    {
        n += size;
        u_n += u * size;
        a_n += a * size;
    }
};

struct Units {
    Sums count, size;
    void add(int64_t blocks, int64_t elements, int64_t u, int64_t a)
    {
        count.add(blocks, u, a);
        size.add(elements, u, a);
    }
};

Units units(const Shape &m)
{
    Units sum;
    const bool norms_again =
        m.cfg.recompute.granularity == PLAIT_RECOMPUTE_SELECTIVE && (m.cfg.recompute.modules & PLAIT_MODULE_NORMS) != 0;
    for (int chunk = 0; chunk < m.chunks(); chunk++) {
        // Backward of an embedding needs no parameters. As the head it is used two times more.
        if (m.first(chunk)) {
            sum.add(m.blocks(), m.words(), m.tied_here ? 2 : 1, m.tied_here ? 3 : 1);
            sum.add(m.gpt, m.positions(), 1, 1);
        }
        for (int i = 0; i < m.layers(chunk); i++)
            sum.add(1, m.layer_size(), 1, m.gives_input(chunk, i) ? 3 : 2);
        if (m.last(chunk)) {
            sum.add(1, m.final_norm(), 1, norms_again ? 3 : 2);
            if (!m.tied_here)
                sum.add(m.blocks(), m.words(), 1, 2);
        }
    }
    return sum;
}

} // namespace

ExpectedTraffic expected_traffic(const plait_config &cfg, const plait_topology &topo)
{
    ExpectedTraffic e = {};
    const Shape m(cfg, topo);
    const int64_t T = (int64_t)plait_dtype_size(cfg.precision.dtype);
    const int64_t A = (int64_t)plait_dtype_size(plait_dtype_acc(cfg.precision.dtype));
    const int64_t S = cfg.model.seq_length * cfg.batch.micro_batch_size, X = S * m.C * T;
    const int64_t M = cfg.batch.global_batch_size / cfg.batch.micro_batch_size / topo.dp;
    const int64_t stage = cfg.zero.stage;
    const bool root = cfg.parallelism.dp_algorithm == PLAIT_DP_GATHER_TO_ROOT;

    if (topo.world > 1)
        e.each[PLAIT_GROUP_WORLD][PLAIT_COMM_ALL_REDUCE].add(1, 3 * 8);

    const Units sum = units(m);
    const Sums &n = sum.count, &size = sum.size;
    Flow *data = e.each[PLAIT_GROUP_DATA];
    if (topo.dp > 1) {
        const bool once = stage == 1 || cfg.zero.keep_full_gradients;
        data[PLAIT_COMM_ALL_REDUCE].add(1, 8);
        if (root) {
            data[PLAIT_COMM_REDUCE].add(n.n, size.n * A);
            data[PLAIT_COMM_BROADCAST].add(n.n, size.n * T);
        } else if (stage == 0) {
            data[PLAIT_COMM_ALL_REDUCE].add(n.n, size.n * A);
        } else {
            data[PLAIT_COMM_REDUCE_SCATTER].add(once ? n.n : M * n.u_n, (once ? size.n : M * size.u_n) * A);
            data[PLAIT_COMM_ALL_GATHER].add(stage == 3 ? M * n.a_n : n.n, (stage == 3 ? M * size.a_n : size.n) * T);
        }
    }

    // Gradients that are summed at the end: whole on every data rank, or once in all of them.
    Flow replicated, shared_heads, tied;
    Flow *tensor = e.each[PLAIT_GROUP_TENSOR];
    for (int chunk = 0; chunk < m.chunks(); chunk++) {
        const int layers = m.layers(chunk);
        int64_t replays = 0, with_output = 0;
        for (int i = 0; i < layers; i++) {
            replays += m.replayed(i);
            with_output += m.gives_input(chunk, i);
        }
        const int64_t gathers = M * (6 * layers + 2 * replays), sums = M * (4 * layers + replays + with_output);
        const plait_comm_kind summing = m.sp ? PLAIT_COMM_REDUCE_SCATTER : PLAIT_COMM_ALL_REDUCE;
        if (m.tp > 1)
            tensor[summing].add(sums, sums * X);
        if (m.sp)
            tensor[PLAIT_COMM_ALL_GATHER].add(gathers, gathers * X);
        if (m.tp > 1 && m.first(chunk)) {
            tensor[summing].add(M, M * X);
            if (m.sp)
                tensor[PLAIT_COMM_ALL_GATHER].add(M, M * X);
        }
        if (m.tp > 1 && m.last(chunk)) {
            tensor[summing].add(M, M * S * m.C * (m.blocks() > 1 ? A : T));
            if (m.sp)
                tensor[PLAIT_COMM_ALL_GATHER].add(2 * M, 2 * M * X);
            tensor[PLAIT_COMM_ALL_REDUCE].add(2 * M, M * 3 * S * A);
        }
        replicated.add(layers, layers * m.replicated_in_layer() * A);
        if (m.first(chunk) && m.gpt)
            replicated.add(1, m.positions() * A);
        if (m.last(chunk))
            replicated.add(1, m.final_norm() * A);
        // k and v are neighbours, and so are their biases.
        shared_heads.add(layers * (m.gpt ? 2 : 1), layers * 2 * m.kv_width * (m.C + (m.gpt ? 1 : 0)) * A);
        if (m.cfg.model.tie_word_embeddings && topo.pp > 1 && (m.first(chunk) || m.last(chunk)))
            tied.add(m.blocks(), m.words() * A);

        if (topo.pp > 1) {
            const int64_t messages = M * (!m.first(chunk) + !m.last(chunk)); // each border once in each direction
            const int64_t bytes = messages * X / (m.sp ? m.tp : 1);
            e.each[PLAIT_GROUP_PIPELINE][PLAIT_COMM_SEND].add(messages, bytes);
            e.each[PLAIT_GROUP_PIPELINE][PLAIT_COMM_RECV].add(messages, bytes);
        }
    }
    auto &sums = stage == 0 && !root ? e.each : e.together;
    if (m.sp)
        sums[PLAIT_GROUP_TENSOR][PLAIT_COMM_ALL_REDUCE].add(replicated);
    if (topo.kv_replicas > 1)
        sums[PLAIT_GROUP_KV][PLAIT_COMM_ALL_REDUCE].add(shared_heads);
    sums[PLAIT_GROUP_EMBEDDING][PLAIT_COMM_ALL_REDUCE].add(tied);
    return e;
}

void check_traffic(plait_training &t)
{
    struct Ledger {
        plait_traffic group[PLAIT_GROUPS];
    } mine;
    std::memcpy(mine.group, plait_engine_traffic(t.engine), sizeof mine.group);
    const std::vector<char> bytes = gather_bytes(t.world, &mine, sizeof mine);
    const plait_topology topo = *plait_engine_topology(t.engine);
    const ExpectedTraffic want = expected_traffic(*t.cfg, topo);
    for (int g = 0; g < PLAIT_GROUPS; g++)
        for (int k = 0; k < PLAIT_COMM_KINDS; k++) {
            const Flow &each = want.each[g][k], &shared = want.together[g][k];
            Flow together;
            for (int d = 0; d < topo.dp; d++) {
                Ledger other;
                const int rank = plait_topology_rank_of(&topo, d, topo.p, topo.t);
                std::memcpy(&other, &bytes[(size_t)rank * sizeof other], sizeof other);
                together.add(other.group[g].calls[k], other.group[g].bytes[k]);
            }
            const std::string what = std::string(plait_group_name((plait_group)g)) + " " +
                                     plait_comm_kind_name((plait_comm_kind)k) + ", rank " + std::to_string(topo.rank);
            EXPECT_EQ(together.bytes, topo.dp * each.bytes + shared.bytes) << what << " and its data ranks";
            // Cut into shards, a run may lie on several ranks: a call on each.
            EXPECT_GE(together.calls, topo.dp * each.calls + shared.calls) << what << " and its data ranks";
            EXPECT_LE(together.calls, topo.dp * (each.calls + shared.calls)) << what << " and its data ranks";
            if (shared.calls == 0) {
                EXPECT_EQ(mine.group[g].bytes[k], each.bytes) << what << ", bytes";
                EXPECT_EQ(mine.group[g].calls[k], each.calls) << what << ", calls";
            }
        }
}
