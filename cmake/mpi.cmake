# mpi.cmake - builds src/mpi/module.c for each MPI whose compiler is found (on Debian Open MPI and
# MPICH). The program opens these modules when a launcher has started it. The program itself links
# no MPI.
set(OSH_MPI_MODULES)
foreach(mpi openmpi mpich)
  find_program(OSH_MPICC_${mpi} mpicc.${mpi})
  mark_as_advanced(OSH_MPICC_${mpi})
  if(NOT OSH_MPICC_${mpi})
    message(STATUS "oneshot-mpi: not built for ${mpi}, because mpicc.${mpi} is not found")
    continue()
  endif()
  set(module ${CMAKE_BINARY_DIR}/liboneshot_mpi_${mpi}.so)
  add_custom_command(
    OUTPUT ${module}
    COMMAND ${CMAKE_COMMAND} -E env OMPI_CC=${CMAKE_C_COMPILER} MPICH_CC=${CMAKE_C_COMPILER} ${OSH_MPICC_${mpi}} -std=c11
            -O2 ${OSH_DEBUG_INFO} -Wall -Werror -fPIC -shared -fvisibility=hidden -ffile-prefix-map=${CMAKE_SOURCE_DIR}=.
            -I${CMAKE_SOURCE_DIR}/src -o ${module} ${CMAKE_SOURCE_DIR}/src/mpi/module.c
    DEPENDS ${CMAKE_SOURCE_DIR}/src/mpi/module.c ${CMAKE_SOURCE_DIR}/src/ranks/table.h
    VERBATIM)
  list(APPEND OSH_MPI_MODULES ${module})
endforeach()
add_custom_target(mpi_modules ALL DEPENDS ${OSH_MPI_MODULES})
# Installs the modules only into the package oneshot-mpi (packaging/mpi.sh).
install(FILES ${OSH_MPI_MODULES} DESTINATION ${CMAKE_INSTALL_LIBDIR}/oneshot COMPONENT mpi EXCLUDE_FROM_ALL)
