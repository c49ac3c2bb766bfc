# Tests of the emulated cuBLASLt and NCCL (cublaslt*.cpp, nccl*.cpp). Included by tests/CMakeLists.txt.
set(here ${CMAKE_CURRENT_LIST_DIR})
plait_add_test(test_fake_cublaslt FILES ${here}/test_fake_cublaslt.cpp LINK fakecuda)
foreach(ranks 1 2 4)
  plait_add_test(test_fake_nccl FILES ${here}/test_fake_nccl.cpp NP ${ranks} TIMEOUT 120 LINK fakecuda)
endforeach()
# Whatever runs first: streams of one rank, and ranks.
foreach(way eager lazy 7 8)
  set(schedule FAKECUDA_SCHEDULE=${way})
  if(way MATCHES "^[0-9]+$")
    set(schedule FAKECUDA_SEED=${way})
  endif()
  add_test(NAME test_fake_nccl.${way}.np2
    COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} 2 $<TARGET_FILE:test_fake_nccl>)
  set_tests_properties(test_fake_nccl.${way}.np2 PROPERTIES PROCESSORS 2 TIMEOUT 120 LABELS unit
    ENVIRONMENT "HWLOC_COMPONENTS=-pci;${schedule}")
endforeach()

add_executable(nccl_failures ${here}/nccl_failures.cpp)
target_link_libraries(nccl_failures PRIVATE fakecuda)
add_dependencies(unit_tests nccl_failures)
function(plait_add_nccl_failure name code text)
  add_test(NAME nccl_failures.${name} COMMAND ${CMAKE_SOURCE_DIR}/tests/parallel/expect.sh "${code}" "${text}"
    ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} 2 $<TARGET_FILE:nccl_failures> ${name})
  set_tests_properties(nccl_failures.${name} PROPERTIES PROCESSORS 2 TIMEOUT 30 LABELS unit
    ENVIRONMENT "HWLOC_COMPONENTS=-pci;FAKECUDA_TIMEOUT=2")
endfunction()
plait_add_nccl_failure(well 0 "")
plait_add_nccl_failure(count "*" "rank 1 does ncclAllReduce of 7 float32, sum")
plait_add_nccl_failure(type "*" "rank 1 does ncclAllReduce of 8 int32, sum")
plait_add_nccl_failure(op "*" "rank 1 does ncclAllReduce of 8 float32, max")
plait_add_nccl_failure(root "*" "rank 1 does ncclBroadcast of 8 float32, root 1")
plait_add_nccl_failure(kind "*" "rank 1 does ncclAllGather of 8 float32")
plait_add_nccl_failure(send "*" "rank 1 does ncclRecv of 4 float32")
plait_add_nccl_failure(missing "*" "ncclAllReduce, rank 0 of 2")
plait_add_nccl_failure(head_to_head "*" "a deadlock")
plait_add_nccl_failure(overlap "*" "the buffers overlap")
plait_add_nccl_failure(host "*" "is not memory of the device")
plait_add_nccl_failure(bounds "*" "send buffer")
plait_add_nccl_failure(destroyed "*" "the communicator has been destroyed")
plait_add_nccl_failure(average "*" "operation 4 is not emulated")

plait_add_test(test_cuda_gemm FILES ${here}/../../kernels/test_cuda_gemm.cpp LINK plait_kernels_cuda TIMEOUT 60)
plait_add_test(test_cuda_epilogues FILES ${here}/../../kernels/test_cuda_epilogues.cpp LINK plait_kernels_cuda TIMEOUT 60)

# Faults in kernels, streams and communication: whether they fit is seen always, whether they are caught takes an hour.
add_test(NAME cuda_mutants_fit COMMAND ${here}/../mutants.sh --check)
set_tests_properties(cuda_mutants_fit PROPERTIES TIMEOUT 30 LABELS unit)
