# install.cmake - binary, models, licence and, when it is there, the man page.
if(TARGET oneshot)
  install(TARGETS oneshot RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(DIRECTORY models/ DESTINATION ${CMAKE_INSTALL_DATADIR}/oneshot/models FILES_MATCHING PATTERN "*.json")
install(FILES LICENSE NOTICE CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES docs/oneshot.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 OPTIONAL)
