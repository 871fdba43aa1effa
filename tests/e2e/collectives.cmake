# shardmark-collectives as a user runs it. Each test is a function of collectives_test.sh.
find_program(SHARDMARK_BASH bash)
if(NOT SHARDMARK_BASH)
  message(STATUS "no bash: shardmark-collectives is not tested end to end")
  return()
endif()
function(shardmark_add_collectives_test name)
  add_test(NAME collectives_${name}
    COMMAND ${SHARDMARK_BASH} ${CMAKE_CURRENT_SOURCE_DIR}/collectives_test.sh ${name})
  set_tests_properties(collectives_${name} PROPERTIES LABELS e2e TIMEOUT 120 PROCESSORS 2
    ENVIRONMENT
    "PROGRAM=$<TARGET_FILE:shardmark-collectives>;MPIEXEC=${MPIEXEC_EXECUTABLE};SCRATCH=${CMAKE_CURRENT_BINARY_DIR}/collectives/${name}")
endfunction()

foreach(name IN ITEMS threads_table threads_4_everything bad_input_exits_with_2
    corrupted_byte_is_caught fault_that_never_happens_is_told edited_plan_is_refused tuned_choice_is_used groups_and_overlap
    threads_progress_thread resume_drops_waits_without_a_row resume_skips_finished_rows skipped_rows_say_why lists_and_imports)
  shardmark_add_collectives_test(${name})
endforeach()
if(SHARDMARK_HAVE_MPI)
  foreach(name IN ITEMS mpi_table mpi_3_everything mpi_bad_input_is_printed_once
      mpi_rank_with_other_options_is_named skew_is_waiting mpi_progress_thread
      mpi_interrupt_keeps_rows mpi_signals_to_the_keeper_reach_the_rank)
    shardmark_add_collectives_test(${name})
  endforeach()
endif()
