/* What the optimizer has for a parameter alone: of the first group whose pattern its name matches, or of all others. */
#include <zplan/spec.h>

bool zp_matches_pattern(const char *pattern, const char *name) {
  for (; *pattern && *pattern != '*'; pattern++, name++)
    if (!*name || (*pattern != '?' && *pattern != *name)) return false;
  if (!*pattern) return !*name;
  do
    if (zp_matches_pattern(pattern + 1, name)) return true;
  while (*name++);
  return false;
}

bool zp_matches_some(const zp_name_patterns *patterns, const char *name) {
  for (int i = 0; i < patterns->len; i++)
    if (zp_matches_pattern(patterns->data[i].pattern, name)) return true;
  return false;
}

int zp_group_of(const zp_train *train, const zp_param *param) {
  for (int i = 0; i < train->groups.len; i++)
    if (zp_matches_pattern(train->groups.data[i].pattern, param->name)) return i;
  return -1;
}

zp_recipe zp_recipe_of(const zp_train *train, const zp_param *param) {
  bool decays = train->decay_all || param->shape.rank >= 2;
  zp_recipe recipe = {.lr_factor = 1, .weight_decay = decays ? train->weight_decay : 0};
  int i = zp_group_of(train, param);
  if (i < 0) return recipe;
  const zp_param_group *group = &train->groups.data[i];
  recipe.lr_factor = group->lr_factor;
  if (group->decays) recipe.weight_decay = group->weight_decay;
  return recipe;
}
