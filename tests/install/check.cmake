# Installs a finished build into a folder of its own and builds and runs the consumer against it, from nothing each time.
# Takes BUILD_DIR, CONFIG, GENERATOR, CXX_COMPILER and SANITIZE.
set(work ${BUILD_DIR}/install_check)
file(REMOVE_RECURSE ${work})

function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ECHO STDOUT RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "failed with ${result}: ${ARGN}")
  endif()
endfunction()

# A library built with the sanitizers wants a program built with them.
set(flags)
if(SANITIZE)
  set(flags -DCMAKE_CXX_FLAGS=-fsanitize=address,undefined)
endif()

run(${CMAKE_COMMAND} --install ${BUILD_DIR} --config ${CONFIG} --prefix ${work}/prefix)
run(${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR}/consumer -B ${work}/build -G ${GENERATOR}
    -DCMAKE_CXX_COMPILER=${CXX_COMPILER} -DCMAKE_BUILD_TYPE=${CONFIG} -DCMAKE_PREFIX_PATH=${work}/prefix ${flags})
run(${CMAKE_COMMAND} --build ${work}/build --config ${CONFIG})
run(${CMAKE_COMMAND} -E chdir ${work}/build ./consumer)
