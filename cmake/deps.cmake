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
