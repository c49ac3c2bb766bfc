# Trainings on GPUs, or on the emulation that stands for them (docs/fakecuda.md): whatever its streams do first.
set(schedule_eager FAKECUDA_SCHEDULE=eager)
set(schedule_lazy FAKECUDA_SCHEDULE=lazy)
foreach(seed RANGE 1 5)
  set(schedule_seed${seed} FAKECUDA_SEED=${seed})
endforeach()

foreach(schedule eager lazy seed1)
  plait_add_test(test_cuda_training FILES test_cuda_training.cpp ../parallel/mpi_main.cpp NP 2 PART ${schedule}
    LINK training_runs TIMEOUT 120 ENVIRONMENT ${schedule_${schedule}})
endforeach()
if(PLAIT_FAKECUDA)
  target_include_directories(test_cuda_training PRIVATE ${CMAKE_SOURCE_DIR}/tests/fakecuda)
endif()

# Whether the host touches device memory is seen above; closing it for each of some million operations takes long.
function(plait_add_cuda_rows part schedule filter)
  plait_add_matrix_test(test_cuda_matrix PART ${part} FILTER ${filter} ENVIRONMENT ${schedule_${schedule}} FAKECUDA_GUARD=64
    ${ARGN})
endfunction()
plait_add_cuda_rows(eager eager *.SomeRows:*.OneRank TIMEOUT 300)
plait_add_cuda_rows(lazy lazy *.OtherRows TIMEOUT 300)
plait_add_cuda_rows(seed1 seed1 *.FurtherRows TIMEOUT 300)
foreach(schedule eager lazy seed1 seed2 seed3 seed4 seed5)
  plait_add_cuda_rows(covering.${schedule} ${schedule} *.CoveringRows* TIMEOUT 3600 LABELS full-cuda)
endforeach()
