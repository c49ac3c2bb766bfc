#include "command.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <fstream>
#include <poll.h>
#include <pty.h>
#include <sstream>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

namespace
{

const char kMarkName[] = "PLAIT_TEST_MARK";

double now()
{
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string contents(const std::string &path)
{
    std::stringstream s;
    s << std::ifstream(path, std::ios::binary).rdbuf();
    return s.str();
}

/* The value of a variable in a process's environment; "" if it has none or is gone. */
std::string environment_of(pid_t pid, const std::string &name)
{
    std::string all = contents("/proc/" + std::to_string(pid) + "/environ"), key = name + "=";
    for (size_t at = 0; at < all.size(); at = all.find('\0', at) + 1) {
        if (all.compare(at, key.size(), key) == 0)
            return all.c_str() + at + key.size();
        if (all.find('\0', at) == std::string::npos)
            break;
    }
    return "";
}

std::string name_of(pid_t pid)
{
    std::string name = contents("/proc/" + std::to_string(pid) + "/comm");
    return name.substr(0, name.find('\n'));
}

[[noreturn]] void become(const std::vector<std::string> &args, const std::string &directory,
                         const std::map<std::string, std::string> &environment, int64_t address_space)
{
    std::vector<char *> argv;
    for (const std::string &a : args)
        argv.push_back(const_cast<char *>(a.c_str()));
    argv.push_back(nullptr);
    for (const auto &e : environment)
        e.second.empty() ? unsetenv(e.first.c_str()) : setenv(e.first.c_str(), e.second.c_str(), 1);
    if (address_space > 0 && !SANITIZED) {
        rlimit limit = {static_cast<rlim_t>(address_space), static_cast<rlim_t>(address_space)};
        setrlimit(RLIMIT_AS, &limit);
    }
    if (directory.empty() || chdir(directory.c_str()) == 0)
        execvp(argv[0], argv.data());
    std::fprintf(stderr, "cannot start %s in %s: %s\n", argv[0], directory.c_str(), std::strerror(errno));
    _exit(127);
}

} // namespace

std::ostream &operator<<(std::ostream &to, const Outcome &o)
{
    to << "code " << o.code << " after " << o.seconds << " s" << (o.timed_out ? ", timed out" : "") << "\n";
    for (const std::string &name : o.left)
        to << "still running: " << name << "\n";
    return to << "--- standard output\n" << o.out << "\n--- standard error\n" << o.err << "\n---\n";
}

Command::Command(std::vector<std::string> args) : args_(std::move(args))
{
    static int number;
    mark_ = std::to_string(getpid()) + "." + std::to_string(number++);
    environment_ = {
        {kMarkName, mark_}, {"HWLOC_COMPONENTS", "-pci"}, {"OMP_NUM_THREADS", "1"}, {"OMP_WAIT_POLICY", "passive"}};
}

Command::Command(Command &&other) noexcept
    : args_(std::move(other.args_)), environment_(std::move(other.environment_)),
      directory_(std::move(other.directory_)), output_(std::move(other.output_)), mark_(std::move(other.mark_)),
      limit_(other.limit_), started_(other.started_), address_space_(other.address_space_), terminal_(other.terminal_),
      pid_(other.pid_), out_(other.out_), err_(other.err_), outcome_(std::move(other.outcome_))
{
    other.pid_ = other.out_ = other.err_ = -1;
}

Command::~Command()
{
    if (pid_ > 0) {
        kill_all();
        waitpid(pid_, nullptr, 0);
    }
    for (int fd : {out_, err_})
        if (fd >= 0)
            close(fd);
}

Command &Command::in(const std::string &directory)
{
    directory_ = directory;
    return *this;
}
Command &Command::set(const std::string &name, const std::string &value)
{
    environment_[name] = value;
    return *this;
}
Command &Command::limit(double seconds)
{
    limit_ = seconds;
    return *this;
}
Command &Command::output(const std::string &path)
{
    output_ = path;
    return *this;
}
Command &Command::terminal()
{
    terminal_ = true;
    return *this;
}
Command &Command::address_space(int64_t bytes)
{
    address_space_ = bytes;
    return *this;
}

void Command::start()
{
    int out[2] = {-1, -1}, err[2] = {-1, -1};
    started_ = now();
    if (terminal_) {
        winsize size = {24, 200, 0, 0};
        pid_ = forkpty(&out_, nullptr, nullptr, &size);
        if (pid_ == 0)
            become(args_, directory_, environment_, address_space_);
        return;
    }
    if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0)
        abort();
    pid_ = fork();
    if (pid_ == 0) {
        setpgid(0, 0);
        int nothing = open("/dev/null", O_RDONLY);
        dup2(nothing, 0);
        dup2(output_.empty() ? out[1] : open(output_.c_str(), O_WRONLY), 1);
        dup2(err[1], 2);
        become(args_, directory_, environment_, address_space_);
    }
    close(out[1]);
    close(err[1]);
    out_ = out[0];
    err_ = err[0];
}

