#define _GNU_SOURCE /* pthread_setname_np */
#include "launcher/stop.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* UCX takes SIGHUP when it is loaded, and would let it pass without a trace. It is the first to be taken from there:
 * where another is caught, this one is too. */
static const int numbers[] = {SIGHUP, SIGINT, SIGTERM};
enum { NUMBERS = sizeof numbers / sizeof *numbers };

static atomic_int requested; /* lock-free: for a handler and for other threads */

/* Of plait_stop_report: a signal's number where one waits for the release. */
enum { FREE = 0, HELD = -1, ENDING = -2 };
static atomic_int state;

/* What is said, made before: a handler may only write it. Changed only while no handler reads: before there is one, and
 * while it is HELD. */
static char sentences[NUMBERS][1024]; /* empty: this rank says nothing */
static plait_world *ended;            /* what plait_stop_report was given */
/* Of several ranks the first aborts the job with this code, since mpiexec forgets those of ranks that end in the same
 * moment: by the thread that receives signals, since a handler must not. */
static atomic_int leaving;

static sigset_t stopping_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    for (int i = 0; i < NUMBERS; i++)
        sigaddset(&set, numbers[i]);
    return set;
}

static void *receive_signals(void *unused)
{
    (void)unused;
    sigset_t others;
    pthread_sigmask(SIG_BLOCK, NULL, &others);
    for (int i = 0; i < NUMBERS; i++)
        sigdelset(&others, numbers[i]);
    for (;;) {
        sigsuspend(&others); /* they come here and nowhere else, so not after the last look at what they left */
        if (leaving)
            plait_world_abort(ended, leaving);
    }
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

static void install(const struct sigaction *action)
{
    for (int i = 0; i < NUMBERS; i++)
        sigaction(numbers[i], action, NULL);
}

void plait_stop_install(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    action.sa_flags = (int)(SA_RESETHAND | (unsigned)SA_RESTART);
    sigemptyset(&action.sa_mask);
    install(&action);
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

/* ---- commands without steps ---- */

static void prepare_sentences(const char *left)
{
    for (int i = 0; i < NUMBERS; i++)
        snprintf(sentences[i], sizeof sentences[i], "plait: %s: signal %d (%s)%s\n", plait_status_text(PLAIT_STOPPED),
                 numbers[i], strsignal(numbers[i]), left);
}

static void say(int number)
{
    for (int i = 0; i < NUMBERS; i++)
        if (numbers[i] == number) {
            const ssize_t ignored =
                write(STDERR_FILENO, sentences[i], strlen(sentences[i])); /* nobody is left to tell */
            (void)ignored;
        }
}

/* After the sentence. The handler is the default by now: the signal comes when this one has returned. */
static void end_by(int number)
{
    const struct timespec until_mpiexec_ends_all = {.tv_sec = 2};
    if (ended->size == 1) {
        kill(getpid(), number);
    } else if (ended->rank == 0) {
        leaving = 128 + number;
    } else {
        nanosleep(&until_mpiexec_ends_all, NULL);
        kill(getpid(), number);
    }
}

static void on_ending_signal(int number)
{
    for (;;) {
        int is = FREE;
        if (atomic_compare_exchange_strong(&state, &is, ENDING)) {
            say(number);
            break;
        }
        if (is == HELD && atomic_compare_exchange_strong(&state, &is, number))
            return;
        if (is != FREE && is != HELD) /* another signal was first */
            break;
    }
    end_by(number);
}

void plait_stop_report(plait_world *world, const char *left)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_ending_signal;
    action.sa_flags = (int)SA_RESETHAND;
    sigemptyset(&action.sa_mask);
    ended = world;
    if (world->rank == 0)
        prepare_sentences(left);
    install(&action);
}

void plait_stop_hold(void)
{
    for (int is = FREE; !atomic_compare_exchange_strong(&state, &is, HELD); is = FREE)
        pause(); /* the process is ending */
}

void plait_stop_release(const char *left)
{
    if (sentences[0][0])
        prepare_sentences(left);
    const int waiting = atomic_exchange(&state, FREE);
    if (waiting == HELD)
        return;
    say(waiting);
    if (ended->size > 1)
        plait_world_abort(ended, 128 + waiting);
    kill(getpid(), waiting);
    for (;;)
        pause();
}
