#include "launcher/stop.h"

#include <signal.h>
#include <string.h>

static volatile sig_atomic_t requested;

static void on_signal(int number)
{
    requested = number;
}

void plait_stop_install(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    action.sa_flags = (int)(SA_RESETHAND | (unsigned)SA_RESTART);
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

int plait_stop_requested(void)
{
    return requested;
}
