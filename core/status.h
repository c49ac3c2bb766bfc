/* core/status.h: how a function says that it failed.
 *
 * A function that can fail returns a plait_status. The code is the kind of failure and decides the process's exit
 * code; the sentence for the user and the trace of where it passed lie in a record of the calling thread. The first
 * failure writes the record, the callers only add a line of trace.
 */
#ifndef PLAIT_CORE_STATUS_H
#define PLAIT_CORE_STATUS_H

#ifdef __cplusplus
#define PLAIT_BEGIN_DECLS extern "C" {
#define PLAIT_END_DECLS   }
#else
#define PLAIT_BEGIN_DECLS
#define PLAIT_END_DECLS
#endif

#define PLAIT_MUST_USE           __attribute__((warn_unused_result))
#define PLAIT_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))
/* Small functions that kernels for GPUs use too. */
#ifdef __CUDACC__
#define PLAIT_HOST_DEVICE __host__ __device__
#else
#define PLAIT_HOST_DEVICE
#endif

PLAIT_BEGIN_DECLS

/* name, exit code of the process, text. The exit codes are part of the user interface (README). */
#define PLAIT_STATUS_LIST(X)                                                                                           \
    X(OK, 0, "ok")                                                                                                     \
    X(INTERNAL, 1, "internal error")                                                                                   \
    X(USAGE, 2, "usage or configuration")                                                                              \
    X(UNSUPPORTED, 2, "unsupported")                                                                                   \
    X(OUT_OF_MEMORY, 3, "out of memory")                                                                               \
    X(NUMERIC, 4, "non-finite numbers")                                                                                \
    X(IO, 5, "file")                                                                                                   \
    X(PEER, 6, "lost or stalled peer")                                                                                 \
    X(STOPPED, 7, "stopped by a signal")                                                                               \
    X(DIFFERENT, 8, "different")

#define PLAIT_STATUS_ENUM(name, exit_code, text) PLAIT_##name,
typedef enum plait_status { PLAIT_STATUS_LIST(PLAIT_STATUS_ENUM) PLAIT_STATUS_COUNT } plait_status;
#undef PLAIT_STATUS_ENUM

const char *plait_status_text(plait_status st);
int plait_status_exit_code(plait_status st);

/* Starts this thread's record: overwrites an older one. Returns st, so that it can be returned at once. */
plait_status plait_error_set(plait_status st, const char *file, int line, const char *format, ...) PLAIT_PRINTF(4, 5);
/* Adds where the failure passed. */
void plait_error_trace(const char *file, int line, const char *function);
/* Puts where it happened in front of the sentence ("step 12 micro-batch 3: "); the trace stays. */
void plait_error_prefix(const char *format, ...) PLAIT_PRINTF(1, 2);
/* The sentence; "" if nothing failed. Valid until this thread's next failure. */
const char *plait_error_text(void);
/* "file.c:12 < caller.c:40 (function) < ..." */
const char *plait_error_trace_text(void);
plait_status plait_error_status(void);

#define PLAIT_FAIL(code, ...) return plait_error_set(PLAIT_##code, __FILE__, __LINE__, __VA_ARGS__)

#define PLAIT_TRY(call)                                                                                                \
    do {                                                                                                               \
        plait_status try_status_ = (call);                                                                             \
        if (try_status_ != PLAIT_OK) {                                                                                 \
            plait_error_trace(__FILE__, __LINE__, __func__);                                                           \
            return try_status_;                                                                                        \
        }                                                                                                              \
    } while (0)

/* The forms for a function that holds something: they set `st` and jump to the label that lets go. */
#define PLAIT_FAIL_TO(label, st, code, ...)                                                                            \
    do {                                                                                                               \
        (st) = plait_error_set(PLAIT_##code, __FILE__, __LINE__, __VA_ARGS__);                                         \
        goto label;                                                                                                    \
    } while (0)

#define PLAIT_TRY_TO(label, st, call)                                                                                  \
    do {                                                                                                               \
        (st) = (call);                                                                                                 \
        if ((st) != PLAIT_OK) {                                                                                        \
            plait_error_trace(__FILE__, __LINE__, __func__);                                                           \
            goto label;                                                                                                \
        }                                                                                                              \
    } while (0)

PLAIT_END_DECLS
#endif
