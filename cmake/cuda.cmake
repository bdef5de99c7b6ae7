# cuda.cmake - builds the CUDA back end, the .cu files of src/gpu, src/ops/cuda and src/solver/cuda,
# if nvcc is found. cudart is linked statically. cuBLASLt and cuSOLVER are opened when a GPU is
# opened, so the program starts without driver and toolkit.
set(OSH_CUDA AUTO CACHE STRING "the CUDA back end: AUTO (where nvcc is found, but not under a sanitizer), ON or OFF")
set_property(CACHE OSH_CUDA PROPERTY STRINGS AUTO ON OFF)
set(OSH_CUDA_BUILT OFF)

if(OSH_CUDA STREQUAL "ON" OR (OSH_CUDA STREQUAL "AUTO" AND NOT OSH_SANITIZE AND NOT OSH_FUZZER))
  find_program(OSH_NVCC nvcc HINTS /usr/local/cuda/bin)
  if(OSH_NVCC)
    set(CMAKE_CUDA_COMPILER ${OSH_NVCC})
    set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
    get_filename_component(folder ${OSH_NVCC} DIRECTORY)
    execute_process(COMMAND ${OSH_NVCC} --help OUTPUT_VARIABLE nvcc_help)
    execute_process(COMMAND ${folder}/ptxas --help OUTPUT_VARIABLE ptxas_help)
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      # The name N-real adds the machine code of compute capability N. The name N alone also adds
      # PTX, which the drivers of later GPUs compile.
      if(ptxas_help MATCHES "sm_100" AND ptxas_help MATCHES "sm_120")
        set(CMAKE_CUDA_ARCHITECTURES 80-real 86-real 89-real 90-real 100 120-real)
      else()
        set(CMAKE_CUDA_ARCHITECTURES 80-real 86-real 89-real 90)
      endif()
    endif()
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
    set(OSH_CUDA_BUILT ON)
    if(nvcc_help MATCHES "--compress-mode") # compressed kernels have a tenth of the bytes
      add_compile_options($<$<COMPILE_LANGUAGE:CUDA>:--compress-mode=size>)
    endif()
    # Registers that are spilled to local memory are an error. On compute capability 10 and later
    # they are only a warning, because attention with heads of 128 spills six registers there
    # (docs/internals/cuda.md).
    if(ptxas_help MATCHES "--warn-on-spills")
      add_compile_options($<$<COMPILE_LANGUAGE:CUDA>:-Xptxas=-warn-spills>)
      if(NOT "${CMAKE_CUDA_ARCHITECTURES}" MATCHES "(^|;)1[0-9][0-9]|native|all")
        add_compile_options($<$<COMPILE_LANGUAGE:CUDA>:-Xptxas=-Werror>)
      endif()
    endif()
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
