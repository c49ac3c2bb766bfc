/* Files that take the place of others, with and without a name meanwhile, and which paths are one file. */
#include "core/config.h"
#include "core/file.h"
#include "core/safetensors.h"

#include "temp_dir.h"

#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace
{
bool unnamed_files = true; /* false: as on a file system that has none, such as NFS */
}

/* The linker puts this in place of open (-Wl,--wrap). */
extern "C" int __real_open(const char *path, int flags, ...);
extern "C" int __wrap_open(const char *path, int flags, ...);
extern "C" int __wrap_open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    const bool unnamed = (flags & O_TMPFILE) == O_TMPFILE;
    mode_t mode = unnamed || (flags & O_CREAT) ? va_arg(args, mode_t) : 0;
    va_end(args);
    if (unnamed && !unnamed_files) {
        errno = EOPNOTSUPP;
        return -1;
    }
    return __real_open(path, flags, mode);
}

namespace
{

class Temporary : public TempDir
{
  protected:
    ~Temporary() override { unnamed_files = true; }
    std::string read(const std::string &name) const
    {
        std::ifstream in(path(name), std::ios::binary);
        return std::string(std::istreambuf_iterator<char>(in), {});
    }
    /* Whether the file system of the test has files without names. */
    bool has_unnamed() const
    {
        int fd = open(dir.c_str(), O_TMPFILE | O_RDWR, 0600);
        return fd >= 0 && close(fd) == 0;
    }
    plait_file_temporary make(const std::string &name) const
    {
        plait_file_temporary t;
        EXPECT_EQ(plait_file_temporary_create(path(name).c_str(), &t), PLAIT_OK) << plait_error_text();
        return t;
    }
    static void put(const plait_file_temporary &t, const std::string &text)
    {
        EXPECT_EQ(::write(t.fd, text.data(), text.size()), static_cast<ssize_t>(text.size()));
    }
};

} // namespace

TEST_F(Temporary, TakesThePlaceOfTheOlderFileOrLeavesIt)
{
    for (bool unnamed : {true, false}) {
        unnamed_files = unnamed;
        write("a", "old");
        plait_file_temporary t = make("a");
        EXPECT_EQ(files(), unnamed && has_unnamed() ? 1 : 2);
        put(t, "given up");
        plait_file_temporary_discard(&t);
        plait_file_temporary_discard(&t); /* has ended: fine */
        EXPECT_EQ(files(), 1);
        EXPECT_EQ(read("a"), "old");

        t = make("a");
        put(t, "new");
        EXPECT_EQ(read("a"), "old");
        ASSERT_EQ(plait_file_temporary_publish(&t), PLAIT_OK) << plait_error_text();
        EXPECT_EQ(files(), 1);
        EXPECT_EQ(read("a"), "new");
    }
}

TEST_F(Temporary, TwoRunsWithOnePathDoNotMeet)
{
    for (bool unnamed : {true, false}) {
        unnamed_files = unnamed;
        plait_file_temporary one = make("a"), two = make("a");
        put(one, "one");
        put(two, "two");
        ASSERT_EQ(plait_file_temporary_publish(&two), PLAIT_OK) << plait_error_text();
        EXPECT_EQ(read("a"), "two");
        ASSERT_EQ(plait_file_temporary_publish(&one), PLAIT_OK) << plait_error_text();
        EXPECT_EQ(read("a"), "one");
        EXPECT_EQ(files(), 1);
    }
}

TEST_F(Temporary, HasThePermissionsThatTheUmaskLeaves)
{
    for (bool unnamed : {true, false})
        for (mode_t mask : {mode_t{0}, mode_t{022}, mode_t{077}}) {
            unnamed_files = unnamed;
            mode_t before = umask(mask);
            plait_file_temporary t = make("a");
            umask(before);
            ASSERT_EQ(plait_file_temporary_publish(&t), PLAIT_OK) << plait_error_text();
            struct stat info;
            ASSERT_EQ(stat(path("a").c_str(), &info), 0);
            EXPECT_EQ(info.st_mode & 0777, 0666u & ~mask) << unnamed;
            unlink(path("a").c_str());
        }
}

