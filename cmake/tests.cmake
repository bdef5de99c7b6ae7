# tests.cmake - turns every test file into one executable and one ctest with the label of its
# directory.
pkg_check_modules(cmocka REQUIRED IMPORTED_TARGET cmocka)
find_package(Python3 COMPONENTS Interpreter)

# Tests are compiled with -O0, which takes a quarter of the time of -O2. Tests of kernels, golden
# tests, and emulated kernels have loops over large arrays, so these three are compiled with -O2. In
# sanitizer builds they are compiled with -O1, which takes half the time.
if(OSH_SANITIZE)
  set(OSH_LOOP_OPTIMIZATION -O1)
endif()

# tests/play compiles the kernels of src/ops/cuda for the host. It needs gcc, whose AddressSanitizer
# and UBSan support switches of fibers.
include(CheckLanguage)
check_language(CXX)
set(OSH_PLAY OFF)
if(CMAKE_CXX_COMPILER AND NOT OSH_SANITIZE STREQUAL "thread" AND NOT OSH_FUZZER)
  enable_language(CXX)
  set(OSH_PLAY ON)
  add_subdirectory(tests/play)
else()
  message(STATUS "tests/play: not built (thread sanitizer, fuzzer, or no C++ compiler)")
endif()

# osh_test_exe(file label out) - adds the executable of a test, and sets `out` to the name of its
# target. The target has the file's name; for a second file with this name, the directory is a
# prefix.
function(osh_test_exe file label out)
  set(optimization -O0)
  if(label MATCHES "^(kernel|golden)$")
    set(optimization ${OSH_LOOP_OPTIMIZATION})
  endif()
  get_filename_component(target ${file} NAME_WE)
  if(TARGET ${target})
    get_filename_component(folder ${file} DIRECTORY)
    get_filename_component(folder ${folder} NAME)
    set(target ${folder}_${target})
  endif()
  add_executable(${target} ${file} ${ARGN})
  target_link_libraries(${target} PRIVATE ${OSH_LAYERS} PkgConfig::cmocka)
  target_compile_options(${target} PRIVATE ${optimization})
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_compile_definitions(${target} PRIVATE OSH_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  set(${out} ${target} PARENT_SCOPE)
endfunction()

# osh_test_target(file out) - sets `out` to the target that osh_test_exe has added for the file.
function(osh_test_target file out)
  get_filename_component(target ${file} NAME_WE)
  get_filename_component(folder ${file} DIRECTORY)
  get_filename_component(folder ${folder} NAME)
  if(TARGET ${folder}_${target})
    set(target ${folder}_${target})
  endif()
  set(${out} ${target} PARENT_SCOPE)
endfunction()

# osh_play_exe(target ops files...) - adds an executable on the emulated GPU. The library `ops`
# (osh_ops_play or osh_ops_race) is linked as a whole before all others. So the linker takes no
# function from osh_ops. The emulated libraries find the functions that they call in the executable.
function(osh_play_exe target ops)
  add_executable(${target} ${ARGN})
  target_link_options(${target} PRIVATE LINKER:--whole-archive,$<TARGET_FILE:${ops}>,--no-whole-archive
                      LINKER:--export-dynamic-symbol=osh_play_*)
  target_link_libraries(${target} PRIVATE ${OSH_LAYERS} PkgConfig::cmocka ${CMAKE_DL_LIBS})
  target_compile_options(${target} PRIVATE ${OSH_LOOP_OPTIMIZATION})
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_compile_definitions(${target} PRIVATE OSH_SOURCE_DIR="${CMAKE_SOURCE_DIR}" OSH_PLAY)
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests LINKER_LANGUAGE CXX
                        LINK_DEPENDS $<TARGET_FILE:${ops}>)
  add_dependencies(${target} ${ops} play_cublaslt play_cusolver play_nvml play_cufile)
endfunction()

# LeakSanitizer of gcc 12 has a fault (sanitizer_tls_get_addr.cpp): if a block of thread-local
# storage begins 16 bytes into a page, LeakSanitizer takes the bytes before the block for a header
# of glibc 2.19. It then reads at a wrong address. This option turns that code off.
set(OSH_TEST_ENVIRONMENT "UBSAN_OPTIONS=print_stacktrace=1" "ASAN_OPTIONS=intercept_tls_get_addr=0")

# osh_test_props(test label seconds) - sets the properties of a test. `seconds` is the longest time
# on an idle machine. The limit is ten times this time, so it stops tests that hang, but no test
# fails because of other work on the processors. In a new build directory, CTest starts the longest
# tests first, so the last tests are short and processors do not wait. In sanitizer builds, the
# tests of covered.txt get a second label, because other tests run nearly all of their blocks
# (scripts/test_blocks.py).
set(OSH_COVERED)
if(OSH_SANITIZE)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/covered.txt)
  file(STRINGS ${CMAKE_SOURCE_DIR}/tests/covered.txt OSH_COVERED)
