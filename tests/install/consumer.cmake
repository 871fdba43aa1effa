# Run as a test: installs the build tree BUILD into PREFIX, then builds the project in SOURCE
# against it in WORK and runs its program.
file(REMOVE_RECURSE ${PREFIX} ${WORK})
function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${PREFIX})
run(${CMAKE_COMMAND} -S ${SOURCE} -B ${WORK} -G ${GENERATOR}
  -D CMAKE_PREFIX_PATH=${PREFIX} -D CMAKE_CXX_COMPILER=${COMPILER} -D CMAKE_BUILD_TYPE=Release)
run(${CMAKE_COMMAND} --build ${WORK})
run(${WORK}/consumer)
