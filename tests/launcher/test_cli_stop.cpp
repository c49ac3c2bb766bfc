/* Signals to commands that have no steps: they end at once, as by the signal itself, and say so. */
#include "plait_test.h"

#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

namespace
{

class CliStop : public PlaitTest
{
  protected:
    static std::string sentence(int signal, const std::string &left)
    {
        return "plait: stopped by a signal: signal " + std::to_string(signal) + " (" + strsignal(signal) + ")" + left +
               "\n";
    }
    int files() const
    {
        int n = 0;
        for (const auto &entry : std::filesystem::directory_iterator(directory())) {
            (void)entry;
            n++;
        }
        return n;
    }
};

/* A pipe that is full after 4 KiB and that nobody empties: what prints more stays where it is. */
class FullPipe
{
  public:
    explicit FullPipe(const std::string &path)
    {
        if (mkfifo(path.c_str(), 0600) == 0)
            fd_ = open(path.c_str(), O_RDWR);
        EXPECT_EQ(fcntl(fd_, F_SETPIPE_SZ, 4096), 4096);
    }
    ~FullPipe() { close(fd_); }
    FullPipe(const FullPipe &) = delete;
    FullPipe &operator=(const FullPipe &) = delete;

  private:
    int fd_ = -1;
};

const std::string kMachine = "version: 1\nname: \"box\"\nsource: \"guessed\"\n";

} // namespace

TEST_F(CliStop, WhatPrintsSaysThatItWasStopped)
{
    const FullPipe full(path("pipe"));
    for (const Words &args :
         {Words{"config", "--reference"}, Words{"plan", kTiny8, "parallelism.pp=4", "--ranks", "64", "--json"}})
        for (int signal : {SIGINT, SIGTERM, SIGHUP}) {
            Command c = plait(args);
            c.output(path("pipe")).limit(20).start();
            ASSERT_TRUE(c.catches(SIGTERM, true)) << text_of(args); /* the last: SIGHUP is caught by a library before */
            kill(c.pid(), signal);
            const Outcome o = c.wait();
            EXPECT_EQ(o.code, 128 + signal) << text_of(args) << "\n" << o;
            EXPECT_EQ(o.err, sentence(signal, "")) << text_of(args);
        }
}

TEST_F(CliStop, BenchLeavesTheFileAsItWas)
{
    write("m.yaml", kMachine);
    for (int signal : {SIGINT, SIGTERM, SIGHUP}) {
        Command c = plait({"bench", "--machine", "m.yaml"});
        c.limit(60).start();
        ASSERT_TRUE(c.wait_for("points"));
        kill(c.pid(), signal);
        const Outcome o = c.wait();
        EXPECT_EQ(o.code, 128 + signal) << o;
        EXPECT_EQ(o.err, sentence(signal, ", nothing was written to m.yaml"));
        EXPECT_EQ(read("m.yaml"), kMachine);
        EXPECT_EQ(files(), 1);
    }
}

TEST_F(CliStop, OneRankOfABenchSpeaks)
{
    Command c = plait({"bench", "--machine", "m.yaml"}, 2);
    c.limit(60).start();
    ASSERT_TRUE(c.wait_for("points"));
    kill(c.pid(), SIGINT);
    const Outcome o = c.wait();
    EXPECT_EQ(o.code, 128 + SIGINT) << o;
    EXPECT_TRUE(o.left.empty()) << o;
    const std::string says = sentence(SIGINT, ", nothing was written to m.yaml");
    const size_t at = o.err.find(says);
    EXPECT_NE(at, std::string::npos) << o;
    EXPECT_EQ(o.err.find("plait: stopped", at + 1), std::string::npos) << o;
    EXPECT_EQ(files(), 0);
}
