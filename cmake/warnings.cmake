# warnings.cmake - sets the flags of every target. With -ffp-contract=off, a*b+c rounds twice on
# every machine, so results do not depend on the compiler. Fused products are written explicitly.
set(flags -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wvla
          -Wno-unused-parameter           # callbacks of a table share one signature
          -Wno-missing-field-initializers # rows of a table name what differs from zero
          -ffp-contract=off -fno-math-errno)
if(CMAKE_C_COMPILER_ID MATCHES "Clang")
  list(APPEND flags -Wno-missing-braces) # {0} before a nested aggregate
else()
  list(APPEND flags -Wno-format-truncation) # snprintf truncates to a fixed buffer on purpose
endif()
add_compile_options("$<$<COMPILE_LANGUAGE:C>:${flags}>"
                    # Flags of the emulation, and of kernels that are emulated on the host
                    # (tests/play).
                    "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Werror;-Wno-unknown-pragmas;-ffp-contract=off;-fno-math-errno>"
                    # Flags of the host code of a .cu file. Kernels have fused products (the default
                    # -fmad=true), but no fast-math.
                    "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-ffp-contract=off>")
add_compile_definitions(_GNU_SOURCE OSH_VERSION="${PROJECT_VERSION}")
add_link_options(-Wl,--as-needed)

if(OSH_SANITIZE)
  add_compile_options(-fsanitize=${OSH_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${OSH_SANITIZE})
  if(OSH_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=undefined)
    # ASan itself reports an access through NULL or outside an object. Without the UBSan checks of
    # the same accesses, files compile in two thirds of the time.
    if(OSH_SANITIZE MATCHES "address")
      add_compile_options(-fno-sanitize=object-size,null,pointer-overflow)
    endif()
  endif()
endif()
if(OSH_FUZZER)
  if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "OSH_FUZZER needs clang, found ${CMAKE_C_COMPILER_ID}")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link)
  add_link_options(-fsanitize=fuzzer-no-link)
endif()
