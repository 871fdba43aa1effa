# shardmark-analyze as a user runs it. Each test is a function of analyze_test.sh.
find_program(SHARDMARK_BASH bash)
if(NOT SHARDMARK_BASH)
  message(STATUS "no bash: shardmark-analyze is not tested end to end")
  return()
endif()
foreach(name IN ITEMS a_folder_is_answered all_files_are_written own_trace_gives_own_figures broken_files_exit_with_1
    bad_input_exits_with_2 inputs_and_outputs_stay_apart steps_and_windows_are_cut no_communication_is_no_overlap
    difference_names_the_slow_rank single_ranks_are_compared help_and_lists)
  add_test(NAME analyze_${name}
    COMMAND ${SHARDMARK_BASH} ${CMAKE_CURRENT_SOURCE_DIR}/analyze_test.sh ${name})
  set_tests_properties(analyze_${name} PROPERTIES LABELS "e2e;analyze" TIMEOUT 60
    ENVIRONMENT
    "PROGRAM=$<TARGET_FILE:shardmark-analyze>;SHARDMARK_TP=$<TARGET_FILE:shardmark-tp>;SCRATCH=${CMAKE_CURRENT_BINARY_DIR}/analyze/${name}")
endforeach()

if(NOT python_lacks)
  add_test(NAME plot_analyze_small_run
    COMMAND ${SHARDMARK_BASH} ${CMAKE_CURRENT_SOURCE_DIR}/analyze_test.sh plots_are_drawn)
  set_tests_properties(plot_analyze_small_run PROPERTIES LABELS "e2e;analyze" TIMEOUT 60
    ENVIRONMENT
    "PROGRAM=$<TARGET_FILE:shardmark-analyze>;PYTHON=${SHARDMARK_PYTHON};PLOT=${PROJECT_SOURCE_DIR}/scripts/plot.py;SCRATCH=${CMAKE_CURRENT_BINARY_DIR}/analyze/plots")
endif()