endif()
add_custom_target(covered)
# osh_test_covered(target test...) - if covered.txt lists all tests of a program, only the target
# `covered` builds the program.
function(osh_test_covered target)
  foreach(test IN LISTS ARGN)
    if(NOT test IN_LIST OSH_COVERED)
      return()
    endif()
  endforeach()
  set_target_properties(${target} PROPERTIES EXCLUDE_FROM_ALL ON)
  add_dependencies(covered ${target})
endfunction()
function(osh_test_props name label seconds)
  if(name IN_LIST OSH_COVERED)
    list(APPEND label covered)
  endif()
  math(EXPR limit "10 * ${seconds}")
  set_tests_properties(${name} PROPERTIES LABELS "${label}" TIMEOUT ${limit} COST ${seconds} SKIP_RETURN_CODE 77
    ENVIRONMENT "${OSH_TEST_ENVIRONMENT}")
endfunction()

# Tests that choose no instruction set use the AVX2 kernels of OpenBLAS if the CPU has AVX2. Without
# this setting, OpenBLAS would use its slowest kernels on a CPU that is newer than the library.
set(OSH_TEST_CORE)
if(EXISTS /proc/cpuinfo)
  file(STRINGS /proc/cpuinfo avx2 LIMIT_COUNT 1 REGEX "^flags.* avx2 ")
  if(avx2)
    set(OSH_TEST_CORE "OPENBLAS_CORETYPE=Haswell")
  endif()
endif()

