/* tests/core/config_test.h: a configuration from a text, for the tests of core/config*.c. */
#ifndef PLAIT_TESTS_CORE_CONFIG_TEST_H
#define PLAIT_TESTS_CORE_CONFIG_TEST_H

#include "core/config.h"
#include "core/config_impl.h"
#include "printed.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <unistd.h>
#include <vector>

/* A file in a directory of its own, gone afterwards. */
class TempYaml
{
  public:
    explicit TempYaml(const std::string &text)
    {
        char name[] = "/tmp/plait-config-XXXXXX";
        dir_ = mkdtemp(name);
        path = dir_ + "/t.yaml";
        FILE *f = fopen(path.c_str(), "wb");
        fwrite(text.data(), 1, text.size(), f);
        fclose(f);
    }
    ~TempYaml()
    {
        unlink(path.c_str());
        rmdir(dir_.c_str());
    }
    TempYaml(const TempYaml &) = delete;
    TempYaml &operator=(const TempYaml &) = delete;
    std::string dir() const { return dir_; }
    std::string path;

  private:
    std::string dir_;
};

/* Loads text (none: defaults) and overrides; the error text has the temporary path replaced by "t.yaml". */
class Loaded
{
  public:
    explicit Loaded(const std::string &text, const std::vector<std::string> &overrides = {}) : file_(text)
    {
        load(text.empty() ? nullptr : file_.path.c_str(), overrides);
    }
    ~Loaded() { plait_config_deinit(&cfg); }
    Loaded(const Loaded &) = delete;
    Loaded &operator=(const Loaded &) = delete;

    plait_status resolve(int world)
    {
        status = plait_config_resolve(&cfg, world);
        take_error();
        return status;
    }
    std::string value(const std::string &path) const
    {
        int count;
        bool negated;
        const plait_key *keys = plait_config_keys(&count);
        int row = plait_config_find(path.c_str(), &negated);
        if (row < 0)
            return "no such key";
        std::vector<char> text(PLAIT_VALUE_TEXT);
        plait_value_text(&keys[row], reinterpret_cast<const char *>(&cfg) + keys[row].offset, text.data(), text.size());
        return text.data();
    }
    std::string dump() const
    {
        char *text = plait_config_dump(&cfg);
        std::string copy = text ? text : "";
        free(text);
        return copy;
    }
    plait_config cfg{};
    plait_status status = PLAIT_OK;
    std::string error;

  private:
    void load(const char *path, const std::vector<std::string> &overrides)
    {
        std::vector<const char *> o;
        for (const auto &s : overrides)
            o.push_back(s.c_str());
        status = plait_config_load(&cfg, path, o.data(), static_cast<int>(o.size()));
        take_error();
    }
    void take_error()
    {
        error = status == PLAIT_OK ? "" : plait_error_text();
        for (size_t at; (at = error.find(file_.path)) != std::string::npos;)
            error.replace(at, file_.path.size(), "t.yaml");
    }
    TempYaml file_;
};

/* Replaces the first `from`, which must be there. */
inline std::string with(std::string text, const std::string &from, const std::string &to)
{
    size_t at = text.find(from);
    if (at == std::string::npos)
        ADD_FAILURE() << "no \"" << from << "\" in the text";
    else
        text.replace(at, from.size(), to);
    return text;
}

inline std::string with_all(std::string text, const std::string &from, const std::string &to)
{
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
        text.replace(at, from.size(), to);
    return text;
}

#endif
