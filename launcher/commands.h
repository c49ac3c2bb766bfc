/* launcher/commands.h: one function a subcommand. argv[0] is the subcommand's name. */
#ifndef PLAIT_LAUNCHER_COMMANDS_H
#define PLAIT_LAUNCHER_COMMANDS_H

#include "parallel/comm.h"

PLAIT_BEGIN_DECLS

plait_status plait_command_train(plait_world *world, int argc, char **argv);
plait_status plait_command_config(plait_world *world, int argc, char **argv);
plait_status plait_command_diff(plait_world *world, int argc, char **argv);
plait_status plait_command_generate(plait_world *world, int argc, char **argv);
plait_status plait_command_compare(plait_world *world, int argc, char **argv);
plait_status plait_command_plan(plait_world *world, int argc, char **argv);
plait_status plait_command_bench(plait_world *world, int argc, char **argv);
plait_status plait_command_version(plait_world *world, int argc, char **argv);

PLAIT_END_DECLS
#endif
