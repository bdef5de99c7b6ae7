# library.cmake - liboneshot.so: every layer behind include/oneshot.h. Of the layers' names none is seen: they are hidden
# where they are compiled (cmake/layers.cmake), those of static libraries here.
set(OSH_LIBRARY_MAP ${CMAKE_SOURCE_DIR}/cmake/oneshot.map)
add_library(liboneshot SHARED $<TARGET_OBJECTS:osh_lib>)
target_link_libraries(liboneshot PRIVATE ${OSH_LAYERS})
target_link_options(liboneshot PRIVATE LINKER:--version-script=${OSH_LIBRARY_MAP} LINKER:--exclude-libs,ALL)
if(NOT OSH_SANITIZE) # whose runtime is the program's
  target_link_options(liboneshot PRIVATE LINKER:--no-undefined)
endif()
target_include_directories(liboneshot INTERFACE $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include>
                           $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
set_target_properties(liboneshot PROPERTIES OUTPUT_NAME oneshot EXPORT_NAME oneshot VERSION ${PROJECT_VERSION}
                      SOVERSION ${PROJECT_VERSION_MAJOR} LINK_DEPENDS ${OSH_LIBRARY_MAP}
                      LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}
                      INSTALL_RPATH "$ORIGIN;$ORIGIN/oneshot") # where wheel and tarball have what it links and opens
target_link_options(liboneshot PRIVATE LINKER:--disable-new-dtags) # DT_RPATH: that of what it opens, too
