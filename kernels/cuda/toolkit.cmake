# Whether kernels for NVIDIA GPUs are built, and with what. Sets PLAIT_WITH_CUDA and makes two targets:
#
#   plait_cuda_libraries  headers of the toolkit; cudart and cuBLASLt, or in their place the emulation of the tests
#   plait_nccl_library    NCCL, or the emulation's
#
# With PLAIT_FAKECUDA only the headers are taken from the toolkit, and no CUDA compiler is needed. Whoever builds can read in
# the cache what AUTO came to.

set(PLAIT_WITH_CUDA OFF CACHE INTERNAL "")
if(PLAIT_CUDA STREQUAL "OFF" AND NOT PLAIT_FAKECUDA)
  return()
endif()

# What is missing ends the configuration where CUDA was asked for, and else is said.
macro(plait_without_cuda missing)
  if(PLAIT_CUDA STREQUAL "ON" OR PLAIT_FAKECUDA MATCHES "ON|RACE")
    message(FATAL_ERROR "CUDA: ${missing}")
  endif()
  message(STATUS "CUDA: ${missing}: built without")
  set(PLAIT_FAKECUDA OFF)
  return()
endmacro()

find_package(CUDAToolkit 12.0 QUIET)
if(NOT CUDAToolkit_FOUND)
  plait_without_cuda("no toolkit, version 12 or later (nvcc in PATH, or CUDAToolkit_ROOT)")
endif()
find_path(PLAIT_NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(PLAIT_NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_ROOT} ${CUDAToolkit_LIBRARY_DIR}
  PATH_SUFFIXES lib lib64)
if(NOT PLAIT_NCCL_INCLUDE OR (NOT PLAIT_NCCL_LIBRARY AND NOT PLAIT_FAKECUDA))
  plait_without_cuda("no NCCL (PLAIT_NCCL_INCLUDE, PLAIT_NCCL_LIBRARY)")
endif()
# Groups are cut out of the world's communicator (ncclCommSplit).
set(nccl_least 2.18)
file(STRINGS ${PLAIT_NCCL_INCLUDE}/nccl.h nccl_numbers REGEX "^#define NCCL_(MAJOR|MINOR) ")
string(REGEX REPLACE "[^0-9]*([0-9]+)[^0-9]+([0-9]+).*" "\\1.\\2" nccl_version "${nccl_numbers}")
if(nccl_version VERSION_LESS nccl_least)
  plait_without_cuda("${PLAIT_NCCL_INCLUDE}/nccl.h is NCCL ${nccl_version}, needed is ${nccl_least} or later")
endif()

add_library(plait_cuda_libraries INTERFACE)
target_include_directories(plait_cuda_libraries SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS})
add_library(plait_nccl_library INTERFACE)
target_include_directories(plait_nccl_library SYSTEM INTERFACE ${PLAIT_NCCL_INCLUDE})
if(PLAIT_FAKECUDA)
  enable_language(CXX)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    # gcc drops the section of __shared__ arrays in templates.
    message(FATAL_ERROR "PLAIT_FAKECUDA: kernels are compiled with clang++ (CMAKE_CXX_COMPILER), not ${CMAKE_CXX_COMPILER}")
  endif()
  target_link_libraries(plait_cuda_libraries INTERFACE fakecuda)
  target_link_libraries(plait_nccl_library INTERFACE fakecuda)
else()
  if(NOT CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE})
  endif()
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 90-virtual)
  endif()
  set(CMAKE_CUDA_STANDARD 17)
  enable_language(CUDA)
  target_link_libraries(plait_cuda_libraries INTERFACE CUDA::cudart CUDA::cublasLt)
  target_link_libraries(plait_nccl_library INTERFACE ${PLAIT_NCCL_LIBRARY})
endif()
set(PLAIT_WITH_CUDA ON CACHE INTERNAL "")
