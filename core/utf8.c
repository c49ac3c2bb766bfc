#include "core/utf8.h"

#include <stddef.h>

int plait_utf8_length(const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    static const struct {
        unsigned char first, last, low, high; /* range of the first byte, range of the second */
        int length;
    } rows[] = {
        {0x00, 0x7f, 0x00, 0x00, 1}, {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
        {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
        {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
    };
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        if (s[0] < rows[r].first || s[0] > rows[r].last)
            continue;
        for (int i = 1; i < rows[r].length; i++) {
            unsigned char low = i == 1 ? rows[r].low : 0x80, high = i == 1 ? rows[r].high : 0xbf;
            if (s[i] < low || s[i] > high)
                return 0;
        }
        return rows[r].length;
    }
    return 0;
}
