// Does a table compute what kernels/kernels.h says? Every row runs one operation on the same rounded inputs with the
// table under test and with the reference in double, and compares all outputs within tests/kernels/bounds.h.
//
// Besides: what must not be written (gaps between rows, bytes before the beginning and after the end) is still as it
// was, and two threads give the same bits as one (or, where a table has no threads, two runs).
//
// A row is written once for all backends (kernels/backend.h): all that an operation reads or writes through a pointer
// to a tensor is an Array or a Raw, which lie on the host and are taken to the table's memory and back around each
// call.
#ifndef PLAIT_TESTS_KERNELS_CONFORMANCE_H
#define PLAIT_TESTS_KERNELS_CONFORMANCE_H

#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/plan/plan.h"

namespace conformance
{

// Where a table runs, and what it is given.
struct Setting {
    const plait_backend *backend;
    size_t scratch_bytes = 4 << 20;
    bool odd = false; // in memory that is not the host's: everything begins one element after a multiple of 64 bytes
};

// Bytes between two guards: on the host, and for a table of another backend also where it computes.
class Memory
{
  public:
    Memory(const Setting &setting, size_t size, size_t element);
    Memory(const Memory &) = delete;
    ~Memory();

    void *bytes() const { return host_.get() + kGuard; }
    size_t size() const { return size_; }
    // For the table under test.
    void *place() const { return place_; }
    // Guards and all, to where the table computes, and back.
    plait_status upload(const plait_exec *ex) const;
    plait_status download(const plait_exec *ex) const;

  protected:
    static constexpr unsigned char kPoison = 0xff; // a byte that makes a NaN of every float type
    bool outer_guards_intact() const;

  private:
    static constexpr size_t kGuard = 64;
    struct Free {
        void operator()(void *p) const { std::free(p); }
    };
    const plait_backend *backend_;
    size_t size_, odd_; // bytes that the beginning is off in memory that is not the host's
    std::unique_ptr<char, Free> host_;
    char *device_; // or NULL
    void *place_;

    size_t whole() const { return size_ + 2 * kGuard; }
};

// A (rows, cols) matrix that exists twice: in its own type for the table under test, in double for the reference.
class Array : public Memory
{
  public:
    Array(const Setting &setting, int64_t rows, int64_t cols, int64_t ld, plait_dtype dtype);

    const int64_t rows, cols, ld;
    const plait_dtype dtype;
    std::vector<double> d; // rows * ld

    double at(int64_t r, int64_t c) const { return d[static_cast<size_t>(r * ld + c)]; }
    double max_abs() const;
    // Element as the table under test left it.
    double got(int64_t r, int64_t c) const;
    void set(int64_t r, int64_t c, double value); // rounds, in both
    void round();                                 // makes both what the double array rounds to
    bool guards_intact() const;
};

// Values that are no floats, such as tokens and flags: the same for the reference, which has its own copy of them.
class Raw : public Memory
{
  public:
    Raw(const Setting &setting, size_t size, size_t element) : Memory(setting, size, element) {}

    template <typename V> void put(const std::vector<V> &values)
    {
        if (size() > 0)
            std::memcpy(bytes(), values.data(), size());
    }
    // As the table under test left them.
    template <typename V> std::vector<V> get() const
    {
        std::vector<V> values(size() / sizeof(V));
        if (size() > 0)
            std::memcpy(values.data(), bytes(), size());
        return values;
    }
    bool guards_intact() const { return outer_guards_intact(); }

    std::vector<char> copy; // the reference's
};

double load(const void *p, plait_dtype dtype, int64_t i);
void store(void *p, plait_dtype dtype, int64_t i, double value);

// The place of an operand for the side that is run; nullptr stays nullptr.
struct Side {
    bool reference;
    void *operator()(const Array *a) const
    {
        if (!a)
            return nullptr;
        return reference ? const_cast<double *>(a->d.data()) : a->place();
    }
    void *operator()(const Array &a) const { return (*this)(&a); }
    // Column c of the first row: a matrix inside a wider one.
    void *operator()(const Array &a, int64_t c) const
    {
        return reference ? const_cast<double *>(a.d.data() + c) : plait_at(a.place(), a.dtype, c);
    }
    template <typename V> V *as(const Raw &r) const
    {
        return static_cast<V *>(reference ? const_cast<char *>(r.copy.data()) : r.place());
    }
};

using Scale = std::function<double(int64_t r, int64_t c)>;
using Call = std::function<plait_status(const plait_kernels &k, const plait_exec *ex, Side at)>;

class Bench
{
  public:
    Bench(const plait_kernels &table, const Setting &setting);

    const plait_kernels &table;
    const plait_dtype T, A;
    std::vector<std::string> failures;

    // Normal numbers times `size` plus `offset`; ld 0: dense.
    Array &values(int64_t rows, int64_t cols, plait_dtype dtype, int64_t ld = 0, double size = 1, double offset = 0);
    // Not a number until written.
    Array &output(int64_t rows, int64_t cols, plait_dtype dtype, int64_t ld = 0);
    template <typename V> Raw &raw(const std::vector<V> &values)
    {
        Raw &r = raws_.emplace_back(setting_, values.size() * sizeof(V), sizeof(V));
        r.put(values);
        return r;
    }
    template <typename V> Raw &scalar(V value) { return raw(std::vector<V>{value}); }

    // Begins a new problem: its sizes, for the text of failures. The arrays of the one before are gone.
    void say(const std::string &what)
    {
        context_ = what;
        arrays_.clear();
        raws_.clear();
    }
    void fail(const std::string &what) { failures.push_back(context_ + ": " + what); }

    // Runs the table.
    void once(const Call &call, int threads = 1);
    // Runs the table twice, with the two numbers of threads: the bits must be the same. Then the reference.
    void both(const Call &call, int threads = 2, int again = 1);
    // The whole of `a` against `bound_of(output, ...)`; `acc` is A if not given.
    void compare(const char *output, const Array &a, double K, const Scale &scale);
    void compare(const char *output, const Array &a, double K, const Scale &scale, plait_dtype acc);
    void check(const char *output, int64_t r, int64_t c, double got, double want, double bound);

  private:
    const Setting setting_;
    std::string context_;
    std::deque<Array> arrays_;
    std::deque<Raw> raws_;
    uint32_t stream_ = 0;

    template <typename F> void each_memory(F f);
};

struct Row {
    std::string name;
    plait_op op;
    std::function<void(Bench &)> run;
};

// All rows; names are unique.
const std::vector<Row> &rows();
// What is wrong with `table`; empty if nothing.
std::vector<std::string> run(const Row &row, const plait_kernels &table, const Setting &setting);

// The parts of rows(), a file each.
void add_linear_rows(std::vector<Row> &rows);
void add_norm_rows(std::vector<Row> &rows);
void add_attention_rows(std::vector<Row> &rows);
void add_pointwise_rows(std::vector<Row> &rows);
void add_loss_rows(std::vector<Row> &rows);
void add_optim_rows(std::vector<Row> &rows);
void add_fixed_rows(std::vector<Row> &rows);
void add_hash_rows(std::vector<Row> &rows);
void add_convert_rows(std::vector<Row> &rows);

} // namespace conformance
#endif
