# shardmark-pp as a user runs it: each test is a function of pipeline_test.sh; and its plots.
find_program(SHARDMARK_BASH bash)
if(SHARDMARK_BASH)
  function(shardmark_add_pipeline_test name)
    add_test(NAME pp_${name}
      COMMAND ${SHARDMARK_BASH} ${CMAKE_CURRENT_SOURCE_DIR}/pipeline_test.sh ${name})
    set_tests_properties(pp_${name} PROPERTIES LABELS e2e TIMEOUT 120 PROCESSORS 2
      SKIP_RETURN_CODE 77 ENVIRONMENT
      "PROGRAM=$<TARGET_FILE:shardmark-pp>;MPIEXEC=${MPIEXEC_EXECUTABLE};SCRATCH=${CMAKE_CURRENT_BINARY_DIR}/pipeline/${name}")
  endfunction()
  foreach(name IN ITEMS
      every_schedule_on_two_threads three_ranks_skip_what_is_not_allowed one_rank_runs_all_stages
      tp_inside_a_stage_and_dp_around_it merged_messages both_dtypes uneven_and_given_splits
      recomputation_and_tied_embeddings sequence_parallelism_inside_a_stage
      balance_by_measured_cost fitted_to_measured_times resume_skips_finished_rows a_printed_schedule_runs_again
      a_fitted_schedule_is_printed_and_runs_again
      inference_on_two_threads inference_on_three_threads inference_without_ranks
      broken_schedules_are_refused bad_input_exits_with_2 dry_run_needs_no_ranks help_and_lists)
    shardmark_add_pipeline_test(${name})
  endforeach()
  if(SHARDMARK_HAVE_MPI)
    foreach(name IN ITEMS every_schedule_on_two_mpi_ranks inference_on_three_mpi_ranks mpi_three_ranks mpi_bad_input_is_printed_once)
      shardmark_add_pipeline_test(${name})
    endforeach()
  endif()
endif()

if(NOT python_lacks)
  set(script_program shardmark-pp)
  shardmark_add_script_test(plot_pp_small_run "plot_pp.py" "" --out
    --transport threads --ranks 2 --schedule gpipe,zb-v --microbatches 2,4 --layers 6 --hidden 32 --heads 2
    --seq 16 --vocab 4k --balance count,measured --min-samples 2 --max-time 0.05 --check off --peak-tflops 0.1)
  set_tests_properties(plot_pp_small_run PROPERTIES
    PASS_REGULAR_EXPRESSION "gantt.*png.*bubble.*png.*stages.*png" FAIL_REGULAR_EXPRESSION "Traceback")
  shardmark_add_script_test(plot_pp_inference "plot_pp.py" "" --out
    --transport threads --ranks 2 --mode infer --pp 1,2 --tp 1,2 --microbatches 1,3 --tokens 2 --layers 2 --hidden 32
    --heads 2 --seq 16 --vocab 64 --min-samples 2 --max-time 0.05 --check off --peak-tflops 0.1)
  set_tests_properties(plot_pp_inference PROPERTIES
    PASS_REGULAR_EXPRESSION "ttft.*png.*time_per_token.*png" FAIL_REGULAR_EXPRESSION "Traceback")
  # One figure of each, though tp pads the vocabulary and the rows take different numbers of ranks.
  shardmark_add_script_test(plot_pp_predicted "plot_pp.py" "" --out
    --predict h100-sxm-8 --mode infer --model gpt3-125m --pp 1,2,4 --tp 1,2,4 --microbatches 1,4 --tokens 2 --seq 64)
  set_tests_properties(plot_pp_predicted PROPERTIES
    PASS_REGULAR_EXPRESSION "ttft[.]png.*time_per_token[.]png" FAIL_REGULAR_EXPRESSION "Traceback")
endif()
