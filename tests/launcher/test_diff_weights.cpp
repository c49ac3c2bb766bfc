/* Two weight files, tensor by tensor. */
#include "diff_testing.h"

#include <cstdint>
#include <cstring>

namespace
{

struct Part {
    std::string name, dtype, shape, bytes;
};

std::string file_of(const std::vector<Part> &parts, const std::string &metadata = "")
{
    std::string header = "{" + metadata, data;
    for (const Part &p : parts) {
        header += (header.size() > 1 ? ",\"" : "\"") + p.name + "\":{\"dtype\":\"" + p.dtype + "\",\"shape\":[" +
                  p.shape + "],\"data_offsets\":[" + std::to_string(data.size()) + "," +
                  std::to_string(data.size() + p.bytes.size()) + "]}";
        data += p.bytes;
    }
    header += "}";
    const uint64_t n = header.size();
    return std::string(reinterpret_cast<const char *>(&n), 8) + header + data;
}

template <typename T> std::string bytes_of(const std::vector<T> &v)
{
    return std::string(reinterpret_cast<const char *>(v.data()), v.size() * sizeof(T));
}

Part floats(const std::string &name, const std::string &shape, const std::vector<float> &v)
{
    return {name, "F32", shape, bytes_of(v)};
}
template <typename T> Part words(const std::string &dtype, const std::vector<T> &v)
{
    return {"x", dtype, std::to_string(v.size()), bytes_of(v)};
}

class DiffWeights : public DiffTest
{
  protected:
    Compared diff(const std::vector<Part> &a, const std::vector<Part> &b) const
    {
        return compare(plait_diff_weights, file_of(a), file_of(b));
    }
};

} // namespace

TEST_F(DiffWeights, OrderAndMetadataDoNotCount)
{
    const Part a = floats("a", "2", {1, 2}), b = floats("b", "1", {3}), none = floats("none", "0,4", {}),
               scalar = floats("scalar", "", {7});
    Compared c = compare(plait_diff_weights, file_of({a, b, none, scalar}),
                         file_of({scalar, b, a, none}, R"("__metadata__":{"format":"pt"})"));
    EXPECT_EQ(c.status, PLAIT_OK) << c.error;
    EXPECT_FALSE(c.differ);
    EXPECT_EQ(c.text, "equal to the last bit: 4 tensors, 4 elements\n");
}

TEST_F(DiffWeights, TheFirstElementAndTheLargestDifferenceAreTold)
{
    Compared c =
        diff({floats("w", "2,3", {1, 2, 3, 4, 5, 6}), floats("v", "2", {1, 1}), floats("u", "1", {1})},
             {floats("w", "2,3", {1, 2, 3, 4, 5.0000005f, 7}), floats("v", "2", {1, 2}), floats("u", "1", {1})});
    EXPECT_EQ(c.status, PLAIT_OK) << c.error;
    EXPECT_TRUE(c.differ);
    EXPECT_EQ(c.text, "first difference: w [1, 1], F32, 1 ULP\n"
                      "  A: 5 (0x1.4p+2)\n"
                      "  B: 5.00000048 (0x1.400002p+2)\n"
                      "in both: 3 tensors, of which 2 differ; 9 elements compared, of which 3 differ\n"
                      "largest difference: v [1], F32, 8388608 ULPs\n"
                      "  A: 1 (0x1p+0)\n"
                      "  B: 2 (0x1p+1)\n");
}

TEST_F(DiffWeights, ElementsOfAllTypesAreComparedByTheirBits)
{
    struct {
        const char *name;
        Part a, b;
        const char *says; /* nullptr: equal */
    } rows[] = {
        {"f64", words<double>("F64", {1, 2}), words<double>("F64", {1, 2.0000000000000004}), "x [1], F64, 1 ULP\n"},
        {"bf16", words<uint16_t>("BF16", {0x3f80}), words<uint16_t>("BF16", {0x3f83}),
         "x [0], BF16, 3 ULPs\n  A: 1 (0x1p+0)\n  B: 1.0234375 (0x1.06p+0)\n"},
        {"f16", words<uint16_t>("F16", {0x3c00}), words<uint16_t>("F16", {0x3c01}), "x [0], F16, 1 ULP\n"},
        {"zeros", words<float>("F32", {0.0f}), words<float>("F32", {-0.0f}), "x [0], F32, 0 ULPs: the sign of zero\n"},
        {"nan_same", words<uint32_t>("F32", {0x7fa00001}), words<uint32_t>("F32", {0x7fa00001}), nullptr},
        {"nan_signalling", words<uint16_t>("BF16", {0x7f81}), words<uint16_t>("BF16", {0x7fc1}),
         "x [0], BF16, no distance in ULPs: not both are numbers\n  A: nan (bits 0x7f81)\n  B: nan (bits 0x7fc1)\n"},
        {"i64", words<int64_t>("I64", {1, -1}), words<int64_t>("I64", {1, -2}),
         "x [1], I64\n  A: bits 0xffffffffffffffff\n  B: bits 0xfffffffffffffffe\n"},
        {"bool", words<uint8_t>("BOOL", {0, 1}), words<uint8_t>("BOOL", {0, 0}), "x [1], BOOL\n  A: bits 0x01\n"},
        {"u8_same", words<uint8_t>("U8", {3}), words<uint8_t>("U8", {3}), nullptr},
    };
    for (const auto &r : rows) {
        Compared c = diff({r.a}, {r.b});
        EXPECT_EQ(c.status, PLAIT_OK) << r.name << ": " << c.error;
        EXPECT_EQ(c.differ, r.says != nullptr) << r.name << "\n" << c.text;
        if (r.says) {
            EXPECT_TRUE(c.says(std::string("first difference: ") + r.says)) << r.name << "\n" << c.text;
        }
    }
}

