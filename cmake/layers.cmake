# layers.cmake - makes osh_<directory> for each directory of src/, linked downwards only (src/LAYERS
# has the ranks).

# osh_layer(name DEPS lower... LIBS outside...) - makes the library of src/name. A directory without
# a .c file becomes an INTERFACE library.
function(osh_layer name)
  cmake_parse_arguments(L "" "" "DEPS;LIBS;SOURCES" ${ARGN})
  file(GLOB_RECURSE files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.c)
  list(TRANSFORM L_DEPS PREPEND osh_)
  if(files)
    add_library(osh_${name} STATIC ${files} ${L_SOURCES})
    set_target_properties(osh_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON C_VISIBILITY_PRESET hidden
                          CUDA_VISIBILITY_PRESET hidden) # these objects are also in liboneshot.so
    set(kind PUBLIC)
  else()
    add_library(osh_${name} INTERFACE)
    set(kind INTERFACE)
  endif()
  # Sanitizer builds compile layers without inner loops with -Og. This takes three fifths of the
  # time that -O2 takes.
  if(OSH_SANITIZE AND files AND NOT name MATCHES "^(base|text|tensor|tokenizer|io|math|ops|solver|quant|learn)$")
    target_compile_options(osh_${name} PRIVATE -Og)
  elseif(OSH_SANITIZE AND files AND name MATCHES "^(solver|quant|learn)$") # half the time of -O2
    target_compile_options(osh_${name} PRIVATE -O1)
  endif()
  target_include_directories(osh_${name} ${kind} ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
  target_link_libraries(osh_${name} ${kind} ${L_DEPS} ${L_LIBS})
endfunction()

# Embeds models/*.json, so that the program needs no other files.
file(GLOB model_files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/models/*.json)
set(model_source ${CMAKE_BINARY_DIR}/embedded_models.c)
set(type_source ${CMAKE_BINARY_DIR}/embedded_types.c)
add_custom_command(
  OUTPUT ${model_source} ${type_source}
  COMMAND ${CMAKE_COMMAND} -D OUT=${model_source} -D TYPES=${type_source} "-D MODELS=${model_files}" -P ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
  DEPENDS ${model_files} ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
  VERBATIM)

osh_layer(base LIBS Threads::Threads m ${CMAKE_DL_LIBS})
osh_layer(text DEPS base LIBS PkgConfig::cjson PkgConfig::yaml PkgConfig::pcre2)
osh_layer(ranks DEPS base LIBS PkgConfig::xxhash ${CMAKE_DL_LIBS}) # MPI is opened on demand (cmake/mpi.cmake)
osh_layer(tensor DEPS base)
osh_layer(tokenizer DEPS text LIBS PkgConfig::utf8proc)
osh_layer(chat DEPS tokenizer)
osh_layer(data DEPS chat LIBS PkgConfig::zstd PkgConfig::zlib)
osh_layer(io DEPS tensor text LIBS PkgConfig::xxhash SOURCES ${type_source})
osh_layer(math DEPS tensor LIBS ${CMAKE_DL_LIBS}) # OpenBLAS is opened on demand
target_include_directories(osh_math PUBLIC ${openblas_INCLUDE_DIRS})
osh_layer(gpu DEPS tensor)
osh_layer(ops DEPS math gpu text)
osh_layer(solver DEPS ops)
foreach(name gpu ops solver)
  osh_cuda_sources(osh_${name} ${name})
endforeach()
# libcurl and libcrypto are opened when a job needs the network
osh_layer(hub DEPS data LIBS ${CMAKE_DL_LIBS})
target_include_directories(osh_hub PRIVATE ${curl_INCLUDE_DIRS} ${crypto_INCLUDE_DIRS})
osh_layer(graph DEPS ops io SOURCES ${model_source})
add_dependencies(osh_graph osh_io) # one command writes the sources of both
osh_layer(quant DEPS ops io)
osh_layer(store DEPS graph)
osh_layer(modifiers DEPS graph quant solver)
osh_layer(learn DEPS graph quant solver)
osh_layer(match DEPS data modifiers ranks)
osh_layer(rewrite DEPS match)
osh_layer(schedule DEPS rewrite learn)
osh_layer(budget DEPS schedule store)
osh_layer(plan DEPS budget)
osh_layer(output DEPS plan)
osh_layer(run DEPS output)
osh_layer(verify DEPS output)
osh_layer(eval DEPS plan)
osh_layer(report DEPS run verify eval)
osh_layer(api DEPS report hub)
osh_layer(lib DEPS api)
# Each library comes before the libraries that it needs.
set(OSH_LAYERS)
foreach(name lib api report run verify eval output plan budget schedule rewrite match store
        modifiers learn graph quant hub solver ops data chat
        tokenizer gpu math io tensor ranks text base)
  list(APPEND OSH_LAYERS osh_${name})
endforeach()

file(GLOB cli_files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/cli/*.c)
if(cli_files)
  add_executable(oneshot ${cli_files})
  target_link_libraries(oneshot PRIVATE ${OSH_LAYERS})
  # The program looks for the modules of cmake/mpi.cmake in its RPATH. The RPATH is written as
  # DT_RPATH, which also applies if a sanitizer calls dlopen.
  target_link_options(oneshot PRIVATE LINKER:--disable-new-dtags)
  set_target_properties(oneshot PROPERTIES BUILD_RPATH "$ORIGIN" INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}/oneshot")
  add_dependencies(oneshot mpi_modules)
endif()
