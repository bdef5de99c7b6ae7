# tarball.cmake - cpack -G TGZ: the installed tree becomes one that needs nothing of the system but the kernel: the program
# with its libraries and its loader below lib/oneshot, and a launcher in bin. The library for other programs is left out:
# it would need their C library.
if(NOT CPACK_GENERATOR STREQUAL "TGZ")
  return()
endif()
set(tree ${CPACK_TEMPORARY_INSTALL_DIRECTORY})
set(home ${tree}/lib/oneshot)
file(MAKE_DIRECTORY ${home})
file(RENAME ${tree}/bin/oneshot ${home}/oneshot)
file(REMOVE_RECURSE ${tree}/include ${tree}/lib/cmake ${tree}/lib/pkgconfig)
file(GLOB libraries ${tree}/lib/liboneshot*)
file(REMOVE ${libraries})
foreach(command IN ITEMS "bash;${CPACK_OSH_SOURCE}/packaging/bundle.sh;${home}/oneshot;${home};${tree}/share/doc/oneshot/licences"
                         "cp;${CPACK_OSH_BUILD}/oneshot_launcher;${tree}/bin/oneshot")
  execute_process(COMMAND ${command} RESULT_VARIABLE result)
  if(result)
    message(FATAL_ERROR "${command}: ${result}")
  endif()
endforeach()
