/* Machine files: what is written is what was read, every mistake is named with its place, and those that are shipped
 * are right. */
#include "launcher/machine_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../core/printed.h"
#include "../core/temp_dir.h"

namespace
{

const std::string kHead = "version: 1\nname: box\nsource: measured 2026-11-30\n";
/* Line 4 on. */
const std::string kGemm = "rates:\n"
                          "  - op: gemm\n"
                          "    dtype: bf16\n"
                          "    trans_b: true\n"
                          "    threads: 2\n"
                          "    ranks: 1\n"
                          "    launch_microseconds: 0.75\n"
                          "    m: [32, 128]\n"
                          "    n: [64]\n"
                          "    k: [64, 4096]\n"
                          "    gflops: [1.5, 20, 3e2, 98.765]\n";
const std::string kMemory =
    "  - {op: memory, dtype: fp32, bytes: [65536, 67108864], gbytes: [10, 8.25]}\n"
    "  - {op: attention_fwd, dtype: fp16, heads: [8], seq: [64], head_dim: [32, 64], gflops: [7, 8]}\n";
const std::string kLinks =
    "links:\n"
    "  - {kind: all_reduce, size: 4, ranks: 8, dtype: fp32, bytes: [0, 4096], microseconds: [3, 8]}\n"
    "  - {kind: send, size: 2, spans: true, dtype: fp32, bytes: [0], microseconds: [12.5]}\n";
const std::string kAll = kHead +
                         "ranks_per_node: 8\noverlap: true\nlaunch_microseconds: 0.25\nstep_microseconds: 1000\n"
                         "peak_gflops: {bf16: 989000, fp32: 67000}\n"
                         "node: {microseconds: 2, gbytes: 450}\nnetwork: {microseconds: 5, gbytes: 50}\n" +
                         kGemm + kMemory + kLinks;

class MachineFile : public TempDir
{
  protected:
    ~MachineFile() override { plait_machine_deinit(&m); }
    plait_status read(const std::string &text)
    {
        plait_machine_deinit(&m);
        return plait_machine_read(write("m.yaml", text).c_str(), &m);
    }
    /* The complaints, each from its line number on. */
    std::string mistakes(const std::string &text)
    {
        EXPECT_EQ(read(text), PLAIT_USAGE) << text;
        EXPECT_EQ(m.num_rates + m.num_links, 0);
        std::string found = plait_error_text(), before = path("m.yaml") + ":";
        for (size_t at; (at = found.find(before)) != std::string::npos;)
            found.erase(at, before.size());
        return found;
    }
    std::string text_of(const plait_machine &machine) const
    {
        return printed([&](FILE *out) { plait_machine_print(&machine, out); });
    }
    plait_machine m = {};
};

} // namespace

