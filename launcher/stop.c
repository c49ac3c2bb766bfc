#define _GNU_SOURCE /* pthread_setname_np */
#include "launcher/stop.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

static atomic_int requested; /* lock-free: for a handler and for other threads */

static sigset_t stopping_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    return set;
}

static void *receive_signals(void *unused)
{
    (void)unused;
    const sigset_t set = stopping_signals();
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    for (;;)
        pause();
    return NULL;
}

plait_status plait_stop_guard(void)
{
    const sigset_t set = stopping_signals();
    pthread_attr_t attributes;
    pthread_t thread;
    /* Threads inherit what is blocked: those of OpenMP come later. */
    int error = pthread_sigmask(SIG_BLOCK, &set, NULL);
    if (error == 0)
        error = pthread_attr_init(&attributes);
    if (error == 0) {
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        pthread_attr_setstacksize(&attributes, 256 << 10);
        error = pthread_create(&thread, &attributes, receive_signals, NULL);
        pthread_attr_destroy(&attributes);
    }
    if (error != 0)
        PLAIT_FAIL(OUT_OF_MEMORY, "no thread for signals: %s", strerror(error));
    pthread_setname_np(thread, "plait-signals");
    return PLAIT_OK;
}

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
    sigaction(SIGHUP, &action, NULL);
}

int plait_stop_requested(void)
{
    return requested;
}

plait_status plait_stop_agree(plait_comm *world, bool failed, int *reason)
{
    double mine = failed ? PLAIT_STOP_FAILURE : requested, any;
    plait_comm_op op = plait_comm_make(PLAIT_COMM_ALL_REDUCE, &mine, &any, 1, PLAIT_FP64);
    op.reduction = PLAIT_MAX;
    PLAIT_TRY(plait_comm_run(world, &op, NULL));
    *reason = (int)any;
    return PLAIT_OK;
}
