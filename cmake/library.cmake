# library.cmake - builds liboneshot.so, which has all layers and the interface of include/oneshot.h.
# It does not export the names of the layers: cmake/layers.cmake hides them at compile time. The
# options here hide the names of static libraries.
set(OSH_LIBRARY_MAP ${CMAKE_SOURCE_DIR}/cmake/oneshot.map)
add_library(liboneshot SHARED $<TARGET_OBJECTS:osh_lib>)
target_link_libraries(liboneshot PRIVATE ${OSH_LAYERS})
target_link_options(liboneshot PRIVATE LINKER:--version-script=${OSH_LIBRARY_MAP} LINKER:--exclude-libs,ALL)
if(NOT OSH_SANITIZE) # the sanitizer runtime belongs to the program
  target_link_options(liboneshot PRIVATE LINKER:--no-undefined)
endif()
target_include_directories(liboneshot INTERFACE $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include>
                           $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
set_target_properties(liboneshot PROPERTIES OUTPUT_NAME oneshot EXPORT_NAME oneshot VERSION ${PROJECT_VERSION}
                      SOVERSION ${PROJECT_VERSION_MAJOR} LINK_DEPENDS ${OSH_LIBRARY_MAP}
                      LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}
                      INSTALL_RPATH "$ORIGIN;$ORIGIN/oneshot") # the libraries in wheel and tarball
# writes DT_RPATH, which also applies to libraries that are opened at run time
target_link_options(liboneshot PRIVATE LINKER:--disable-new-dtags)
