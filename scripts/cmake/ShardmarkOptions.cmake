# User-visible options. AUTO: use it when found; ON: fail when not found; OFF: leave it out.
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

foreach(feature IN ITEMS MPI PROGRAMS TESTS MICRO NVTX ZLIB ANALYZE CUDA NCCL CUDNN)
  set(SHARDMARK_ENABLE_${feature} AUTO CACHE STRING "AUTO, ON or OFF")
  set_property(CACHE SHARDMARK_ENABLE_${feature} PROPERTY STRINGS AUTO ON OFF)
endforeach()
option(SHARDMARK_WERROR "Treat warnings as errors" OFF)
set(SHARDMARK_SANITIZE "" CACHE STRING "Sanitizers for -fsanitize=, for example address,undefined")

set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# Paths inside the source folder count relative to it, so that a fresh clone in another folder finds
# what was compiled before.
find_program(SHARDMARK_CCACHE ccache)
if(SHARDMARK_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}
      CCACHE_NOHASHDIR=true ${SHARDMARK_CCACHE})
endif()
