# SPDX-License-Identifier: Apache-2.0
# libzplan: the driver's verbs that answer with a value, over front end and planner. Only zplan_* is visible.

add_library(zplan_parts STATIC $<TARGET_OBJECTS:zp_driver>) # an archive: what no verb of the library needs is left out
target_link_libraries(zplan_parts PUBLIC zp_planner zp_weights zp_import zp_tokenize zp_sema zp_syntax zp_graph zp_support ${CMAKE_DL_LIBS})
add_library(zplan_library SHARED driver/library/library.c driver/library/answer.c driver/library/left_out.c driver/verbs.c)
set_target_properties(zplan_library PROPERTIES OUTPUT_NAME zplan VERSION ${PROJECT_VERSION} SOVERSION 1 C_VISIBILITY_PRESET hidden)
target_include_directories(zplan_library PUBLIC driver/library/include PRIVATE driver driver/library codegen/include kernels/include)
target_compile_options(zplan_library PRIVATE ${ZPLAN_WARNINGS})
target_compile_definitions(zplan_library PRIVATE "ZPLAN_API=__attribute__((visibility(\"default\")))" ZPLAN_VERSION="${PROJECT_VERSION}" ZPLAN_IN_LIBRARY)
target_link_options(zplan_library PRIVATE -Wl,--as-needed -Wl,--wrap=__assert_fail -Wl,--version-script=${CMAKE_SOURCE_DIR}/driver/library/zplan.map)
set_property(TARGET zplan_library APPEND PROPERTY LINK_DEPENDS ${CMAKE_SOURCE_DIR}/driver/library/zplan.map)
if(NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
  target_link_options(zplan_library PRIVATE -Wl,-z,defs)
endif()
target_link_libraries(zplan_library PRIVATE zplan_parts)

# After GNUInstallDirs.
function(zplan_install_library)
  install(TARGETS zplan_library LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(FILES driver/library/include/zplan.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  file(RELATIVE_PATH pc_up /p/${CMAKE_INSTALL_LIBDIR}/pkgconfig /p)
  set(pc_libdir ${CMAKE_INSTALL_LIBDIR})
  set(pc_includedir ${CMAKE_INSTALL_INCLUDEDIR})
  configure_file(driver/library/zplan.pc.in zplan.pc @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/zplan.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endfunction()
