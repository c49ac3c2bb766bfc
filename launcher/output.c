#include "launcher/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void plait_output_guard(void)
{
    /* Opened for reading, so that writing is answered with EBADF, as without it; only messages may go to nowhere. */
    static const int modes[] = {O_RDONLY, O_RDONLY, O_WRONLY};
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", modes[fd]) < 0) /* takes the lowest free number: this one */
            return;
}

plait_status plait_output_flush(void)
{
    errno = 0;
    if (fflush(stdout) != 0 || ferror(stdout))
        PLAIT_FAIL(IO, "standard output: %s", errno ? strerror(errno) : "not all of it could be written");
    return PLAIT_OK;
}

void plait_output_text(FILE *out, const char *text)
{
    for (const unsigned char *p = (const unsigned char *)text; *p; p++)
        if ((*p < 0x20 && *p != '\n' && *p != '\t') || *p == 0x7f)
            fprintf(out, "\\x%02x", *p);
        else
            fputc(*p, out);
}
