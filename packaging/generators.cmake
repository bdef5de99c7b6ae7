# generators.cmake - what differs between the packages: a .deb belongs below /usr, a tarball has a folder of its own.
if(CPACK_GENERATOR STREQUAL "DEB")
  set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
endif()
