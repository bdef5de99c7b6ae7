# cuda.cmake - the CUDA back end: the .cu files of src/gpu, src/ops/cuda and src/solver/cuda, if
# there is a compiler for them. cudart is linked statically. cuBLASLt and cuSOLVER are opened
# together with a GPU, so the program starts without driver and toolkit.
set(OSH_CUDA AUTO CACHE STRING "the CUDA back end: AUTO (where nvcc is found, but not under a sanitizer), ON or OFF")
set_property(CACHE OSH_CUDA PROPERTY STRINGS AUTO ON OFF)
set(OSH_CUDA_BUILT OFF)

if(OSH_CUDA STREQUAL "ON" OR (OSH_CUDA STREQUAL "AUTO" AND NOT OSH_SANITIZE AND NOT OSH_FUZZER))
  find_program(OSH_NVCC nvcc HINTS /usr/local/cuda/bin)
  if(OSH_NVCC)
    set(CMAKE_CUDA_COMPILER ${OSH_NVCC})
    set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 80 86 89 90)
    endif()
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
    set(OSH_CUDA_BUILT ON)
  elseif(OSH_CUDA STREQUAL "ON")
    message(FATAL_ERROR "OSH_CUDA=ON, but no nvcc in PATH or in /usr/local/cuda/bin")
  endif()
endif()
if(OSH_CUDA_BUILT)
  message(STATUS "CUDA: ${CMAKE_CUDA_COMPILER_VERSION}, architectures ${CMAKE_CUDA_ARCHITECTURES}")
else()
  message(STATUS "CUDA: not built")
endif()

# osh_cuda_sources(target folder) - adds the .cu files of src/<folder> to the target, if CUDA is
# built.
function(osh_cuda_sources target folder)
  if(OSH_CUDA_BUILT)
    file(GLOB_RECURSE files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${folder}/*.cu)
    target_sources(${target} PRIVATE ${files})
    target_compile_definitions(${target} PRIVATE OSH_CUDA_BUILT)
    target_link_libraries(${target} PUBLIC CUDA::cudart_static)
  endif()
endfunction()