TEST_F(MachineFile, HasEverything)
{
    ASSERT_EQ(read(kAll), PLAIT_OK) << plait_error_text();
    EXPECT_STREQ(m.name, "box");
    EXPECT_STREQ(m.source, "measured 2026-11-30");
    EXPECT_EQ(m.ranks_per_node, 8);
    EXPECT_TRUE(m.overlap);
    EXPECT_DOUBLE_EQ(m.launch_seconds, 0.25e-6);
    EXPECT_DOUBLE_EQ(m.step_seconds, 1e-3);
    EXPECT_DOUBLE_EQ(m.peak[PLAIT_BF16], 989e12);
    EXPECT_DOUBLE_EQ(m.peak[PLAIT_FP32], 67e12);
    EXPECT_EQ(m.peak[PLAIT_FP16], 0);
    EXPECT_DOUBLE_EQ(m.node.latency, 2e-6);
    EXPECT_DOUBLE_EQ(m.node.bandwidth, 450e9);
    EXPECT_DOUBLE_EQ(m.network.latency, 5e-6);
    EXPECT_DOUBLE_EQ(m.network.bandwidth, 50e9);
    ASSERT_EQ(m.num_rates, 3);
    const plait_rate_table &gemm = m.rates[0];
    EXPECT_EQ(gemm.op, PLAIT_OP_gemm);
    EXPECT_EQ(gemm.dtype, PLAIT_BF16);
    EXPECT_FALSE(gemm.trans_a);
    EXPECT_TRUE(gemm.trans_b);
    EXPECT_EQ(gemm.threads, 2);
    EXPECT_EQ(gemm.ranks, 1);
    EXPECT_DOUBLE_EQ(gemm.launch_seconds, 0.75e-6);
    ASSERT_EQ(gemm.num_axes, 3);
    EXPECT_EQ(gemm.num[0], 2);
    EXPECT_EQ(gemm.num[1], 1);
    EXPECT_EQ(gemm.num[2], 2);
    EXPECT_EQ(gemm.at[0][1], 128);
    EXPECT_EQ(gemm.at[2][1], 4096);
    EXPECT_DOUBLE_EQ(gemm.rate[2], 300e9);
    EXPECT_DOUBLE_EQ(gemm.rate[3], 98.765e9);
    EXPECT_EQ(m.rates[1].op, PLAIT_OPS);
    EXPECT_EQ(m.rates[1].threads, 0) << "any";
    EXPECT_EQ(m.rates[1].launch_seconds, 0) << "the machine's";
    EXPECT_EQ(m.rates[1].ranks, 0) << "any";
    EXPECT_EQ(m.rates[1].at[0][1], 67108864);
    EXPECT_DOUBLE_EQ(m.rates[1].rate[1], 8.25e9);
    EXPECT_EQ(m.rates[2].num_axes, 3);
    ASSERT_EQ(m.num_links, 2);
    EXPECT_EQ(m.links[0].kind, PLAIT_COMM_ALL_REDUCE);
    EXPECT_EQ(m.links[0].size, 4);
    EXPECT_EQ(m.links[0].ranks, 8);
    EXPECT_FALSE(m.links[0].spans);
    EXPECT_EQ(m.links[0].num, 2);
    EXPECT_EQ(m.links[0].bytes[1], 4096);
    EXPECT_DOUBLE_EQ(m.links[0].seconds[1], 8e-6);
    EXPECT_EQ(m.links[1].kind, PLAIT_COMM_SEND);
    EXPECT_TRUE(m.links[1].spans);
}

TEST_F(MachineFile, WhatIsWrittenIsWhatWasRead)
{
    for (const std::string &text : {kHead, kAll, kHead + kGemm, kHead + kLinks}) {
        ASSERT_EQ(read(text), PLAIT_OK) << plait_error_text();
        const std::string first = text_of(m);
        ASSERT_EQ(plait_machine_write(&m, path("m.yaml").c_str()), PLAIT_OK) << plait_error_text();
        plait_machine again;
        ASSERT_EQ(plait_machine_read(path("m.yaml").c_str(), &again), PLAIT_OK) << plait_error_text();
        EXPECT_EQ(text_of(again), first);
        EXPECT_STREQ(again.name, m.name);
        EXPECT_EQ(again.overlap, m.overlap);
        ASSERT_EQ(again.num_rates, m.num_rates);
        for (int i = 0; i < m.num_rates; i++) {
            const plait_rate_table &a = m.rates[i], &b = again.rates[i];
            EXPECT_EQ(plait_machine_find_rates(&again, &a), &b);
            ASSERT_EQ(a.num_axes, b.num_axes);
            int points = 1;
            for (int axis = 0; axis < a.num_axes; axis++) {
                ASSERT_EQ(a.num[axis], b.num[axis]);
                for (int j = 0; j < a.num[axis]; j++)
                    EXPECT_EQ(a.at[axis][j], b.at[axis][j]);
                points *= a.num[axis];
            }
            for (int j = 0; j < points; j++)
                EXPECT_DOUBLE_EQ(a.rate[j], b.rate[j]) << i << " " << j;
        }
        ASSERT_EQ(again.num_links, m.num_links);
        for (int i = 0; i < m.num_links; i++) {
            EXPECT_EQ(plait_machine_find_links(&again, &m.links[i]), &again.links[i]);
            ASSERT_EQ(again.links[i].num, m.links[i].num);
            for (int j = 0; j < m.links[i].num; j++) {
                EXPECT_EQ(again.links[i].bytes[j], m.links[i].bytes[j]);
                EXPECT_DOUBLE_EQ(again.links[i].seconds[j], m.links[i].seconds[j]);
            }
        }
        plait_machine_deinit(&again);
    }
    EXPECT_EQ(files(), 1) << "nothing is left beside it";
}

