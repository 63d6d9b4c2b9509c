# Installs the library, the headers of all folders under include/fusegrad, and a package, so that another project says
# find_package(fusegrad REQUIRED) and links fusegrad::fusegrad. A project that takes this one in as a folder installs
# what it likes itself.
if(NOT PROJECT_IS_TOP_LEVEL)
  return()
endif()
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(fusegrad_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/fusegrad)
install(TARGETS fusegrad EXPORT fusegrad-targets)
install(
  DIRECTORY runtime kernels autograd nn optim amp trainer
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/fusegrad
  FILES_MATCHING
  PATTERN "*.h"
  PATTERN "*.cuh")
install(EXPORT fusegrad-targets NAMESPACE fusegrad:: DESTINATION ${fusegrad_package_dir})

configure_package_config_file(
  cmake/fusegrad-config.cmake.in ${PROJECT_BINARY_DIR}/fusegrad-config.cmake INSTALL_DESTINATION ${fusegrad_package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/fusegrad-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/fusegrad-config.cmake ${PROJECT_BINARY_DIR}/fusegrad-config-version.cmake
        DESTINATION ${fusegrad_package_dir})

# Whether that works can only be seen from outside: install, build a small project against it, run it.
if(FUSEGRAD_TESTS)
  add_test(
    NAME Install.AConsumerFindsBuildsAndRuns
    COMMAND
      ${CMAKE_COMMAND} -DBUILD_DIR=${PROJECT_BINARY_DIR} -DCONFIG=$<CONFIG> -DGENERATOR=${CMAKE_GENERATOR}
      -DCXX_COMPILER=${CMAKE_CXX_COMPILER} -DSANITIZE=${FUSEGRAD_SANITIZE} -P
      ${PROJECT_SOURCE_DIR}/tests/install/check.cmake)
  set_tests_properties(Install.AConsumerFindsBuildsAndRuns PROPERTIES TIMEOUT 600)
endif()
