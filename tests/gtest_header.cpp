// What the tests share of GoogleTest: see CMakeLists.txt.
#include <gtest/gtest.h>
