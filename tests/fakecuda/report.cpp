// How the emulation says what it found: one sentence with the place, then all queues, then the end of the process.
#include "tests/fakecuda/report.h"
#include "tests/fakecuda/settings.h"
#include "tests/fakecuda/streams.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

extern "C" char __executable_start;

namespace fakecuda
{

namespace
{

std::string format_list(const char *form, va_list list)
{
    va_list again;
    va_copy(again, list);
    const int length = vsnprintf(nullptr, 0, form, again);
    va_end(again);
    std::string text(static_cast<size_t>(length) + 1, '\0');
    vsnprintf(&text[0], text.size(), form, list);
    text.pop_back();
    return text;
}

std::string after(const std::string &text, const char *separator)
{
    return text.empty() ? text : text + separator;
}

} // namespace

std::string format(const char *form, ...)
{
    va_list list;
    va_start(list, form);
    std::string text = format_list(form, list);
    va_end(list);
    return text;
}

void die(const char *form, ...)
{
    va_list list;
    va_start(list, form);
    const std::string sentence = format_list(form, list);
    va_end(list);
    // getenv and not settings(), whose own complaints come here.
    const char *rank = getenv("PMI_RANK");
    std::string place = running_thread();
    if (place.empty())
        place = running_operation();
    const std::string text =
        "fakecuda: " + (rank ? format("rank %s: ", rank) : "") + after(place, ": ") + sentence + "\n" + queues();
    fflush(nullptr);
    for (size_t at = 0; at < text.size();) {
        const ssize_t n = write(STDERR_FILENO, text.data() + at, text.size() - at);
        if (n <= 0)
            break;
        at += static_cast<size_t>(n);
    }
    _exit(97);
}

// By the program of binutils or LLVM, as it is for a process that ends anyway.
std::string source_line(uintptr_t code)
{
    char program[4096];
    const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length < 0 || code == 0)
        return "";
    program[length] = '\0';
    // A return address belongs to the line after the access. Addresses of a file that is loaded anywhere count from its
    // start.
    uintptr_t at = code - 1;
    uint16_t type; // e_type of the ELF header
    memcpy(&type, &__executable_start + 16, sizeof type);
    if (type == 3)
        at -= reinterpret_cast<uintptr_t>(&__executable_start);
    const std::string command = format("addr2line -e '%s' 0x%zx 2>/dev/null", program, static_cast<size_t>(at));
    FILE *pipe = popen(command.c_str(), "r");
    if (!pipe)
        return "";
    char line[1024] = "";
    if (!fgets(line, sizeof line, pipe))
        line[0] = '\0';
    pclose(pipe);
    line[strcspn(line, "\n (")] = '\0';
    if (line[0] == '?' || line[0] == '\0' || strstr(line, ":?") || strstr(line, ":0"))
        return "";
    return line;
}

} // namespace fakecuda
