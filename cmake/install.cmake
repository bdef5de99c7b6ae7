# install.cmake - installs program, library with header, pkg-config file and CMake package, models,
# licence and, if they were built, the man pages.
include(CMakePackageConfigHelpers)
# The target `product` builds all files that packages need. If some are not built, cmake --install
# and cpack fail before they write a file.
add_custom_target(product ALL DEPENDS liboneshot)
set(OSH_PRODUCT $<TARGET_FILE:liboneshot>)
if(TARGET oneshot)
  add_dependencies(product oneshot)
  list(APPEND OSH_PRODUCT $<TARGET_FILE:oneshot>)
  # Each shell expects another name of the file with completions.
  foreach(row bash=oneshot zsh=_oneshot fish=oneshot.fish)
    string(REPLACE "=" ";" row "${row}")
    list(GET row 0 shell)
    list(GET row 1 name)
    set(OSH_COMPLETION_${shell} ${CMAKE_BINARY_DIR}/completions/${name})
    add_custom_command(OUTPUT ${OSH_COMPLETION_${shell}} DEPENDS oneshot VERBATIM
                       COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/completions
                       COMMAND $<TARGET_FILE:oneshot> completion ${shell} > ${OSH_COMPLETION_${shell}})
    list(APPEND completions ${OSH_COMPLETION_${shell}})
  endforeach()
  add_custom_target(completions DEPENDS ${completions})
  add_dependencies(product completions)
  list(APPEND OSH_PRODUCT ${completions})
endif()
install(CODE "set(files \"${OSH_PRODUCT}\")
foreach(file IN LISTS files)
  if(NOT EXISTS \"\${file}\")
    message(FATAL_ERROR \"\${file} is not built, and is to be installed; this builds it: \"
            \"cmake --build ${CMAKE_BINARY_DIR} --target product\")
  endif()
endforeach()")
set(OSH_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/oneshot)
if(TARGET oneshot)
  install(TARGETS oneshot RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(FILES ${OSH_COMPLETION_bash} DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(FILES ${OSH_COMPLETION_zsh} DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
  install(FILES ${OSH_COMPLETION_fish} DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endif()
install(TARGETS liboneshot EXPORT oneshotTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES include/oneshot.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT oneshotTargets NAMESPACE oneshot:: DESTINATION ${OSH_CMAKE_DIR})
configure_package_config_file(cmake/oneshotConfig.cmake.in ${CMAKE_BINARY_DIR}/oneshotConfig.cmake
                              INSTALL_DESTINATION ${OSH_CMAKE_DIR})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/oneshotConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/oneshotConfig.cmake ${CMAKE_BINARY_DIR}/oneshotConfigVersion.cmake
        DESTINATION ${OSH_CMAKE_DIR})
# makes the path in oneshot.pc relative, so that the installed tree may be moved
file(RELATIVE_PATH OSH_PC_UP /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" OSH_PC_UP ${OSH_PC_UP})
configure_file(cmake/oneshot.pc.in ${CMAKE_BINARY_DIR}/oneshot.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/oneshot.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(DIRECTORY models/ DESTINATION ${CMAKE_INSTALL_DATADIR}/oneshot/models FILES_MATCHING PATTERN "*.json")
install(FILES LICENSE NOTICE CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES docs/reference/oneshot.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 OPTIONAL)
install(DIRECTORY docs/reference/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 FILES_MATCHING PATTERN "*.1")
