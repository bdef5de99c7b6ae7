# generators.cmake - the difference between the packages: a .deb is installed below /usr, a tarball
# has its own directory.
if(CPACK_GENERATOR STREQUAL "DEB")
  set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
endif()
