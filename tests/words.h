/* tests/words.h: arguments and overrides as lists of words, which add up. */
#ifndef PLAIT_TESTS_WORDS_H
#define PLAIT_TESTS_WORDS_H

#include <string>
#include <vector>

using Words = std::vector<std::string>;

inline Words operator+(Words a, const Words &b)
{
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

#endif
