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

plait_status plait_stop_agree(plait_comm *world, const plait_exec *ex, int *signal)
{
    double mine = plait_stop_requested(), any;
    plait_comm_op op = plait_comm_make(PLAIT_COMM_ALL_REDUCE, &mine, &any, 1, PLAIT_FP64);
    op.reduction = PLAIT_MAX;
    PLAIT_TRY(plait_comm_run(world, &op, ex));
    *signal = (int)any;
    return PLAIT_OK;
}