TEST_F(DiffWeights, TypesShapesAndNamesAreCompared)
{
    const Part x = floats("x", "2,3", {1, 2, 3, 4, 5, 6}), turned = floats("x", "3,2", {1, 2, 3, 4, 5, 6}),
               flat = floats("x", "6", {1, 2, 3, 4, 5, 6});
    Part whole = x;
    whole.dtype = "I32";
    const Part y = floats("y", "1", {1}), z = floats("z", "1", {1});
    EXPECT_EQ(diff({x, y}, {turned, y}).text,
              "first difference: x\n  A: F32 [2, 3]\n  B: F32 [3, 2]\n"
              "in both: 2 tensors, of which 1 differ (1 in type or shape, not compared); "
              "1 element compared, of which 0 differ\n");
    EXPECT_TRUE(diff({x}, {flat}).says("B: F32 [6]\n"));
    EXPECT_TRUE(diff({x}, {whole}).says("  A: F32 [2, 3]\n  B: I32 [2, 3]\n"));
    EXPECT_EQ(diff({x, y}, {x, z}).text, "first difference: y is only in A\n"
                                         "in both: 1 tensor, of which 0 differ; 6 elements compared, of which 0 "
                                         "differ\n"
                                         "only in A: 1 tensor: y\n"
                                         "only in B: 1 tensor: z\n");
    EXPECT_TRUE(diff({x}, {y, x}).says("first difference: y is only in B\n"));
    /* no name in common, and more than are named */
    std::vector<Part> many;
    for (int i = 0; i < 20; i++)
        many.push_back(floats("t" + std::to_string(i), "1", {1}));
    Compared c = diff({x}, many);
    EXPECT_TRUE(c.differ);
    EXPECT_TRUE(c.says("only in B: 20 tensors: t0, t1, t2, t3, t4, t5, t6, t7, ...\n")) << c.text;
}

/* More than a chunk, of a length that is no multiple of one; each element is at its own index. */
TEST_F(DiffWeights, EveryElementOfALargeTensorIsSeen)
{
    const int64_t rows = 1001, cols = 701;
    std::vector<float> a(rows * cols, 1.0f);
    for (int64_t at : {int64_t{0}, int64_t{262143}, int64_t{262144}, int64_t{600000}, rows * cols - 1}) {
        std::vector<float> b = a;
        b[static_cast<size_t>(at)] = 1.5f;
        const std::string shape = "1001,701";
        Compared c = diff({floats("w", shape, a)}, {floats("w", shape, b)});
        EXPECT_TRUE(c.says("first difference: w [" + std::to_string(at / cols) + ", " + std::to_string(at % cols) +
                           "], F32, 4194304 ULPs\n"))
            << c.text;
        EXPECT_TRUE(c.says("701701 elements compared, of which 1 differ\n")) << c.text;
    }
    std::vector<float> b(rows * cols, 2.0f);
    EXPECT_TRUE(diff({floats("w", "1001,701", a)}, {floats("w", "1001,701", b)}).says("of which 701701 differ\n"));
}

TEST_F(DiffWeights, DamagedFilesAreRefused)
{
    const std::string good = file_of({floats("x", "2", {1, 2})});
    for (const std::string &bad : {std::string(), good.substr(0, 7), good.substr(0, good.size() - 1), good + "x"})
        for (bool second : {false, true}) {
            Compared c = compare(plait_diff_weights, second ? good : bad, second ? bad : good);
            EXPECT_EQ(c.status, PLAIT_IO) << bad.size();
            EXPECT_EQ(c.error.compare(0, 1, second ? "B" : "A"), 0) << c.error;
        }
}