TEST_F(Temporary, HasThePermissionsOfTheOlderFile)
{
    write("a", "old");
    ASSERT_EQ(chmod(path("a").c_str(), 0640), 0);
    plait_file_temporary t = make("a");
    ASSERT_EQ(plait_file_temporary_publish(&t), PLAIT_OK) << plait_error_text();
    struct stat info;
    ASSERT_EQ(stat(path("a").c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0640u);
}

TEST_F(Temporary, TakesThePlaceOfWhatALinkLeadsTo)
{
    for (bool unnamed : {true, false}) {
        unnamed_files = unnamed;
        write("real", "old");
        unlink(path("link").c_str());
        ASSERT_EQ(symlink("real", path("link").c_str()), 0);
        plait_file_temporary t = make("link");
        put(t, "new");
        ASSERT_EQ(plait_file_temporary_publish(&t), PLAIT_OK) << plait_error_text();
        EXPECT_EQ(read("real"), "new");
        struct stat info;
        ASSERT_EQ(lstat(path("link").c_str(), &info), 0);
        EXPECT_TRUE(S_ISLNK(info.st_mode));
    }
}

TEST_F(Temporary, ALongNameHasRoom)
{
    for (bool unnamed : {true, false}) {
        unnamed_files = unnamed;
        const std::string name(255, 'x');
        EXPECT_EQ(plait_file_check_writable(path(name).c_str()), PLAIT_OK) << plait_error_text();
        EXPECT_EQ(files(), 0);
        plait_file_temporary t = make(name);
        ASSERT_EQ(plait_file_temporary_publish(&t), PLAIT_OK) << plait_error_text();
        EXPECT_EQ(files(), 1);
        std::filesystem::remove(path(name));
    }
}

/* The test at start asks for what the writer will ask for: it fails where that would. */
TEST_F(Temporary, IsMadeWhereTheTestAtStartSaysSo)
{
    std::filesystem::create_directories(path("d"));
    for (bool unnamed : {true, false})
        for (const char *name : {"new", "missing/new", "d/", "/proc/new", ""}) {
            unnamed_files = unnamed;
            std::string where = name[0] == '/' || name[0] == '\0' ? name : path(name);
            plait_file_temporary t;
            plait_status made = plait_file_temporary_create(where.c_str(), &t);
            EXPECT_EQ(plait_file_check_writable(where.c_str()), made) << where;
            EXPECT_EQ(made, std::string(name) == "new" ? PLAIT_OK : PLAIT_IO) << where;
            if (made == PLAIT_OK)
                plait_file_temporary_discard(&t);
            EXPECT_EQ(files(), 1);
        }
}

TEST_F(Temporary, AProcessThatIsKilledLeavesNone)
{
    if (!has_unnamed())
        GTEST_SKIP() << "this file system has no files without names";
    pid_t pid = fork();
    if (pid == 0) {
        const plait_st_spec spec = {"a", PLAIT_FP32, plait_shape_1d(4096)};
        plait_st_writer *w;
        if (plait_st_writer_create(path("w").c_str(), &spec, 1, nullptr, 0, &w) == PLAIT_OK)
            raise(SIGKILL);
        _exit(1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_TRUE(WIFSIGNALED(status));
    EXPECT_EQ(files(), 0);
}

using SameFile = Temporary;

TEST_F(SameFile, ByEverySpellingAndLink)
{
    std::filesystem::create_directories(path("d"));
    write("a", "x");
    write("b", "x");
    ASSERT_EQ(link(path("a").c_str(), path("hard").c_str()), 0);
    ASSERT_EQ(symlink("a", path("soft").c_str()), 0);
    ASSERT_EQ(symlink("new", path("dangling").c_str()), 0);
    ASSERT_EQ(symlink("dangling", path("d/twice").c_str()), 0); /* d/dangling, not there */
    ASSERT_EQ(symlink("../dangling", path("d/thrice").c_str()), 0);
    ASSERT_EQ(symlink("loop", path("loop").c_str()), 0);
    ASSERT_EQ(symlink("d", path("e").c_str()), 0);
    const struct {
        const char *a, *b;
        bool same;
    } rows[] = {
        {"a", "a", true},          {"a", "./a", true},        {"a", "d/../a", true},         {"a", "d//..//a", true},
        {"a", "hard", true},       {"a", "soft", true},       {"hard", "soft", true},        {"a", "b", false},
        {"a", "new", false},       {"new", "new", true},      {"new", "d/.././new", true},   {"new", "other", false},
        {"new", "dangling", true}, {"new", "d/thrice", true}, {"new", "d/twice", false},     {"d/new", "e/new", true},
        {"d/new", "new", false},   {"loop", "new", false},    {"missing/new", "new", false},
    };
    for (const auto &r : rows) {
        EXPECT_EQ(plait_file_same(path(r.a).c_str(), path(r.b).c_str()), r.same) << r.a << " " << r.b;
        EXPECT_EQ(plait_file_same(path(r.b).c_str(), path(r.a).c_str()), r.same) << r.b << " " << r.a;
    }
}
