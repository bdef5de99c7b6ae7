# deps.cmake - finds the libraries that the program needs; scripts/install-deps.sh installs all of
# them.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
foreach(row cjson=libcjson yaml=yaml-0.1 pcre2=libpcre2-8 utf8proc=libutf8proc zstd=libzstd zlib=zlib xxhash=libxxhash curl=libcurl
            crypto=libcrypto openblas=openblas lapacke=lapacke)
  string(REPLACE "=" ";" row "${row}")
  list(GET row 0 name)
  list(GET row 1 module)
  pkg_check_modules(${name} REQUIRED IMPORTED_TARGET GLOBAL ${module})
endforeach()
# The shared library of utf8proc has different names (sonames) in Debian 12 and 13. So the static
# library is linked: one .deb installs on both, and token ids do not depend on the system's tables
# of Unicode.
find_library(OSH_UTF8PROC_ARCHIVE libutf8proc.a HINTS ${utf8proc_LIBRARY_DIRS})
mark_as_advanced(OSH_UTF8PROC_ARCHIVE)
if(OSH_UTF8PROC_ARCHIVE)
  set_target_properties(PkgConfig::utf8proc PROPERTIES INTERFACE_LINK_LIBRARIES ${OSH_UTF8PROC_ARCHIVE})
endif()
