/* tests/parallel/mpi_world.h: the world of a test program under mpiexec (mpi_main.cpp makes and ends it). */
#ifndef PLAIT_TESTS_MPI_WORLD_H
#define PLAIT_TESTS_MPI_WORLD_H

#include "parallel/comm.h"

extern plait_world test_world;

#endif
