# llama.cpp v0.4.0 as imported static libraries, built once per source, compiler and CPU and shared by
# all presets (release code also under the sanitizers: they check ours).
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

function(zerohop_llama_lib name path)
  add_library(llama::${name} STATIC IMPORTED GLOBAL)
  set_target_properties(llama::${name} PROPERTIES IMPORTED_LOCATION ${ZEROHOP_LLAMA_BUILD_DIR}/${path})
endfunction()
zerohop_llama_lib(base_ggml ggml/src/libggml-base.a)
zerohop_llama_lib(cpu ggml/src/libggml-cpu.a)
zerohop_llama_lib(ggml ggml/src/libggml.a)
zerohop_llama_lib(llama src/libllama.a)
zerohop_llama_lib(httplib vendor/cpp-httplib/libcpp-httplib.a)
zerohop_llama_lib(common_base common/libllama-common-base.a)
zerohop_llama_lib(common_lib common/libllama-common.a)

add_library(llama_common INTERFACE)
add_library(llama::common ALIAS llama_common)
target_include_directories(llama_common SYSTEM INTERFACE
  ${LLAMA_CPP_SOURCE_DIR}/include ${LLAMA_CPP_SOURCE_DIR}/ggml/include ${LLAMA_CPP_SOURCE_DIR}/common
  ${LLAMA_CPP_SOURCE_DIR}/vendor)
target_link_libraries(llama_common INTERFACE llama::common_lib llama::common_base llama::httplib
  llama::llama llama::ggml llama::cpu llama::base_ggml Threads::Threads ${CMAKE_DL_LIBS} m)
if(EXISTS ${ZEROHOP_LLAMA_BUILD_DIR}/ggml/src/ggml-cuda/libggml-cuda.a)
  find_package(CUDAToolkit REQUIRED)
  zerohop_llama_lib(cuda ggml/src/ggml-cuda/libggml-cuda.a)
  target_link_libraries(llama_common INTERFACE llama::cuda CUDA::cudart_static CUDA::cublas CUDA::cuda_driver)
endif()

# nlohmann/json comes with llama.cpp: one copy for both.
add_library(zerohop_json INTERFACE)
target_include_directories(zerohop_json SYSTEM INTERFACE ${LLAMA_CPP_SOURCE_DIR}/vendor)