TEST_F(MachineFile, TextsNeedNotBeWords)
{
    ASSERT_EQ(read("version: 1\nname: \"a \\\"b\\\" \\\\ \\u00e9\"\nsource: '#'\n"), PLAIT_OK) << plait_error_text();
    EXPECT_STREQ(m.name, "a \"b\" \\ \u00e9");
    const std::string first = text_of(m);
    ASSERT_EQ(read(first), PLAIT_OK) << plait_error_text() << first;
    EXPECT_STREQ(m.name, "a \"b\" \\ \u00e9");
    EXPECT_STREQ(m.source, "#");
}

TEST_F(MachineFile, NamesEveryMistake)
{
    const std::string memory = kHead + "rates:\n  - {op: memory, dtype: fp32, ";
    const std::string link = kHead + "links:\n  - {kind: send, dtype: fp32, size: 2, ";
    const struct {
        std::string text, says;
    } rows[] = {
        {"", "1:1: the file is empty: expected version, name, source, rates"},
        {"- 1\n", "1:1: machine: expected keys and values, found a list"},
        {"a: [\n", "2:1: not YAML"},
        {"name: x\nsource: y\n", "1:1: machine: version is missing"},
        {"version: 1\nsource: y\n", "1:1: machine: name is missing"},
        {"version: 2\nname: x\nsource: y\n", "1:10: version: expected 1, the format that this program knows, found 2"},
        {"version: one\nname: x\nsource: y\n",
         "1:10: version: expected a whole number from 1 to 2147483647, found 'one'"},
        {kHead + "speed: 3\n", "4:1: machine: unknown key 'speed': expected version, name, source, ranks_per_node, "
                               "overlap, launch_microseconds, step_microseconds, peak_gflops, node, network, rates or "
                               "links"},
        {kHead + "name: again\n", "4:1: machine: name is given twice, before in line 2"},
        {"version: 1\nname: [x]\nsource: y\n", "2:7: name: expected a text, found a list"},
        {"version: 1\nname: null\nsource: y\n", "2:7: name: expected a text, found nothing"},
        {"version: 1\nname: " + std::string(128, 'x') + "\nsource: y\n",
         "2:7: name: expected at most 127 bytes, found 128"},
        {"version: 1\nname: \"a\\e[31mb\"\nsource: y\n",
         "2:7: name: expected a text, found the control character 0x1b"},
        {"version: 1\nname: x\nsource: \"a\\nb\"\n", "3:9: source: expected a text, found the control character 0x0a"},
        {"version: 1\nname: \"a\\u0085b\"\nsource: y\n",
         "2:7: name: expected a text, found the control character 0xc2"},
        {kHead + "overlap: yes\n", "4:10: overlap: expected true or false, found 'yes'"},
        {kHead + "ranks_per_node: -8\n",
         "4:17: ranks_per_node: expected a whole number from 0 to 2147483647, found '-8'"},
        {kHead + "ranks_per_node: 99999999999999999999\n",
         "4:17: ranks_per_node: expected a whole number from 0 to 2147483647, found '99999999999999999999'"},
        {kHead + "launch_microseconds: -1\n", "4:22: launch_microseconds: expected a number from 0, found '-1'"},
        {kHead + "launch_microseconds: nan\n", "4:22: launch_microseconds: expected a number from 0, found 'nan'"},
        {kHead + "launch_microseconds: 1e999\n", "4:22: launch_microseconds: expected a number from 0, found '1e999'"},
        {kHead + "step_microseconds: 2e15\n", "4:20: step_microseconds: 2e15 is not possible: expected at most 1e15"},
        {memory + "bytes: [1], gbytes: [1e300]}\n", "5:52: gbytes: 1e300 is not possible: expected 1e-9 to 1e9"},
        {memory + "bytes: [1], gbytes: [1e-300]}\n", "5:52: gbytes: 1e-300 is not possible: expected 1e-9 to 1e9"},
        {memory + "bytes: [1], gbytes: [1e200]}\n", "5:52: gbytes: 1e200 is not possible: expected 1e-9 to 1e9"},
        {kHead + "peak_gflops: {bf16: 299, fp32: 1}\n" + kGemm,
         "4:14: peak_gflops: bf16 299 is not the peak: a rate of gemm is 300"},
        {kHead + "peak_gflops: {fp8: 1}\n",
         "4:15: peak_gflops: expected a type such as fp32, bf16, fp16, fp64, found 'fp8'"},
        {kHead + "peak_gflops: {fp32: 0}\n", "4:21: peak_gflops: expected a number above 0, found '0'"},
        {kHead + "peak_gflops: {fp32: 1, fp32: 2}\n", "4:24: peak_gflops: fp32 is given twice"},
        {kHead + "node: {microseconds: 1}\n", "4:7: node: gbytes is missing"},
        {kHead + "network: {microseconds: 1, gbytes: 0}\n", "4:36: gbytes: expected a number above 0, found '0'"},
        {kHead + "node: fast\n", "4:7: node: expected keys and values, found a value"},
        {kHead + "rates: {}\n", "4:8: rates: expected a list of tables, found a mapping"},
        {kHead + "rates:\n  - {dtype: fp32, bytes: [1], gbytes: [1]}\n", "5:5: rates: op is missing"},
        {kHead + "rates:\n  - {op: gem, dtype: fp32}\n",
         "5:10: op: expected an operation such as gemm, or memory for all that have no table of their own, found "
         "'gem'"},
        {memory + "speed: 1}\n", "5:31: rates: unknown key 'speed'"},
        {memory + "gbytes: [1]}\n", "5:5: rates: bytes is missing, an axis of memory"},
        {memory + "bytes: [1], m: [1], gbytes: [1]}\n", "5:46: rates: memory has no axis m"},
        {memory + "bytes: [1]}\n", "5:5: rates: gbytes is missing"},
        {memory + "bytes: [1], gflops: [1]}\n", "5:51: rates: expected gbytes of memory"},
        {memory + "bytes: [1, 2], gbytes: [1]}\n",
         "5:54: rates: expected 2 rates, the product of the points of the axes, found 1"},
        {memory + "bytes: [1, 2, 2], gbytes: [1, 1, 1]}\n", "5:45: bytes: expected ascending numbers, found 2 after 2"},
        {memory + "bytes: [0, 1], gbytes: [1, 1]}\n", "5:39: bytes: expected a number above 0, found 0"},
        {memory + "bytes: [], gbytes: [1]}\n", "5:38: bytes: expected a list of numbers, found an empty one"},
        {memory + "bytes: 1, gbytes: [1]}\n", "5:38: bytes: expected a list of numbers, found a value"},
        {memory + "bytes: [1, x], gbytes: [1, 1]}\n", "5:42: bytes: expected a number from 0, found 'x'"},
        {memory + "bytes: [1], gbytes: [-1]}\n", "5:52: gbytes: expected a number from 0, found '-1'"},
        {memory + "bytes: [1], gbytes: [0]}\n", "5:52: rates: expected a rate above 0, found 0"},
        {memory + "trans_a: true, bytes: [1], gbytes: [1]}\n", "5:5: rates: memory has no transposes"},
        {memory + "bytes: [1], gbytes: [1]}\n  - {op: memory, dtype: fp32, bytes: [2], gbytes: [2]}\n",
         "6:5: rates: a second table of the same as in line 5"},
        {kHead + "links:\n  - {kind: recv, dtype: fp32, size: 2, bytes: [0], microseconds: [1]}\n",
         "5:12: kind: expected all_reduce, reduce_scatter, all_gather, reduce, broadcast, send or barrier, found "
         "'recv'"},
        {kHead + "links:\n  - {kind: send, dtype: fp32, size: 1, bytes: [0], microseconds: [1]}\n",
         "5:37: size: expected a whole number from 2 to 2147483647, found '1'"},
        {link + "bytes: [0, 4], microseconds: [1]}\n", "5:69: links: expected 2 times, one for each of bytes, found 1"},
        {link + "bytes: [4, 0], microseconds: [1, 1]}\n", "5:51: bytes: expected ascending numbers, found 0 after 4"},
        {link + "bytes: [0], microseconds: [-1]}\n", "5:67: microseconds: expected a number from 0, found '-1'"},
        {link +
             "bytes: [0], microseconds: [1]}\n  - {kind: send, dtype: fp32, size: 2, bytes: [0], microseconds: [1]}\n",
         "6:5: links: a second table of the same as in line 5"},
    };
    for (const auto &r : rows) {
        const std::string found = mistakes(r.text);
        EXPECT_EQ(found.substr(0, r.says.size()), r.says) << "the whole: " << found << "\nof\n" << r.text;
    }
}

