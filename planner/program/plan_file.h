/* What the writer and the reader of plan files must spell the same. */
#ifndef ZPLAN_PLAN_FILE_H
#define ZPLAN_PLAN_FILE_H

/* The value of "recompute" when "stage_recompute" lists a mode for every stage. */
#define ZP_PLAN_PER_STAGE "per stage"

#endif
