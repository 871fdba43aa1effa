# Predictions as a user makes them. Each test is a function of predict_test.sh.
find_program(SHARDMARK_BASH bash)
find_program(SHARDMARK_PYTHON python3 PATHS /usr/bin NO_DEFAULT_PATH)
find_program(SHARDMARK_PYTHON python3)
if(NOT SHARDMARK_BASH)
  return()
endif()
set(names predicts_a_model resumes machines_are_listed bad_machine_files_exit_with_2
          calibrates_and_predicts_itself contradictions_are_refused)
if(SHARDMARK_HAVE_MPI)
  list(APPEND names refuses_a_launcher)
endif()
if(TARGET shardmark-cp)
  list(APPEND names predicts_split_sequences)
  set(context $<TARGET_FILE:shardmark-cp>)
endif()
foreach(name IN LISTS names)
  add_test(NAME predict_${name}
    COMMAND ${SHARDMARK_BASH} ${CMAKE_CURRENT_SOURCE_DIR}/predict_test.sh ${name})
  set_tests_properties(predict_${name} PROPERTIES LABELS e2e TIMEOUT 60 PROCESSORS 2 ENVIRONMENT
    "PROGRAM=$<TARGET_FILE:shardmark-tp>;CONTEXT=${context};MPIEXEC=${MPIEXEC_EXECUTABLE};PYTHON=$<$<BOOL:${SHARDMARK_PYTHON}>:${SHARDMARK_PYTHON}>;SOURCE=${PROJECT_SOURCE_DIR};SCRATCH=${CMAKE_CURRENT_BINARY_DIR}/predict/${name}")
endforeach()