TEST_F(MachineFile, NamesAllMistakesAtOnce)
{
    EXPECT_EQ(mistakes("version: 1\nname: x\nsauce: y\noverlap: 1\nrates:\n  - {op: copy, dtype: fp33, threads: x}\n"
                       "  - {op: copy, dtype: fp32, bytes: [2, 1], gbytes: [1]}\n"),
              "3:1: machine: unknown key 'sauce': expected version, name, source, ranks_per_node, overlap, "
              "launch_microseconds, step_microseconds, peak_gflops, node, network, rates or links\n"
              "4:10: overlap: expected true or false, found '1'\n"
              "1:1: machine: source is missing\n"
              "6:23: dtype: expected a type such as fp32, bf16, fp16, fp64, found 'fp33'\n"
              "6:38: threads: expected a whole number from 0 to 2147483647, found 'x'\n"
              "7:40: bytes: expected ascending numbers, found 1 after 2\n"
              "7:52: rates: expected 2 rates, the product of the points of the axes, found 1");
}

TEST_F(MachineFile, MustBeThereAndWritable)
{
    EXPECT_EQ(plait_machine_read(path("none.yaml").c_str(), &m), PLAIT_IO);
    EXPECT_EQ(plait_error_text(), "open " + path("none.yaml") + ": No such file or directory");
    EXPECT_EQ(plait_machine_write(&m, path("none/m.yaml").c_str()), PLAIT_IO);
}

