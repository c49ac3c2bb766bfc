// Does a table compute what kernels/kernels.h says? Every row runs one operation on the same rounded inputs with the
// table under test and with the reference in double, and compares all outputs within tests/kernels/bounds.h.
//
// Besides: what must not be written (gaps between rows, bytes after the end) is still as it was, and two threads give
// the same bits as one.
#ifndef PLAIT_TESTS_KERNELS_CONFORMANCE_H
#define PLAIT_TESTS_KERNELS_CONFORMANCE_H

#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/plan/plan.h"

namespace conformance
{

// A (rows, cols) matrix that exists twice: in its own type for the table under test, in double for the reference.
class Array
{
  public:
    Array(int64_t rows, int64_t cols, int64_t ld, plait_dtype dtype);
    Array(const Array &) = delete;

    const int64_t rows, cols, ld;
    const plait_dtype dtype;
    std::vector<double> d; // rows * ld

    void *bytes() const { return bytes_.get(); }
    size_t size() const { return size_; }
    double at(int64_t r, int64_t c) const { return d[static_cast<size_t>(r * ld + c)]; }
    double max_abs() const;
    // Element as the table under test left it.
    double got(int64_t r, int64_t c) const;
    void set(int64_t r, int64_t c, double value); // rounds, in both
    void round();                                 // makes both what the double array rounds to
    bool guards_intact() const;

  private:
    struct Free {
        void operator()(void *p) const { std::free(p); }
    };
    size_t size_; // without the guard behind it
    std::unique_ptr<void, Free> bytes_;
};

double load(const void *p, plait_dtype dtype, int64_t i);
void store(void *p, plait_dtype dtype, int64_t i, double value);

// The place of an array for the side that is run; nullptr stays nullptr.
struct Side {
    bool reference;
    void *operator()(const Array *a) const
    {
        if (!a)
            return nullptr;
        return reference ? const_cast<double *>(a->d.data()) : a->bytes();
    }
    void *operator()(const Array &a) const { return (*this)(&a); }
    // Column c of the first row: a matrix inside a wider one.
    void *operator()(const Array &a, int64_t c) const
    {
        return reference ? const_cast<double *>(a.d.data() + c) : plait_at(a.bytes(), a.dtype, c);
    }
};

using Scale = std::function<double(int64_t r, int64_t c)>;
using Call = std::function<plait_status(const plait_kernels &k, const plait_exec *ex, Side at)>;

class Bench
{
  public:
    explicit Bench(const plait_kernels &table);

    const plait_kernels &table;
    const plait_dtype T, A;
    std::vector<std::string> failures;

    // Normal numbers times `size` plus `offset`; ld 0: dense.
    Array &values(int64_t rows, int64_t cols, plait_dtype dtype, int64_t ld = 0, double size = 1, double offset = 0);
    // Not a number until written.
    Array &output(int64_t rows, int64_t cols, plait_dtype dtype, int64_t ld = 0);

    // Begins a new problem: its sizes, for the text of failures. The arrays of the one before are gone.
    void say(const std::string &what)
    {
        context_ = what;
        arrays_.clear();
    }
    void fail(const std::string &what) { failures.push_back(context_ + ": " + what); }

    // Runs the reference, and the table twice, with the two numbers of threads: the bits must be the same.
    void both(const Call &call, int threads = 2, int again = 1);
    // The whole of `a` against `bound_of(output, ...)`; `acc` is A if not given.
    void compare(const char *output, const Array &a, double K, const Scale &scale);
    void compare(const char *output, const Array &a, double K, const Scale &scale, plait_dtype acc);
    void check(const char *output, int64_t r, int64_t c, double got, double want, double bound);

  private:
    std::string context_;
    std::deque<Array> arrays_;
    std::vector<char> scratch_;
    uint32_t stream_ = 0;
};

struct Row {
    std::string name;
    plait_op op;
    std::function<void(Bench &)> run;
};

// All rows; names are unique.
const std::vector<Row> &rows();
// What is wrong with `table`; empty if nothing.
std::vector<std::string> run(const Row &row, const plait_kernels &table);

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
