# packages.cmake - sets up cpack, which is run in a build directory. -G DEB makes a package for the
# Debian on which it is built. -G TGZ makes a tree that runs on any x86-64 Linux
# (packaging/trees.cmake). With the CUDA back end, the name of the package ends with -cuda.
if(OSH_SANITIZE OR OSH_FUZZER)
  return()
endif()
add_executable(oneshot_launcher packaging/launcher.c)
target_link_options(oneshot_launcher PRIVATE -static)
add_dependencies(product oneshot_launcher)

set(OSH_PACKAGE oneshot)
if(OSH_CUDA_BUILT)
  set(OSH_PACKAGE oneshot-cuda)
  set(CPACK_DEBIAN_PACKAGE_PROVIDES "oneshot (= ${PROJECT_VERSION})")
  set(CPACK_DEBIAN_PACKAGE_CONFLICTS oneshot)
  set(CPACK_DEBIAN_PACKAGE_REPLACES oneshot)
endif()
set(CPACK_GENERATOR "DEB;TGZ")
set(CPACK_PACKAGE_NAME ${OSH_PACKAGE})
set(CPACK_PACKAGE_VENDOR "the authors of oneshot")
set(CPACK_PACKAGE_CONTACT "the authors of oneshot")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "compresses Hugging Face checkpoints to compressed-tensors")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
    "Reads a model directory, quantizes the weights that a recipe names, and writes a directory that vLLM and\n\
transformers load, with one decoder layer's weights in memory at a time. With the library liboneshot.")
set(CPACK_RESOURCE_FILE_LICENSE ${CMAKE_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGE_FILE_NAME ${OSH_PACKAGE}-${PROJECT_VERSION}-linux-x86_64)
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGING_INSTALL_PREFIX /)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_SOURCE_DIR}/packaging/trees.cmake)
set(CPACK_OSH_SOURCE ${CMAKE_SOURCE_DIR})
set(CPACK_OSH_BUILD ${CMAKE_BINARY_DIR})
set(CPACK_PROJECT_CONFIG_FILE ${CMAKE_SOURCE_DIR}/packaging/generators.cmake)

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# Debian packages of the libraries that the program opens at run time. shlibdeps does not find them.
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libopenblas0, libcurl4, libssl3")
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS ca-certificates)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
include(CPack)