/* Data sheets: what a run may want of them is there. */
TEST_F(MachineFile, ShippedOnesAreWhole)
{
    const struct {
        const char *name;
        double tensor, memory, node, network;
    } rows[] = {{"a100-80gb", 312e12, 2039e9, 300e9, 25e9},
                {"h100-sxm", 989e12, 3350e9, 450e9, 50e9},
                {"h200-sxm", 989e12, 4800e9, 450e9, 50e9}};
    const std::string directory = PLAIT_SOURCE_DIR "/configs/machines";
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory), std::filesystem::directory_iterator()), 3)
        << "each has a row here";
    const plait_machine_use use = {1, 8};
    for (const auto &r : rows) {
        plait_machine_deinit(&m);
        ASSERT_EQ(plait_machine_read((directory + "/" + r.name + ".yaml").c_str(), &m), PLAIT_OK) << plait_error_text();
        EXPECT_STREQ(m.source, "data sheet");
        EXPECT_EQ(m.ranks_per_node, 8);
        EXPECT_TRUE(m.overlap);
        EXPECT_DOUBLE_EQ(m.node.bandwidth, r.node);
        EXPECT_DOUBLE_EQ(m.network.bandwidth, r.network);
        for (plait_dtype dtype : {PLAIT_FP32, PLAIT_BF16, PLAIT_FP16}) {
            const double peak = dtype == PLAIT_FP32 ? r.tensor / 2 : r.tensor;
            EXPECT_DOUBLE_EQ(plait_machine_peak(&m, &use, dtype), peak) << r.name;
            for (int op = 0; op < PLAIT_OPS; op++) {
                plait_op_record record = {};
                record.op = static_cast<plait_op>(op);
                record.dtype = dtype;
                record.m = record.n = record.k = 128;
                record.flops = 1e12;
                record.bytes_read = 1e9;
                double seconds = 0;
                ASSERT_EQ(plait_machine_op_seconds(&m, &use, &record, &seconds), PLAIT_OK) << plait_error_text();
                const double want = plait_rate_is_flops(record.op) ? 1e12 / peak : 1e9 / r.memory;
                EXPECT_NEAR(seconds, want, 1e-9 * want) << r.name << " " << plait_op_name(record.op);
            }
        }
    }
}

