/* Private to plan files: what writer and reader must spell the same, and between the files of the writer. */
#ifndef ZPLAN_PLAN_FILE_H
#define ZPLAN_PLAN_FILE_H

#include <zplan/plan.h>

/* The value of "recompute" when "stage_recompute" lists a mode for every stage. */
#define ZP_PLAN_PER_STAGE "per stage"

/* Segments with their procedures, and parameters. */
zp_json *zp_program_json(const zp_program *program);

#endif
