/* tests/core/printed.h: what a function that prints to a FILE prints. */
#ifndef PLAIT_TESTS_CORE_PRINTED_H
#define PLAIT_TESTS_CORE_PRINTED_H

#include <cstdio>
#include <cstdlib>
#include <string>

/* What print(FILE *) writes. */
template <typename Print> std::string printed(Print print)
{
    char *text = nullptr;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);
    print(f);
    fclose(f);
    std::string out(text, len);
    free(text);
    return out;
}

#endif
