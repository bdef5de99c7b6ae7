# warnings.cmake - flags of every target. -ffp-contract=off: a*b+c rounds twice on every machine, so results do not
# depend on the compiler's mood; fused products are written where they are wanted.
set(flags -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wvla
          -Wno-unused-parameter           # callbacks of a table share one signature
          -Wno-missing-field-initializers # rows of a table name what differs from zero
          -ffp-contract=off -fno-math-errno)
if(CMAKE_C_COMPILER_ID MATCHES "Clang")
  list(APPEND flags -Wno-missing-braces) # {0} in front of a nested aggregate
else()
  list(APPEND flags -Wno-format-truncation) # snprintf into a fixed buffer cuts on purpose
endif()
add_compile_options("$<$<COMPILE_LANGUAGE:C>:${flags}>"
                    # kernels that are played on the host, and what plays them (tests/play)
                    "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Werror;-Wno-unknown-pragmas;-ffp-contract=off;-fno-math-errno>"
                    # host code of a .cu; kernels: fused products (the default -fmad=true), no fast-math
                    "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-ffp-contract=off>")
add_compile_definitions(_GNU_SOURCE OSH_VERSION="${PROJECT_VERSION}")
add_link_options(-Wl,--as-needed)

if(OSH_SANITIZE)
  add_compile_options(-fsanitize=${OSH_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${OSH_SANITIZE})
  if(OSH_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
endif()
if(OSH_FUZZER)
  if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "OSH_FUZZER needs clang, found ${CMAKE_C_COMPILER_ID}")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link)
  add_link_options(-fsanitize=fuzzer-no-link)
endif()
