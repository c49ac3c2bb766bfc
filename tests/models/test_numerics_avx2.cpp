// A run with AVX2 alone trains like the specification in double precision. A job of its own: the library of matrix
// products takes its instruction set once, at its first call.
#include "tests/models/training_testing.h"

using namespace training;

TEST(InstructionSetAvx2, TrainsLikeTheReference)
{
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        GTEST_SKIP() << "no AVX2 here";
    Training avx2(Ranks::all, "tiny.yaml", {"device.isa=avx2"});
    EXPECT_STREQ(plait_engine_exec(avx2.engine())->k->name, "cpu-avx2");
    Training reference(Ranks::all, "tiny.yaml", {"precision.dtype=fp64"});
    for (int step = 1; step <= 5; step++) {
        const plait_step_result got = avx2.step(), want = reference.step();
        EXPECT_LE(relative(got.loss, want.loss), 1e-6) << "step " << step;
        EXPECT_LE(relative(got.grad_norm, want.grad_norm), 5e-6) << "step " << step;
    }
}
