# trees.cmake - changes the installed tree for a package.
#
# cpack -G DEB: moves the completion of zsh, because Debian's zsh does not search
# /usr/share/zsh/site-functions.
#
# cpack -G TGZ: makes a tree that needs only the kernel of the system. The program and its libraries
# are in lib/oneshot, the C library and its loader are in lib/oneshot/libc, and a launcher is in
# bin. liboneshot is in lib, and finds the libraries in lib/oneshot (cmake/library.cmake). It does
# not use lib/oneshot/libc, but the C library of the program that links it.
set(tree ${CPACK_TEMPORARY_INSTALL_DIRECTORY})
if(CPACK_GENERATOR STREQUAL "DEB")
  file(RENAME ${tree}/usr/share/zsh/site-functions ${tree}/usr/share/zsh/vendor-completions)
endif()
if(NOT CPACK_GENERATOR STREQUAL "TGZ")
  return()
endif()
set(home ${tree}/lib/oneshot)
if(NOT EXISTS ${CPACK_OSH_BUILD}/oneshot_launcher)
  message(FATAL_ERROR "${CPACK_OSH_BUILD}/oneshot_launcher is not built, and the tarball's program is started by it; this "
          "builds it: cmake --build ${CPACK_OSH_BUILD} --target product")
endif()
file(MAKE_DIRECTORY ${home})
file(RENAME ${tree}/bin/oneshot ${home}/oneshot)
foreach(command IN ITEMS "bash;${CPACK_OSH_SOURCE}/packaging/bundle.sh;${home}/oneshot;${home};${tree}/share/doc/oneshot/licences"
                         "cp;${CPACK_OSH_BUILD}/oneshot_launcher;${tree}/bin/oneshot")
  execute_process(COMMAND ${command} RESULT_VARIABLE result)
  if(result)
    message(FATAL_ERROR "${command}: ${result}")
  endif()
endforeach()
file(MAKE_DIRECTORY ${home}/libc)
foreach(name IN ITEMS ld-linux-x86-64.so.2 libc.so.6 libm.so.6 libgcc_s.so.1 libstdc++.so.6 libpthread.so.0 libdl.so.2
                      librt.so.1 libresolv.so.2)
  if(EXISTS ${home}/${name})
    file(RENAME ${home}/${name} ${home}/libc/${name})
  endif()
endforeach()
