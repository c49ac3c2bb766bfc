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
    // Norms and the biases of row-parallel layers.
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
        return (rows + most - 1) / most;
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

struct Units {
    int64_t n = 0, u_n = 0, a_n = 0; // sums over the rank's units
    void add(int64_t size, int64_t u, int64_t a)
    {
        n += size;
        u_n += u * size;
        a_n += a * size;
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
            sum.add(m.words(), m.tied_here ? 2 : 1, m.tied_here ? 3 : 1);
            sum.add(m.positions(), 1, 1);
        }
        for (int i = 0; i < m.layers(chunk); i++)
            sum.add(m.layer_size(), 1, m.gives_input(chunk, i) ? 3 : 2);
        if (m.last(chunk)) {
            sum.add(m.final_norm(), 1, norms_again ? 3 : 2);
            if (!m.tied_here)
                sum.add(m.words(), 1, 2);
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
        e.each[PLAIT_GROUP_WORLD][PLAIT_COMM_ALL_REDUCE] = 3 * 8;

    const Units sum = units(m);
    int64_t *data = e.each[PLAIT_GROUP_DATA];
    if (topo.dp > 1) {
        const bool once = stage == 1 || cfg.zero.keep_full_gradients;
        data[PLAIT_COMM_ALL_REDUCE] = 8 + (stage == 0 && !root ? sum.n * A : 0);
        data[PLAIT_COMM_REDUCE] = root ? sum.n * A : 0;
        data[PLAIT_COMM_BROADCAST] = root ? sum.n * T : 0;
        data[PLAIT_COMM_REDUCE_SCATTER] = stage == 0 ? 0 : once ? sum.n * A : M * sum.u_n * A;
        data[PLAIT_COMM_ALL_GATHER] = stage == 0 ? 0 : stage == 3 ? M * sum.a_n * T : sum.n * T;
    }

    // Elements of gradients that are summed at the end: whole on every data rank, or once in all of them.
    int64_t replicated = 0, shared_heads = 0, tied = 0;
    int64_t *tensor = e.each[PLAIT_GROUP_TENSOR];
    for (int chunk = 0; chunk < m.chunks(); chunk++) {
        const int layers = m.layers(chunk);
        int64_t replays = 0, with_output = 0;
        for (int i = 0; i < layers; i++) {
            replays += m.replayed(i);
            with_output += m.gives_input(chunk, i);
        }
        if (m.tp > 1 && m.sp) {
            tensor[PLAIT_COMM_ALL_GATHER] += M * X * (6 * layers + 2 * replays);
            tensor[PLAIT_COMM_REDUCE_SCATTER] += M * X * (4 * layers + replays + with_output);
        } else if (m.tp > 1) {
            tensor[PLAIT_COMM_ALL_REDUCE] += M * X * (4 * layers + replays + with_output);
        }
        if (m.tp > 1 && m.first(chunk)) {
            tensor[m.sp ? PLAIT_COMM_REDUCE_SCATTER : PLAIT_COMM_ALL_REDUCE] += M * X;
            tensor[PLAIT_COMM_ALL_GATHER] += m.sp ? M * X : 0;
        }
        if (m.tp > 1 && m.last(chunk)) {
            const int64_t partial = S * m.C * (m.blocks() > 1 ? A : T);
            tensor[m.sp ? PLAIT_COMM_REDUCE_SCATTER : PLAIT_COMM_ALL_REDUCE] += M * partial;
            tensor[PLAIT_COMM_ALL_GATHER] += m.sp ? 2 * M * X : 0;
            tensor[PLAIT_COMM_ALL_REDUCE] += M * 3 * S * A;
        }
        replicated += layers * m.replicated_in_layer() + (m.first(chunk) ? m.positions() : 0) +
                      (m.last(chunk) ? m.final_norm() : 0);
        shared_heads += layers * 2 * m.kv_width * (m.C + (m.gpt ? 1 : 0));
        if (m.cfg.model.tie_word_embeddings && topo.pp > 1 && (m.first(chunk) || m.last(chunk)))
            tied += m.words();

        const int64_t message = X / (m.sp ? m.tp : 1);
        int64_t *pipe = e.each[PLAIT_GROUP_PIPELINE];
        if (topo.pp > 1) {
            const int64_t borders = !m.first(chunk) + !m.last(chunk); // each passed once in each direction
            pipe[PLAIT_COMM_SEND] += M * borders * message;
            pipe[PLAIT_COMM_RECV] += M * borders * message;
        }
    }
    auto &sums = stage == 0 && !root ? e.each : e.together;
    if (m.sp)
        sums[PLAIT_GROUP_TENSOR][PLAIT_COMM_ALL_REDUCE] += replicated * A;
    if (topo.kv_replicas > 1)
        sums[PLAIT_GROUP_KV][PLAIT_COMM_ALL_REDUCE] += shared_heads * A;
    sums[PLAIT_GROUP_EMBEDDING][PLAIT_COMM_ALL_REDUCE] += tied * A;
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
            int64_t together = 0;
            for (int d = 0; d < topo.dp; d++) {
                Ledger other;
                const int rank = plait_topology_rank_of(&topo, d, topo.p, topo.t);
                std::memcpy(&other, &bytes[(size_t)rank * sizeof other], sizeof other);
                together += other.group[g].bytes[k];
            }
            const std::string what = std::string(plait_group_name((plait_group)g)) + " " +
                                     plait_comm_kind_name((plait_comm_kind)k) + " bytes, rank " +
                                     std::to_string(topo.rank);
            EXPECT_EQ(together, topo.dp * want.each[g][k] + want.together[g][k]) << what << " and its data ranks";
            if (want.together[g][k] == 0) {
                EXPECT_EQ(mine.group[g].bytes[k], want.each[g][k]) << what;
            }
        }
}
