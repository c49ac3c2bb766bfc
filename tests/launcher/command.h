/* tests/launcher/command.h: runs a program as a user does, with a time limit, and tells all that came of it.
 *
 * Every process that a command starts carries a mark in its environment, so those that outlive it are found (and
 * killed) wherever they went.
 */
#ifndef PLAIT_TESTS_LAUNCHER_COMMAND_H
#define PLAIT_TESTS_LAUNCHER_COMMAND_H

#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <sys/types.h>
#include <vector>

struct Outcome {
    int code = -1; /* exit code; 128 + number for a signal */
    bool timed_out = false;
    double seconds = 0;
    double cpu_seconds = 0; /* that the process itself computed, on all cores */
    int64_t peak_bytes = 0; /* most resident memory of the process itself; 0 under a sanitizer, which has its own */
    std::string out, err;   /* on a terminal both are in out */
    std::vector<std::string> left; /* processes that were there a moment after the end, by name */
};
/* The command line is said by gtest's message; this prints the rest. */
std::ostream &operator<<(std::ostream &to, const Outcome &o);

class Command
{
  public:
    explicit Command(std::vector<std::string> args);
    Command(Command &&other) noexcept;
    Command(const Command &) = delete;
    Command &operator=(const Command &) = delete;
    ~Command(); /* kills what still runs */

    Command &in(const std::string &directory);
    Command &set(const std::string &name, const std::string &value); /* environment; "": not set */
    Command &limit(double seconds);                                  /* 60 */
    Command &output(const std::string &path); /* standard output goes to a file or device that is there */
    Command &terminal();                      /* standard output and error are a pseudo-terminal */
    Command &address_space(int64_t bytes);    /* no effect under a sanitizer, which reserves terabytes */

    Outcome run();

    /* In parts: */
    void start();
    /* Until standard output holds `text`; false when the command ended or its time was up before. */
    bool wait_for(const std::string &text);
    pid_t pid() const { return pid_; }
    /* Process of an MPI rank that runs; -1: none. */
    pid_t rank(int number) const;
    /* First process of that name; -1: none. */
    pid_t process(const std::string &name) const;
    /* Whether the process has a handler for the signal. Waits until it has or has no more; false after 20 seconds. */
    bool catches(int signal, bool want) const;
    Outcome wait();

  private:
    bool pump(double until); /* reads for a while; false when both ends are closed */
    void kill_all() const;
    std::vector<pid_t> marked() const;

    std::vector<std::string> args_;
    std::map<std::string, std::string> environment_;
    std::string directory_, output_, mark_;
    double limit_ = 60, started_ = 0;
    int64_t address_space_ = 0;
    bool terminal_ = false;
    pid_t pid_ = -1;
    int out_ = -1, err_ = -1;
    Outcome outcome_;
};

#endif
