# Run as a test: configures and builds with a compiler, MPI and oneDNN alone, as if every optional
# package were missing.
file(REMOVE_RECURSE ${WORK})
set(without "")
foreach(package IN ITEMS fmt CLI11 nlohmann_json ZLIB SQLite3 GTest benchmark)
  list(APPEND without -D CMAKE_DISABLE_FIND_PACKAGE_${package}=ON)
endforeach()
execute_process(
  COMMAND ${CMAKE_COMMAND} -S ${SOURCE} -B ${WORK} -G ${GENERATOR}
    -D CMAKE_CXX_COMPILER=${COMPILER} -D SHARDMARK_ENABLE_NVTX=OFF ${without}
  COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} --build ${WORK} COMMAND_ERROR_IS_FATAL ANY)
