# llama.cpp v0.4.0 as libraries (cmake/llama), built once per source, compiler and CPU and shared by all presets
# (release code also under the sanitizers: they check ours).
#
#   LLAMA_CPP_SOURCE_DIR    your own checkout; default: the pinned source, fetched by scripts/deps.sh
#   ZEROHOP_LLAMA_BUILD_DIR where it is (or will be) built; default: the cache folder
#   ZEROHOP_LLAMA_OPTIONS   further options for its configure step, e.g. "-DGGML_CUDA=ON"
set(LLAMA_CPP_SOURCE_DIR "$ENV{LLAMA_CPP_SOURCE_DIR}" CACHE PATH "llama.cpp checkout (v0.4.0)")
set(ZEROHOP_LLAMA_BUILD_DIR "$ENV{ZEROHOP_LLAMA_BUILD_DIR}" CACHE PATH "llama.cpp build folder")
set(ZEROHOP_LLAMA_OPTIONS "" CACHE STRING "Further cmake options for llama.cpp")

if(NOT LLAMA_CPP_SOURCE_DIR)
  execute_process(COMMAND ${CMAKE_SOURCE_DIR}/scripts/deps.sh llama-source
                  OUTPUT_VARIABLE source OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  set(LLAMA_CPP_SOURCE_DIR ${source} CACHE PATH "" FORCE)
endif()
if(NOT ZEROHOP_LLAMA_BUILD_DIR)
  execute_process(COMMAND ${CMAKE_SOURCE_DIR}/scripts/deps.sh llama-build ${LLAMA_CPP_SOURCE_DIR}
                          ${ZEROHOP_LLAMA_OPTIONS}
                  OUTPUT_VARIABLE built OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  set(ZEROHOP_LLAMA_BUILD_DIR ${built} CACHE PATH "" FORCE)
endif()

add_library(llama_common INTERFACE)
add_library(llama::common ALIAS llama_common)
target_include_directories(llama_common SYSTEM INTERFACE
  ${LLAMA_CPP_SOURCE_DIR}/include ${LLAMA_CPP_SOURCE_DIR}/ggml/include ${LLAMA_CPP_SOURCE_DIR}/common
  ${LLAMA_CPP_SOURCE_DIR}/vendor)
set(lib ${ZEROHOP_LLAMA_BUILD_DIR}/lib)
target_link_libraries(llama_common INTERFACE ${lib}/libzerohop_llama.a ${lib}/libllama.a)
if(EXISTS ${lib}/libggml.so)  # a package: CPU backends are loaded at start (cmake/llama)
  set(ZEROHOP_BACKENDS ${CMAKE_INSTALL_LIBDIR}/zerohop)
  set_source_files_properties(src/engine/attention.cc src/engine/llama_glue.cc PROPERTIES
    COMPILE_DEFINITIONS "GGML_BACKEND_DL;ZEROHOP_BACKENDS=\"../${ZEROHOP_BACKENDS}\"")
  file(GLOB shared ${lib}/libggml-cpu-*.so ${lib}/*.so.*)
  install(FILES ${shared} DESTINATION ${ZEROHOP_BACKENDS})
  target_link_libraries(llama_common INTERFACE ${lib}/libggml.so ${lib}/libggml-base.so)
else()
  target_link_libraries(llama_common INTERFACE ${lib}/libggml.a)
  if(EXISTS ${lib}/libggml-cuda.a)
    find_package(CUDAToolkit REQUIRED)
    target_link_libraries(llama_common INTERFACE ${lib}/libggml-cuda.a CUDA::cudart_static CUDA::cublas CUDA::cuda_driver)
  endif()
  target_link_libraries(llama_common INTERFACE ${lib}/libggml-cpu.a ${lib}/libggml-base.a)
endif()
target_link_libraries(llama_common INTERFACE Threads::Threads ${CMAKE_DL_LIBS} m)

# nlohmann/json comes with llama.cpp. Under a name of its own in our code: g++, which builds llama.cpp, and clang
# disagree about ordered_json's size, and a linker would take either's functions for both.
add_library(zerohop_json INTERFACE)
target_include_directories(zerohop_json SYSTEM INTERFACE ${LLAMA_CPP_SOURCE_DIR}/vendor)
target_compile_definitions(zerohop_json INTERFACE NLOHMANN_JSON_NAMESPACE_NO_VERSION=1)
