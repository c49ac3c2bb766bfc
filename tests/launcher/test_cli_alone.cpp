/* What needs no other rank needs no MPI: commands on a machine whose MPI cannot start. */
#include "plait_test.h"

namespace
{

class CliAlone : public PlaitTest
{
  protected:
    /* MPICH reads its variables in MPI_Init and refuses a value that is none. */
    Outcome without_mpi(const Words &args)
    {
        Command c = plait(args);
        return c.set("MPIR_CVAR_CH4_OFI_CAPABILITY_SETS_DEBUG", "neither-yes-nor-no").run();
    }
};

} // namespace

TEST_F(CliAlone, WhatCommunicatesNeedsMpi)
{
    for (const Words &args : {Words{"train", kTiny}, Words{"bench", "--machine", "m.yaml", "--quick"},
                              Words{"generate", "w", kTiny, "--prompt", "x", "--bytes", "1"}}) {
        const Outcome o = without_mpi(args);
        EXPECT_NE(o.code, 0) << text_of(args) << "\n" << o;
        EXPECT_NE(o.err.find("Init_thread"), std::string::npos) << text_of(args) << "\n" << o;
        EXPECT_EQ(o.out, "") << text_of(args);
    }
    EXPECT_FALSE(exists("m.yaml"));
}

TEST_F(CliAlone, TheOthersDoNot)
{
    write_weights(path("w"), {{"x", {{2}, {1, 2}}}});
    const struct {
        Words args;
        const char *says;
    } rows[] = {
        {{"version"}, "MPICH Version"},
        {{"help"}, "usage: plait COMMAND"},
        {{"train", "--help"}, "usage: plait train"},
        {{"config", kTiny}, "parameters on 1 rank"},
        {{"plan", kTiny8, "parallelism.tp=2"}, "all_reduce"},
        {{"plan", kTiny8, "--ranks", "4", "--json"}, "\"classes\":["},
        {{"compare", kTiny8, "--ranks", "2"}, "pipeline 2"},
    };
    for (const auto &r : rows) {
        const Outcome with = run(r.args), o = without_mpi(r.args);
        EXPECT_EQ(o.code, 0) << text_of(r.args) << "\n" << o;
        EXPECT_NE(o.out.find(r.says), std::string::npos) << text_of(r.args) << "\n" << o;
        EXPECT_EQ(o.out, with.out) << text_of(r.args);
        EXPECT_EQ(o.err, "") << text_of(r.args);
    }
    EXPECT_EQ(without_mpi({"diff", "w", "w"}).code, 0);
    EXPECT_EQ(without_mpi({"frobnicate"}).code, 2);
    EXPECT_EQ(without_mpi({}).code, 2);
    EXPECT_EQ(without_mpi({"plan", "nothing.yaml"}).code, 5);
}

/* Others may be there: only MPI knows, and one rank speaks for all. */
TEST_F(CliAlone, UnderMpiexecOneRankSpeaks)
{
    for (const Words &args :
         {Words{"version"}, Words{"config", kTiny8, "--ranks", "2"}, Words{"plan", kTiny8, "--ranks", "2"}}) {
        const Outcome one = run(args), two = run(args, 2);
        EXPECT_EQ(two.code, 0) << text_of(args) << "\n" << two;
        EXPECT_EQ(two.out, one.out) << text_of(args);
    }
    Command c = plait({"plan", kTiny8});
    const Outcome foreign = c.set("OMPI_COMM_WORLD_SIZE", "4").run();
    EXPECT_EQ(foreign.code, 2) << foreign;
    EXPECT_NE(foreign.err.find("OMPI_COMM_WORLD_SIZE"), std::string::npos) << foreign;
}