foreach(row unit=unit/test_*.c kernel=kernels/test_*.c prop=prop/test_*.c golden=golden/*/test_*.c golden=golden/test_*.c)
  string(REPLACE "=" ";" row "${row}")
  list(GET row 0 label)
  list(GET row 1 pattern)
  file(GLOB files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/${pattern})
  foreach(file IN LISTS files)
    osh_test_exe(${file} ${label} target)
    file(STRINGS ${file} pinned REGEX "pin_isa\\(")
    if(NOT pinned)
      add_test(NAME ${target} COMMAND ${target})
      osh_test_props(${target} ${label} 300)
      set_property(TEST ${target} APPEND PROPERTY ENVIRONMENT ${OSH_TEST_CORE})
      osh_test_covered(${target} ${target})
    else() # adds a test for each instruction set of the CPU, with OpenBLAS's kernels for the set
      set(tests)
      foreach(isa generic=Prescott avx2=Haswell avx512=SkylakeX avx512_bf16=SkylakeX amx=SkylakeX)
        string(REPLACE "=" ";" isa "${isa}")
        list(GET isa 0 name)
        list(GET isa 1 core)
        add_test(NAME ${target}_${name} COMMAND ${target})
        osh_test_props(${target}_${name} ${label} 300)
        set_property(TEST ${target}_${name} APPEND PROPERTY ENVIRONMENT
                     "OSH_TEST_ISA=${name}" "OPENBLAS_CORETYPE=${core}")
        list(APPEND tests ${target}_${name})
      endforeach()
      osh_test_covered(${target} ${tests})
    endif()
  endforeach()
endforeach()

# Adds tests of CUDA kernels. Tests that include on_gpu.h run on the GPU (label cuda; they are
# skipped without a GPU), and as play_<test> on the emulated GPU. tests/play has the tests of the
# device code and of the emulation.
if(OSH_CUDA_BUILT)
  file(GLOB files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/kernels/test_*.c ${CMAKE_SOURCE_DIR}/tests/golden/*/test_*.c
       ${CMAKE_SOURCE_DIR}/tests/unit/test_*.c)
  foreach(file IN LISTS files)
    get_filename_component(name ${file} NAME_WE)
    osh_test_target(${file} program)
    file(STRINGS ${file} gpu REGEX "on_gpu\\.h")
    if(gpu AND TARGET ${program})
      add_test(NAME cuda_${name} COMMAND ${program})
      osh_test_props(cuda_${name} cuda 600)
      set_property(TEST cuda_${name} APPEND PROPERTY ENVIRONMENT "OSH_TEST_GPU=1")
      if(NOT file MATCHES "/unit/")
        list(APPEND gpu_programs ${program})
      endif()
    endif()
  endforeach()
  # test files of CUDA have kernels of their own
  file(GLOB files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/kernels/test_*.cu)
  foreach(file IN LISTS files)
    get_filename_component(name ${file} NAME_WE)
    add_executable(cuda_${name} ${file})
    list(APPEND gpu_programs cuda_${name})
    target_link_libraries(cuda_${name} PRIVATE ${OSH_LAYERS} PkgConfig::cmocka)
    target_include_directories(cuda_${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
    set_target_properties(cuda_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
    add_test(NAME cuda_${name} COMMAND cuda_${name})
    osh_test_props(cuda_${name} cuda 600)
  endforeach()
endif()
if(OSH_PLAY)
  file(GLOB files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/play/test_*.c ${CMAKE_SOURCE_DIR}/tests/play/test_*.cc
       ${CMAKE_SOURCE_DIR}/tests/kernels/test_*.c ${CMAKE_SOURCE_DIR}/tests/golden/*/test_*.c
       ${CMAKE_SOURCE_DIR}/tests/unit/test_*.c)
  foreach(file IN LISTS files)
    get_filename_component(name ${file} NAME_WE)
    file(STRINGS ${file} gpu REGEX "on_gpu\\.h")
    if(gpu)
      set(name play_${name})
    elseif(NOT file MATCHES "/play/")
      continue()
    endif()
    set(source ${file})
    if(gpu AND file MATCHES "/(kernels|golden)/") # has the same flags in both programs: compiled once
      osh_test_target(${file} program)
      set(source $<TARGET_OBJECTS:${program}>)
    endif()
    osh_play_exe(${name} osh_ops_play ${source})
    target_include_directories(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${CMAKE_SOURCE_DIR}/tests/play/include>)
    add_test(NAME ${name} COMMAND ${name})
    osh_test_props(${name} kernel 400)
    set(emulated ${CMAKE_BINARY_DIR}/tests/play)
    if(name MATCHES "^test_(files|slots)$") # they load cuFile
      string(APPEND emulated ":${emulated}/gds")
    endif()
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT "LD_LIBRARY_PATH=${emulated}" ${OSH_TEST_CORE})
    set(tests ${name})
    # test_stats and test_gptq_golden have long sums, so they run a second time, with other kernels
    # for matrix products
    if(name MATCHES "^play_test_(stats|gptq_golden)$")
      add_test(NAME ${name}_generic COMMAND ${name})
      osh_test_props(${name}_generic kernel 300)
      set_property(TEST ${name}_generic APPEND PROPERTY ENVIRONMENT
                   "LD_LIBRARY_PATH=${CMAKE_BINARY_DIR}/tests/play" "OPENBLAS_CORETYPE=Prescott")
      list(APPEND tests ${name}_generic)
    endif()
    osh_test_covered(${name} ${tests})
  endforeach()
endif()
if(TARGET osh_ops_race) # adds tests of the kernels and of the emulation with a search for races
  file(GLOB files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/kernels/test_*.c)
  foreach(file IN LISTS files ITEMS ${CMAKE_SOURCE_DIR}/tests/play/race_test.cc)
    get_filename_component(name ${file} NAME_WE)
    file(STRINGS ${file} gpu REGEX "on_gpu\\.h|cuda_runtime\\.h")
    if(NOT gpu)
      continue()
    endif()
    string(REGEX REPLACE "^test_|_test$" "" name ${name})
    set(source ${file})
    if(TARGET play_test_${name})
      osh_test_target(${file} program)
      set(source $<TARGET_OBJECTS:${program}>) # C code does not call the search for races
    endif()
    osh_play_exe(race_${name} osh_ops_race ${source})
    target_compile_options(race_${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=thread>)
    target_include_directories(race_${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${CMAKE_SOURCE_DIR}/tests/play/include>)
    add_test(NAME race_${name} COMMAND race_${name})
    osh_test_props(race_${name} kernel 400)
    set_property(TEST race_${name} APPEND PROPERTY ENVIRONMENT "LD_LIBRARY_PATH=${CMAKE_BINARY_DIR}/tests/play")
  endforeach()
endif()
if(OSH_CUDA_BUILT) # adds a tool for scripts/check-gpu.sh, and a target for all programs of the script
  add_executable(gpu_ops ${CMAKE_SOURCE_DIR}/tests/tools/gpu_ops.cu)
  target_link_libraries(gpu_ops PRIVATE ${OSH_LAYERS})
  set_target_properties(gpu_ops PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_custom_target(gpu_programs DEPENDS oneshot make_model tiny_model gpu_ops inject ${gpu_programs})
endif()
if(OSH_PLAY)
  osh_play_exe(gpu_ops_play osh_ops_play ${CMAKE_SOURCE_DIR}/tests/play/gpu_ops.cc)
  target_include_directories(gpu_ops_play PRIVATE ${CMAKE_SOURCE_DIR}/tests/play/include)
endif()
if(OSH_PLAY AND TARGET oneshot) # builds the whole program for the emulated GPU, for tests
  osh_play_exe(oneshot_play osh_ops_play $<TARGET_OBJECTS:oneshot> ${CMAKE_SOURCE_DIR}/tests/play/knobs.c)
  # oneshot_play_batches has batches of 100 tokens, so that a small job has many batches. For this,
  # batches.c and block.c are compiled again and linked instead of the libraries' objects.
  osh_play_exe(oneshot_play_batches osh_ops_play $<TARGET_OBJECTS:oneshot> ${CMAKE_SOURCE_DIR}/tests/play/knobs.c
               ${CMAKE_SOURCE_DIR}/src/schedule/batches.c ${CMAKE_SOURCE_DIR}/src/learn/block.c)
  target_compile_definitions(oneshot_play_batches PRIVATE OSH_DEVICE_BATCH_TOKENS=100 OSH_BLOCK_TOKENS=100)
endif()

# Fuzz targets use libFuzzer if OSH_FUZZER is set. ctest always runs the corpus and fixed mutations
# of its files.
file(GLOB files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/fuzz/fuzz_*.c)
foreach(file IN LISTS files)
  if(OSH_FUZZER)
    osh_test_exe(${file} fuzz target)
    target_link_options(${target} PRIVATE -fsanitize=fuzzer)
  else()
    osh_test_exe(${file} fuzz target ${CMAKE_SOURCE_DIR}/tests/fuzz/standalone_driver.c)
  endif()
  string(REGEX REPLACE "^fuzz_" "" name ${target})
  set(corpus ${CMAKE_SOURCE_DIR}/tests/fuzz/corpus/${name})
  if(OSH_FUZZER)
    add_test(NAME ${target} COMMAND ${target} -runs=0 ${corpus})
  else()
    add_test(NAME ${target} COMMAND ${target} ${corpus})
  endif()
  osh_test_props(${target} fuzz 300)
endforeach()

# tests/tools has programs that the scripts of tests need. Three of them are LD_PRELOAD libraries.
file(GLOB files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/tools/*.c)
foreach(file IN LISTS files)
  get_filename_component(name ${file} NAME_WE)
  if(name MATCHES "^(inject|first_read|record)$")
    add_library(${name} MODULE ${file})
    target_compile_options(${name} PRIVATE -fno-sanitize=all)
    target_link_options(${name} PRIVATE -fno-sanitize=all)
    target_link_libraries(${name} PRIVATE ${CMAKE_DL_LIBS})
    set_target_properties(${name} PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  # gpu_times needs the headers of CUPTI. The driver loads this library into a program on a machine
  # with a GPU.
  elseif(name STREQUAL "gpu_times")
    if(OSH_CUDA_BUILT)
      find_path(OSH_CUPTI cupti.h HINTS ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES ../extras/CUPTI/include)
      if(OSH_CUPTI)
        add_library(gpu_times MODULE ${file})
        target_include_directories(gpu_times SYSTEM PRIVATE ${OSH_CUPTI} ${CUDAToolkit_INCLUDE_DIRS})
        target_link_libraries(gpu_times PRIVATE ${CMAKE_DL_LIBS})
        set_target_properties(gpu_times PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
        add_dependencies(gpu_programs gpu_times)
      endif()
    endif()
  # links the program with some functions replaced; scripts find names by address with nm
  elseif(name STREQUAL "schedule")
    if(TARGET oneshot AND NOT OSH_SANITIZE)
      add_executable(schedule ${file} $<TARGET_OBJECTS:oneshot>)
      target_link_libraries(schedule PRIVATE ${OSH_LAYERS})
      target_link_options(schedule PRIVATE -no-pie LINKER:--wrap=main,--wrap=osh_parallel_for,--wrap=osh_parallel_apart
                          LINKER:--wrap=osh_profile_begin,--wrap=osh_profile_end)
      set_target_properties(schedule PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
    endif()
  else()
    osh_test_exe(${file} tool target)
  endif()
endforeach()

# Adds a test for each script. Each script runs in a directory of its own.
if(TARGET oneshot)
  foreach(label cli examples slow)
    file(GLOB files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/${label}/*.sh)
    foreach(file IN LISTS files)
      get_filename_component(name ${file} NAME_WE)
      add_test(NAME ${label}_${name}
               COMMAND bash ${CMAKE_SOURCE_DIR}/cmake/run_script.sh ${file} ${CMAKE_BINARY_DIR}/tests/${label}_${name}.dir)
      osh_test_props(${label}_${name} ${label} 900)
      if(OSH_SANITIZE)
        # kill.sh and power_loss.sh have fewer runs, because each run is slow
        set_property(TEST ${label}_${name} APPEND PROPERTY ENVIRONMENT "KILLS=6;STATES=2")
      endif()
      # tests/cli/hub_pull.sh has its own Hub
      set_property(TEST ${label}_${name} APPEND PROPERTY ENVIRONMENT "HF_HUB_OFFLINE=1"
                   "ONESHOT=$<TARGET_FILE:oneshot>" "OSH_SOURCE_DIR=${CMAKE_SOURCE_DIR}"
                   "OSH_EXAMPLES=${CMAKE_BINARY_DIR}/tests" "OSH_TOOLS=${CMAKE_BINARY_DIR}/tests")
    endforeach()
  endforeach()

  # Adds the scripts tests/play/*.sh. They test the program on the emulated GPU.
  file(GLOB files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/play/*.sh)
  foreach(file IN LISTS files)
    if(NOT OSH_PLAY)
      break()
    endif()
    get_filename_component(name ${file} NAME_WE)
    add_test(NAME play_${name}
             COMMAND bash ${CMAKE_SOURCE_DIR}/cmake/run_script.sh ${file} ${CMAKE_BINARY_DIR}/tests/play_${name}.dir)
    osh_test_props(play_${name} cli 900)
    set_property(TEST play_${name} APPEND PROPERTY ENVIRONMENT
                 "ONESHOT=$<TARGET_FILE:oneshot>" "PLAY=$<TARGET_FILE:oneshot_play>"
                 "PLAY_BATCHES=$<TARGET_FILE:oneshot_play_batches>" "OSH_SOURCE_DIR=${CMAKE_SOURCE_DIR}"
                 "OSH_TOOLS=${CMAKE_BINARY_DIR}/tests" "LD_LIBRARY_PATH=${CMAKE_BINARY_DIR}/tests/play")
  endforeach()

  # Builds examples/c-api/*.c, programs that use include/oneshot.h. tests/examples/c_api.sh runs
  # them.
  file(GLOB files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/examples/c-api/*.c)
  foreach(file IN LISTS files)
    get_filename_component(name ${file} NAME_WE)
    add_executable(c_api_${name} ${file})
    target_link_libraries(c_api_${name} PRIVATE liboneshot)
    set_target_properties(c_api_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  endforeach()

  # Adds the examples examples/*.sh as tests. Each has its last line of output in a comment.
  file(GLOB files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/examples/*.sh)
  foreach(file IN LISTS files)
    get_filename_component(name ${file} NAME_WE)
    add_test(NAME example_${name}
             COMMAND bash ${CMAKE_SOURCE_DIR}/cmake/run_example.sh ${file} ${CMAKE_BINARY_DIR}/tests/example_${name}.dir)
    osh_test_props(example_${name} examples 900)
    set_property(TEST example_${name} APPEND PROPERTY ENVIRONMENT "ONESHOT=$<TARGET_FILE:oneshot>")
  endforeach()
endif()

if(Python3_FOUND)
  foreach(name check_layers lint check_docs check_commands check_subjects release)
    if(EXISTS ${CMAKE_SOURCE_DIR}/scripts/${name}.py)
      set(objects)
      if(name STREQUAL check_layers AND NOT CMAKE_CONFIGURATION_TYPES)
        set(objects --objects ${CMAKE_BINARY_DIR})
      endif()
      add_test(NAME ${name} COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/scripts/${name}.py ${objects})
      osh_test_props(${name} lint 60)
    endif()
  endforeach()
  # Adds tests of the CUDA back end that need no GPU. The functions must exist in the real
  # libraries. The kernels must not need more registers, stack and shared memory than before; these
  # depend on the version of the compiler.
  add_test(NAME cuda_names COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/scripts/cuda_names.py)
  osh_test_props(cuda_names kernel 60)
  if(OSH_CUDA_BUILT AND CMAKE_CUDA_COMPILER_VERSION MATCHES "^13\\.0")
    add_test(NAME kernel_budgets COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/scripts/kernel_budgets.py ${CMAKE_BINARY_DIR})
    osh_test_props(kernel_budgets kernel 60)
  endif()
  # the page of architectures lists the templates, and each has a proof
  add_test(NAME coverage COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/scripts/coverage.py --check)
  osh_test_props(coverage lint 60)
  if(TARGET oneshot) # the man page has the flags of --help
    add_test(NAME man_options
             COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/scripts/man_options.py --check $<TARGET_FILE:oneshot>)
    osh_test_props(man_options lint 60)
  endif()
endif()
