#include "launcher/progress.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "launcher/flops.h"

double plait_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

plait_progress plait_progress_make(const plait_config *cfg, int rank)
{
    return (plait_progress){.prints = rank == 0,
                            .terminal = rank == 0 && isatty(STDOUT_FILENO),
                            .iterations = cfg->train.train_iters,
                            .log_interval = cfg->train.log_interval,
                            .flops_per_token = plait_model_flops_per_token(cfg),
                            .log_throughput = cfg->logging.log_throughput,
                            .started = plait_seconds()};
}

static void clear_bar(const plait_progress *p)
{
    if (p->terminal)
        fputs("\r\033[K", stdout);
}

static void draw_bar(const plait_progress *p, int64_t step)
{
    enum { WIDTH = 40 };
    if (!p->terminal || step >= p->iterations)
        return;
    double spent = plait_seconds() - p->started, left = spent / (double)step * (double)(p->iterations - step);
    int filled = (int)(step * WIDTH / p->iterations);
    printf("\r[%.*s%*s] %lld/%lld  %lld:%02d left\033[K", filled, "########################################",
           WIDTH - filled, "", (long long)step, (long long)p->iterations, (long long)(left / 60), (int)left % 60);
    fflush(stdout);
}

static void print_line(plait_progress *p, const plait_progress_step *s)
{
    char date[32];
    time_t now = time(NULL);
    struct tm local;
    strftime(date, sizeof date, "%Y-%m-%d %H:%M:%S", localtime_r(&now, &local));
    const plait_step_result *r = s->result;
    printf(" [%s] iteration %8lld/%8lld | consumed samples: %12lld | elapsed time per iteration (ms): %.1f |"
           " learning rate: %.6E | global batch size: %5lld | lm loss: %.6E | loss scale: %.1f | grad norm: %.3f |"
           " number of skipped iterations: %3lld | number of nan iterations:   0 |",
           date, (long long)s->step, (long long)p->iterations, (long long)s->consumed_samples,
           p->seconds * 1e3 / (double)p->steps, s->lr, (long long)s->global_batch_size, r->loss, r->loss_scale,
           r->grad_norm, (long long)p->skipped_total);
    if (p->log_throughput) {
        double rate = (double)p->tokens / p->seconds;
        printf(" tokens/s: %.0f | model GFLOP/s: %.1f | mem (MiB): %.1f |", rate, rate * p->flops_per_token * 1e-9,
               (double)s->memory / 1048576.0);
    }
    putchar('\n');
    fflush(stdout);
}

void plait_progress_step_done(plait_progress *p, const plait_progress_step *s)
{
    p->steps++;
    p->tokens += s->tokens;
    p->seconds += s->seconds;
    p->skipped_total += s->result->skipped;
    if (!p->prints)
        return;
    clear_bar(p);
    if (s->step % p->log_interval == 0 || s->step == p->iterations) {
        print_line(p, s);
        p->steps = p->tokens = 0;
        p->seconds = 0;
    }
    draw_bar(p, s->step);
}

void plait_progress_eval(plait_progress *p, int64_t after_step, double loss)
{
    if (!p->prints)
        return;
    clear_bar(p);
    printf(" validation loss at iteration %lld: %.6E | nats per token\n", (long long)after_step, loss);
    fflush(stdout);
    draw_bar(p, after_step);
}

void plait_progress_end(plait_progress *p)
{
    clear_bar(p);
}