/* Another process holds the lock: it is said, and what that one has written meanwhile stays. */
TEST_F(MachineFile, AddingWaitsForTheOthers)
{
    plait_machine measured = {}, all;
    ASSERT_EQ(read(kHead + "rates:\n" + kMemory), PLAIT_OK) << plait_error_text();
    measured = m;
    m = {};
    int said[2];
    ASSERT_EQ(pipe(said), 0);
    const std::string file = path("shared.yaml");
    const int lock = open(path("").c_str(), O_RDONLY | O_DIRECTORY);
    ASSERT_EQ(flock(lock, LOCK_EX), 0);
    const pid_t child = fork();
    if (child == 0) {
        close(lock); /* else the child holds it too */
        dup2(said[1], STDERR_FILENO);
        _exit(plait_machine_add(&measured, file.c_str(), &all));
    }
    close(said[1]);
    char text[600] = "";
    ASSERT_GT(::read(said[0], text, sizeof text - 1), 0);
    EXPECT_NE(std::string(text).find("waiting for another process to let go of the lock on"), std::string::npos)
        << text;
    EXPECT_FALSE(std::filesystem::exists(file));
    std::ofstream(file) << kHead << kGemm;
    flock(lock, LOCK_UN);
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    close(lock);
    close(said[0]);
    plait_machine_deinit(&measured);
    ASSERT_EQ(plait_machine_read(file.c_str(), &m), PLAIT_OK) << plait_error_text();
    EXPECT_EQ(m.num_rates, 3);
}

/* What is measured above a stated peak raises it, so that the file can be read again. */
TEST_F(MachineFile, APeakThatIsPassedIsRaised)
{
    plait_machine all;
    const std::string file = write("peak.yaml", kHead + "peak_gflops: {bf16: 299, fp16: 8}\n");
    ASSERT_EQ(read(kHead + kGemm + kMemory), PLAIT_OK) << plait_error_text();
    ASSERT_EQ(plait_machine_add(&m, file.c_str(), &all), PLAIT_OK) << plait_error_text();
    plait_machine_deinit(&all);
    plait_machine_deinit(&m);
    ASSERT_EQ(plait_machine_read(file.c_str(), &m), PLAIT_OK) << plait_error_text();
    EXPECT_DOUBLE_EQ(m.peak[PLAIT_BF16], 300e9);
    EXPECT_DOUBLE_EQ(m.peak[PLAIT_FP16], 8e9);
}
