# generators.cmake - sets the directory of a package: a .deb is installed below /usr, a tarball has
# its own directory.
if(CPACK_GENERATOR STREQUAL "DEB")
  set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
endif()
