/* The grid and the groups as a run prints them, also of more ranks than are listed. */
#include "../core/printed.h"
#include "launcher/banner.h"

#include <gtest/gtest.h>

#include <string>

namespace
{

std::string places(int tp, int pp, int dp, const char *more = "train.seed=1")
{
    plait_config cfg;
    plait_topology topo;
    const std::string t = "parallelism.tp=" + std::to_string(tp), p = "parallelism.pp=" + std::to_string(pp);
    const char *overrides[] = {t.c_str(),
                               p.c_str(),
                               "model.hidden_size=3072",
                               "model.num_attention_heads=3072",
                               "model.kv_channels=1",
                               "model.num_layers=128",
                               more};
    EXPECT_EQ(plait_config_load(&cfg, nullptr, overrides, 7), PLAIT_OK) << plait_error_text();
    EXPECT_EQ(plait_config_resolve(&cfg, tp * pp * dp), PLAIT_OK) << plait_error_text();
    EXPECT_EQ(plait_topology_of(&cfg, tp * pp * dp, 0, &topo), PLAIT_OK) << plait_error_text();
    const std::string s = printed([&](FILE *out) { plait_banner_print_places(&topo, &cfg, out); });
    plait_config_deinit(&cfg);
    return s;
}

int count(const std::string &text, const std::string &what)
{
    int n = 0;
    for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += what.size())
        n++;
    return n;
}

std::string line(const std::string &text, const std::string &begin)
{
    size_t at = text.find("\n" + begin);
    return at == std::string::npos ? "" : text.substr(at + 1, text.find('\n', at + 1) - at - 1);
}

} // namespace

TEST(Banner, ListsSixtyFourRanksAndGroups)
{
    const std::string s = places(2, 2, 16);
    EXPECT_EQ(count(s, "\n  data "), 16 + 1) << "replicas, and the groups\n" << s;
    EXPECT_EQ(s.find("more"), std::string::npos) << s;
    EXPECT_EQ(count(line(s, "  tensor "), "["), 32) << s;
}

TEST(Banner, CountsWhatItDoesNotList)
{
    const std::string s = places(2, 2, 40); /* 160 ranks */
    EXPECT_EQ(count(s, "    p0"), 16) << s;
    EXPECT_EQ(line(s, "  and "), "  and 24 more, up to data 39") << s;
    EXPECT_EQ(count(line(s, "  tensor "), "["), 64) << s;
    EXPECT_NE(line(s, "  tensor ").find("[126 127] and 16 more"), std::string::npos) << s;
    EXPECT_EQ(count(line(s, "  data  "), "["), 4) << s;
    EXPECT_EQ(line(s, "  data  ").find("more"), std::string::npos) << s;
}

TEST(Banner, SaysWhenNotEvenOneReplicaIsDrawn)
{
    const std::string s = places(96, 1, 2);
    EXPECT_EQ(count(s, "    p0"), 0) << s;
    EXPECT_EQ(line(s, "  not drawn"), "  not drawn: data 0 to 1, 96 ranks each") << s;
    EXPECT_NE(line(s, "  data  ").find(" and 32 more"), std::string::npos) << s;
}

TEST(Banner, HasAGroupOfEmbeddingsForATiedHead)
{
    EXPECT_EQ(line(places(1, 2, 1, "model.tie_word_embeddings=true"), "  embedding"), "  embedding  [0 1]");
    EXPECT_EQ(line(places(1, 2, 1, "model.tie_word_embeddings=false"), "  embedding"), "");
}
