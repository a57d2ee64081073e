# One interface target carries our own compile options, so that third-party code is not held to them.
add_library(zerohop_options INTERFACE)
target_compile_options(zerohop_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wold-style-cast -Woverloaded-virtual
  -Wimplicit-fallthrough -Wformat=2 -Werror -fno-omit-frame-pointer -fvisibility=hidden)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ 12 warns falsely inside the standard library and fmt at -O2 (restrict, overflow, dangling).
  target_compile_options(zerohop_options INTERFACE
    -Wno-restrict -Wno-stringop-overflow -Wno-stringop-overread -Wno-array-bounds
    -Wno-maybe-uninitialized -Wno-missing-field-initializers)
else()
  target_compile_options(zerohop_options INTERFACE -Wno-missing-field-initializers
    -Wno-missing-designated-field-initializers)
endif()
if(ZEROHOP_SANITIZE)
  target_compile_options(zerohop_options INTERFACE -fsanitize=${ZEROHOP_SANITIZE}
                                                   -fno-sanitize-recover=all)
  target_link_options(zerohop_options INTERFACE -fsanitize=${ZEROHOP_SANITIZE})
  if(ZEROHOP_SANITIZE MATCHES "undefined")
    # Our hidden visibility gives shared libraries' classes (spdlog::logger) a second type_info here.
    target_compile_options(zerohop_options INTERFACE -fno-sanitize=vptr)
  endif()
  if(ZEROHOP_SANITIZE STREQUAL "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(zerohop_options INTERFACE -Wno-tsan)
  endif()
endif()
if(ZEROHOP_FUZZ)
  target_compile_options(zerohop_options INTERFACE -fsanitize=fuzzer-no-link)
endif()