bool Command::pump(double until)
{
    if (out_ < 0 && err_ < 0)
        return false; /* poll would wait for nobody */
    pollfd fds[2] = {{out_, POLLIN, 0}, {err_, POLLIN, 0}};
    int milliseconds = std::max(0, static_cast<int>((until - now()) * 1e3));
    if (poll(fds, 2, milliseconds) <= 0)
        return out_ >= 0 || err_ >= 0;
    for (int i = 0; i < 2; i++) {
        if (fds[i].fd < 0 || fds[i].revents == 0)
            continue;
        char buffer[65536];
        ssize_t n = read(fds[i].fd, buffer, sizeof buffer);
        if (n > 0) {
            (i == 0 ? outcome_.out : outcome_.err).append(buffer, static_cast<size_t>(n));
        } else if (n == 0 || errno != EINTR) { /* a terminal whose other end is closed says EIO */
            close(fds[i].fd);
            (i == 0 ? out_ : err_) = -1;
        }
    }
    return out_ >= 0 || err_ >= 0;
}

bool Command::wait_for(const std::string &text)
{
    while (outcome_.out.find(text) == std::string::npos)
        if (now() - started_ > limit_ || !pump(now() + 0.2))
            return outcome_.out.find(text) != std::string::npos;
    return true;
}

Outcome Command::wait()
{
    int status = 0;
    rusage usage = {};
    pid_t ended = 0;
    while ((ended = wait4(pid_, &status, WNOHANG, &usage)) == 0) {
        if (now() - started_ > limit_) {
            outcome_.timed_out = true;
            kill_all();
            ended = wait4(pid_, &status, 0, &usage);
            break;
        }
        if (!pump(now() + 0.05)) /* it closed its outputs and still runs */
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    outcome_.seconds = now() - started_;
    outcome_.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    const auto seconds = [](const timeval &t) {
        return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
    };
    outcome_.cpu_seconds = seconds(usage.ru_utime) + seconds(usage.ru_stime);
    outcome_.peak_bytes = SANITIZED ? 0 : usage.ru_maxrss * INT64_C(1024);
    pid_ = -1;
    for (double until = now() + 2; now() < until && pump(until);)
        ;
    /* What is on its way out gets two seconds. */
    std::vector<pid_t> left = marked();
    for (double until = now() + 2; !left.empty() && now() < until; left = marked())
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    for (pid_t pid : left) {
        outcome_.left.push_back(name_of(pid) + " (" + std::to_string(pid) + ")");
        kill(pid, SIGKILL);
    }
    return outcome_;
}

Outcome Command::run()
{
    start();
    return wait();
}

std::vector<pid_t> Command::marked() const
{
    std::vector<pid_t> found;
    DIR *proc = opendir("/proc");
    if (!proc)
        return found;
    while (const dirent *entry = readdir(proc)) {
        pid_t pid = atoi(entry->d_name);
        if (pid > 0 && environment_of(pid, kMarkName) == mark_)
            found.push_back(pid);
    }
    closedir(proc);
    return found;
}

pid_t Command::rank(int number) const
{
    for (pid_t pid : marked())
        if (name_of(pid) == "plait" && environment_of(pid, "PMI_RANK") == std::to_string(number))
            return pid;
    return -1;
}

pid_t Command::process(const std::string &name) const
{
    for (pid_t pid : marked())
        if (name_of(pid) == name)
            return pid;
    return -1;
}

bool Command::catches(int signal, bool want) const
{
    for (int tries = 0; tries < 2000; tries++) {
        std::ifstream status("/proc/" + std::to_string(pid_) + "/status");
        for (std::string line; std::getline(status, line);)
            if (line.compare(0, 7, "SigCgt:") == 0 &&
                (std::stoull(line.substr(7), nullptr, 16) >> (signal - 1) & 1) == want)
                return true;
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
}

void Command::kill_all() const
{
    kill(-pid_, SIGKILL);
    kill(pid_, SIGKILL);
    for (pid_t pid : marked())
        kill(pid, SIGKILL);
}
