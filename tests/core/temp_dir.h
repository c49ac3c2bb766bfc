/* tests/core/temp_dir.h: a directory of its own for a test that writes files; removed at the end. */
#ifndef PLAIT_TESTS_CORE_TEMP_DIR_H
#define PLAIT_TESTS_CORE_TEMP_DIR_H

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

class TempDir : public testing::Test
{
  protected:
    TempDir()
    {
        std::string name = testing::TempDir() + "plait-XXXXXX";
        dir = mkdtemp(name.data());
    }
    ~TempDir() override
    {
        std::error_code ignored;
        std::filesystem::remove_all(dir, ignored);
    }
    std::string path(const std::string &name) const { return dir + "/" + name; }
    std::string write(const std::string &name, const std::string &bytes) const
    {
        std::ofstream(path(name), std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
        return path(name);
    }
    int64_t files() const
    {
        return std::distance(std::filesystem::directory_iterator(dir), std::filesystem::directory_iterator());
    }
    std::string dir;
};

#endif
