# shardmark-tp as a user runs it. Each test is a function of program_test.sh.
find_program(SHARDMARK_BASH bash)
if(NOT SHARDMARK_BASH)
  message(STATUS "no bash: shardmark-tp is not tested end to end")
  return()
endif()
function(shardmark_add_program_test name)
  add_test(NAME program_${name}
    COMMAND ${SHARDMARK_BASH} ${CMAKE_CURRENT_SOURCE_DIR}/program_test.sh ${name})
  set_tests_properties(program_${name} PROPERTIES LABELS e2e TIMEOUT 60 PROCESSORS 2
    SKIP_RETURN_CODE 77 ENVIRONMENT
    "PROGRAM=$<TARGET_FILE:shardmark-tp>;MPIEXEC=${MPIEXEC_EXECUTABLE};SCRATCH=${CMAKE_CURRENT_BINARY_DIR}/program/${name}")
endfunction()

foreach(name IN ITEMS
    threads_run_writes_all_files blocks_print_their_communication resume_skips_finished_rows
    resume_says_what_it_cannot_know lost_output_is_an_error
    resume_refuses_another_schema earlier_files_are_renamed bad_input_exits_with_2
    unwritable_folder_is_refused threads_full_disk too_large_is_skipped_with_the_estimate
    nan_is_named hanging_rank_is_named hanging_only_rank_is_named failing_rank_ends_the_run interrupt_keeps_rows
    replicas_fill_idle_ranks both_dtypes_and_phases dry_run_needs_no_ranks help_and_lists
    peak_is_stated_or_measured)
  shardmark_add_program_test(${name})
endforeach()
if(SHARDMARK_HAVE_MPI)
  foreach(name IN ITEMS
      mpi_run_writes_all_files mpi_bad_input_is_printed_once mpi_refuses_threads
      mpi_dying_rank_keeps_rows mpi_single_rank_is_one_rank mpi_exit_code_is_kept mpi_early_exit_fails mpi_hanging_rank_is_named
      mpi_hanging_only_rank_is_named
      mpi_interrupt_keeps_rows mpi_full_disk)
    shardmark_add_program_test(${name})
  endforeach()
else()
  shardmark_add_program_test(built_without_mpi_refuses_a_launcher)
endif()
