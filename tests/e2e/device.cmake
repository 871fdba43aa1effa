# The device that the programs compute on. Each test is a function of device_test.sh.
find_program(SHARDMARK_BASH bash)
if(NOT SHARDMARK_BASH OR NOT TARGET shardmark-collectives)
  return()
endif()
set(names cuda_names_what_is_missing auto_takes_the_cpu options_of_gpus_need_one record_is_a_dry_run
  cuda_loses_nothing dry_run_of_collectives_has_the_bytes)
if(SHARDMARK_HAVE_MPI)
  list(APPEND names cuda_names_it_once_under_mpi)
endif()
foreach(name IN LISTS names)
  add_test(NAME device_${name}
    COMMAND ${SHARDMARK_BASH} ${CMAKE_CURRENT_SOURCE_DIR}/device_test.sh ${name})
  set_tests_properties(device_${name} PROPERTIES LABELS e2e TIMEOUT 120 PROCESSORS 2 SKIP_RETURN_CODE 77
    ENVIRONMENT
    "SHARDMARK_TP=$<TARGET_FILE:shardmark-tp>;SHARDMARK_CP=$<TARGET_FILE:shardmark-cp>;SHARDMARK_PP=$<TARGET_FILE:shardmark-pp>;SHARDMARK_COLLECTIVES=$<TARGET_FILE:shardmark-collectives>;MPIEXEC=${MPIEXEC_EXECUTABLE};SCRATCH=${CMAKE_CURRENT_BINARY_DIR}/device/${name}")
endforeach()
