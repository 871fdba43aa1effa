# Finds what the machine has. Each optional feature ends as SHARDMARK_HAVE_<feature>, with the
# reason for an absence in SHARDMARK_WHY_<feature> (printed by ShardmarkSummary).

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(OneDNN REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)

# shardmark_feature(NAME found reason-when-absent)
function(shardmark_feature name found why)
  set(wanted ${SHARDMARK_ENABLE_${name}})
  if(wanted STREQUAL "ON" AND NOT found)
    message(FATAL_ERROR "SHARDMARK_ENABLE_${name}=ON, but ${why}")
  endif()
  if(found AND NOT wanted STREQUAL "OFF")
    set(SHARDMARK_HAVE_${name} TRUE PARENT_SCOPE)
  else()
    set(SHARDMARK_HAVE_${name} FALSE PARENT_SCOPE)
    if(wanted STREQUAL "OFF")
      set(why "switched off by SHARDMARK_ENABLE_${name}=OFF")
    endif()
    set(SHARDMARK_WHY_${name} "${why}" PARENT_SCOPE)
  endif()
endfunction()

find_package(MPI QUIET COMPONENTS CXX)
set(found ${MPI_CXX_FOUND})
shardmark_feature(MPI "${found}" "no MPI was found (Debian: libmpich-dev)")

find_package(fmt CONFIG QUIET)
find_package(CLI11 CONFIG QUIET)
find_package(nlohmann_json CONFIG QUIET)
set(missing "")
foreach(package IN ITEMS fmt CLI11 nlohmann_json)
  if(NOT ${package}_FOUND)
    list(APPEND missing ${package})
  endif()
endforeach()
set(found TRUE)
if(missing)
  set(found FALSE)
endif()
list(JOIN missing " " missing)
shardmark_feature(PROGRAMS ${found}
  "${missing} not found (Debian: libfmt-dev libcli11-dev nlohmann-json3-dev)")

find_package(ZLIB QUIET)
set(found ${ZLIB_FOUND})
shardmark_feature(ZLIB "${found}" "zlib not found (Debian: zlib1g-dev); traces are written uncompressed")

find_package(SQLite3 QUIET)
set(found FALSE)
if(SQLite3_FOUND AND ZLIB_FOUND AND SHARDMARK_HAVE_PROGRAMS)
  set(found TRUE)
endif()
shardmark_feature(ANALYZE ${found}
  "SQLite or zlib not found (Debian: libsqlite3-dev zlib1g-dev)")

find_package(GTest CONFIG QUIET)
set(found ${GTest_FOUND})
shardmark_feature(TESTS "${found}" "GoogleTest not found (Debian: libgtest-dev libgmock-dev)")

find_package(benchmark CONFIG QUIET)
set(found ${benchmark_FOUND})
shardmark_feature(MICRO "${found}" "Google Benchmark not found (Debian: libbenchmark-dev)")

find_path(SHARDMARK_NVTX_INCLUDE nvtx3/nvToolsExt.h
  HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda /opt/cuda PATH_SUFFIXES include)
set(found FALSE)
if(SHARDMARK_NVTX_INCLUDE)
  set(found TRUE)
endif()
shardmark_feature(NVTX ${found} "nvtx3/nvToolsExt.h not found (comes with the CUDA toolkit)")

# Only on request: there are kernels, but no backend that programs could use.
set(SHARDMARK_HAVE_CUDA FALSE)
set(SHARDMARK_WHY_CUDA "not complete; SHARDMARK_ENABLE_CUDA=ON builds its kernels")
if(SHARDMARK_ENABLE_CUDA STREQUAL "ON")
  include(CheckLanguage)
  # Code for each architecture whose instructions differ, and PTX of the newest for later ones.
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 100-real 100-virtual)
  endif()
  check_language(CUDA)
  set(found FALSE)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
    set(found TRUE)
  endif()
  shardmark_feature(CUDA ${found} "no CUDA compiler was found (nvcc on PATH, or CUDACXX)")
endif()

if(SHARDMARK_HAVE_CUDA)
  find_path(SHARDMARK_NCCL_INCLUDE nccl.h
    HINTS ENV NCCL_HOME ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES include)
  set(found FALSE)
  if(SHARDMARK_NCCL_INCLUDE)
    set(found TRUE)
  endif()
  shardmark_feature(NCCL ${found} "nccl.h not found (set NCCL_HOME to where NCCL is installed)")
endif()

# Headers of cuDNN and of its frontend, which is a Python package too; cuDNN is opened at run time.
set(SHARDMARK_HAVE_CUDNN FALSE)
set(SHARDMARK_WHY_CUDNN "needs CUDA kernels")
if(SHARDMARK_HAVE_CUDA)
  find_path(SHARDMARK_CUDNN_INCLUDE cudnn_graph.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_package(Python3 QUIET COMPONENTS Interpreter)
  set(site "")
  if(Python3_FOUND)
    execute_process(COMMAND ${Python3_EXECUTABLE} -c
      "import sysconfig; print(sysconfig.get_path('purelib'), sysconfig.get_path('data'), sep=';')"
      OUTPUT_VARIABLE site OUTPUT_STRIP_TRAILING_WHITESPACE)
  endif()
  find_path(SHARDMARK_CUDNN_FRONTEND_INCLUDE cudnn_frontend.h
    HINTS ${CUDAToolkit_INCLUDE_DIRS} ${site} PATH_SUFFIXES include)
  set(found FALSE)
  if(SHARDMARK_CUDNN_INCLUDE AND SHARDMARK_CUDNN_FRONTEND_INCLUDE)
    set(found TRUE)
  endif()
  shardmark_feature(CUDNN ${found}
    "cudnn_graph.h or cudnn_frontend.h not found (pip install nvidia-cudnn-frontend)")
endif()
