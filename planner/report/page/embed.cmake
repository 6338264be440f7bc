# SPDX-License-Identifier: Apache-2.0
# The report page as texts that planner/report/html.c puts together. Its policy lets this style and this script alone have an effect: it
# names their SHA-256 in base64.
function(zplan_c_string out text)
  string(REPLACE "\\" "\\\\" text "${text}")
  string(REPLACE "\"" "\\\"" text "${text}")
  string(REPLACE "\n" "\\n\"\n\"" text "${text}")
  set(${out} "\"${text}\"" PARENT_SCOPE)
endfunction()
# The text of a script or style, without the line of its licence: the page is the user's.
function(zplan_read_page_part out file)
  file(READ ${file} text)
  string(REGEX REPLACE "^/[*] SPDX[^\n]*\n" "" text "${text}")
  set(${out} "${text}" PARENT_SCOPE)
endfunction()
function(zplan_sha256_base64 out text)
  set(digits ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/)
  string(SHA256 hex "${text}")
  set(hash "")
  foreach(at RANGE 0 63 3) # three digits of 4 bits are two of 6; two bits are missing at the end
    string(SUBSTRING "${hex}00" ${at} 3 three)
    math(EXPR high "0x${three} >> 6")
    math(EXPR low "0x${three} & 63")
    string(SUBSTRING ${digits} ${high} 1 first)
    string(SUBSTRING ${digits} ${low} 1 second)
    string(APPEND hash ${first}${second})
  endforeach()
  string(SUBSTRING "${hash}" 0 43 hash)
  set(${out} "${hash}=" PARENT_SCOPE)
endfunction()
set(page planner/report/page)
# In the order in which they stand in the page.
set(page_scripts values draw plot simulate answer machine memory timeline step roofline alternatives moves run profile constants compare main)
list(TRANSFORM page_scripts PREPEND ${page}/)
list(TRANSFORM page_scripts APPEND .js)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${page}/page.html ${page}/style.css ${page_scripts})
file(READ ${page}/page.html page_text)
zplan_c_string(page_html "${page_text}")
zplan_read_page_part(page_text ${page}/style.css)
zplan_c_string(page_style "${page_text}")
zplan_sha256_base64(page_style_hash "${page_text}")
set(page_text "")
foreach(script ${page_scripts})
  zplan_read_page_part(text ${script})
  string(APPEND page_text "${text}")
endforeach()
zplan_c_string(page_script "${page_text}")
zplan_sha256_base64(page_script_hash "${page_text}")
file(CONFIGURE OUTPUT report/page_text.h CONTENT "/* Made from ${page}. */
static const char page_html[] = @page_html@;
static const char page_style[] = @page_style@;
static const char page_script[] = @page_script@;
static const char page_style_hash[] = \"@page_style_hash@\";
static const char page_script_hash[] = \"@page_script_hash@\";
" @ONLY)
target_include_directories(zp_report PRIVATE ${CMAKE_BINARY_DIR}/report)
