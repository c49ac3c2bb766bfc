/* tests/launcher/diff_testing.h: what a comparison of two files says, as a value. */
#ifndef PLAIT_TESTS_LAUNCHER_DIFF_TESTING_H
#define PLAIT_TESTS_LAUNCHER_DIFF_TESTING_H

#include "launcher/diff.h"
#include "tests/core/printed.h"
#include "tests/core/temp_dir.h"

#include <string>
#include <vector>

struct Compared {
    plait_status status;
    bool differ;
    std::string text, error; /* text: with A and B for the paths */
    bool says(const std::string &s) const { return text.find(s) != std::string::npos; }
};

inline void PrintTo(const Compared &c, std::ostream *to)
{
    *to << plait_status_text(c.status) << (c.differ ? ", differ\n" : "\n") << c.text << c.error;
}

class DiffTest : public TempDir
{
  protected:
    using Compare = plait_status (*)(const char *const path[2], FILE *out, bool *differ);

    Compared compare(Compare how, const std::string &a, const std::string &b) const
    {
        const std::string files[2] = {write("A", a), write("B", b)};
        const char *const path[2] = {files[0].c_str(), files[1].c_str()};
        Compared c{};
        c.text = printed([&](FILE *out) { c.status = how(path, out, &c.differ); });
        c.error = c.status == PLAIT_OK ? "" : plait_error_text();
        for (std::string *s : {&c.text, &c.error})
            for (size_t at; (at = s->find(dir + "/")) != std::string::npos;)
                s->erase(at, dir.size() + 1);
        return c;
    }
};

#endif
