/* SPDX-License-Identifier: Apache-2.0 */
/* One LLVM module for all kernels of a set: target, optimisation, object code.
 *
 * The target is described by its feature string. The name of the host CPU is not used: hypervisors and new models make
 * LLVM guess it wrong, and then features of the guess would be assumed. */
#include "emit.h"

typedef struct target {
  const char *triple, *cpu, *features;
  LLVMTargetMachineRef machine;
} target;

static const char *take_message(zp_arena *arena, char *message) {
  const char *copy = zp_strdup(arena, message ? message : "unknown LLVM error");
  LLVMDisposeMessage(message);
  return copy;
}

/* Bytes of the widest vectors that a feature string allows; later entries win. */
static int vector_bytes_of(const char *features) {
  bool avx = false, avx512 = false;
  for (const char *at = features; *at;) {
    size_t length = strcspn(at, ",");
    if (length > 1 && (at[0] == '+' || at[0] == '-')) {
      bool on = at[0] == '+';
      if (length == 4 && strncmp(at + 1, "avx", 3) == 0) avx = on;
      if (length == 5 && strncmp(at + 1, "avx2", 4) == 0) avx = on;
      if (length == 8 && strncmp(at + 1, "avx512f", 7) == 0) avx512 = on;
    }
    at += length + (at[length] == ',');
  }
  return avx512 ? 64 : avx ? 32 : 16;
}

static bool open_target(zp_arena *arena, const zp_module_spec *spec, target *t, const char **error) {
  if (!zp_llvm_open(arena, error)) return false;
  t->triple = take_message(arena, LLVMGetDefaultTargetTriple());
  t->cpu = spec->cpu ? spec->cpu : "generic";
  t->features = spec->features ? spec->features : take_message(arena, LLVMGetHostCPUFeatures());
  LLVMTargetRef llvm_target;
  char *message = NULL;
  if (LLVMGetTargetFromTriple(t->triple, &llvm_target, &message)) {
    *error = take_message(arena, message);
    return false;
  }
  t->machine = LLVMCreateTargetMachine(llvm_target, t->triple, t->cpu, t->features, LLVMCodeGenLevelAggressive,
                                       LLVMRelocPIC, LLVMCodeModelDefault);
  if (!t->machine) *error = zp_format(arena, "LLVM cannot generate code for %s with features %s", t->cpu, t->features);
  return t->machine != NULL;
}

/* One alias scope for everything that kernels write. Inputs are outside of it: loads may move above stores. */
static LLVMValueRef output_scope(LLVMContextRef context) {
  LLVMMetadataRef domain_name = LLVMMDStringInContext2(context, "row kernels", 11);
  LLVMMetadataRef domain = LLVMMDNodeInContext2(context, &domain_name, 1);
  LLVMMetadataRef scope_parts[] = {LLVMMDStringInContext2(context, "outputs", 7), domain};
  LLVMMetadataRef scope = LLVMMDNodeInContext2(context, scope_parts, 2);
  return LLVMMetadataAsValue(context, LLVMMDNodeInContext2(context, &scope, 1));
}

static void open_module(zp_emit *e, const zp_module_spec *spec, const target *t) {
  e->context = LLVMContextCreate();
  e->module = LLVMModuleCreateWithNameInContext("row_kernels", e->context);
  e->builder = LLVMCreateBuilderInContext(e->context);
  e->dtype = spec->dtype;
  e->elem_bytes = (int)zpk_bytes(spec->dtype);
  e->real_bytes = (int)zpk_real_bytes(spec->dtype);
  e->vector_bytes = vector_bytes_of(t->features);
  e->cpu = t->cpu;
  e->features = t->features;
  bool f64 = spec->dtype == ZPK_F64;
  e->real = f64 ? LLVMDoubleTypeInContext(e->context) : LLVMFloatTypeInContext(e->context);
  e->elem = spec->dtype == ZPK_BF16  ? LLVMInt16TypeInContext(e->context)
            : spec->dtype == ZPK_F16 ? LLVMHalfTypeInContext(e->context)
                                     : e->real;
  e->i1 = LLVMInt1TypeInContext(e->context);
  e->i8 = LLVMInt8TypeInContext(e->context);
  e->i32 = LLVMInt32TypeInContext(e->context);
  e->i64 = LLVMInt64TypeInContext(e->context);
  e->integer = f64 ? e->i64 : e->i32;
  e->pointer = LLVMPointerTypeInContext(e->context, 0);
  e->output_scope = output_scope(e->context);
  LLVMSetTarget(e->module, t->triple);
  LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(t->machine);
  LLVMSetModuleDataLayout(e->module, layout);
  LLVMDisposeTargetData(layout);
}

/* The clean-ups that explicit vector code needs, and nothing else: registers for stack slots, common subexpressions,
 * loop invariants out of loops. LLVM's vectorisers must not run: they would treat some rows of a chunk differently from
 * others, and results would depend on how rows are cut into chunks. */
static const char pipeline[] =
    "function(sroa,early-cse<memssa>,instcombine<no-verify-fixpoint>,simplifycfg,"
    "loop-mssa(loop-rotate,licm),gvn,instcombine<no-verify-fixpoint>,loop-mssa(licm),adce,simplifycfg)";

static bool optimise(zp_arena *arena, zp_emit *e, LLVMTargetMachineRef machine, const char **error) {
  LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
  LLVMErrorRef failure = LLVMRunPasses(e->module, pipeline, machine, options);
  LLVMDisposePassBuilderOptions(options);
  if (!failure) return true;
  char *message = LLVMGetErrorMessage(failure);
  *error = zp_strdup(arena, message);
  LLVMDisposeErrorMessage(message);
  return false;
}

static bool verify(zp_arena *arena, zp_emit *e, const char **error) {
  char *message = NULL;
  bool broken = LLVMVerifyModule(e->module, LLVMReturnStatusAction, &message);
  if (broken)
    *error = take_message(arena, message);
  else
    LLVMDisposeMessage(message);
  return !broken;
}

static bool emit_object(zp_arena *arena, zp_emit *e, LLVMTargetMachineRef machine, zp_compiled_module *module,
                        const char **error) {
  LLVMMemoryBufferRef buffer = NULL;
  char *message = NULL;
  if (LLVMTargetMachineEmitToMemoryBuffer(machine, e->module, LLVMObjectFile, &message, &buffer)) {
    *error = take_message(arena, message);
    return false;
  }
  module->object_bytes = LLVMGetBufferSize(buffer);
  char *copy = zp_alloc(arena, module->object_bytes);
  memcpy(copy, LLVMGetBufferStart(buffer), module->object_bytes);
  module->object = copy;
  LLVMDisposeMemoryBuffer(buffer);
  return true;
}

static const char *text_of(const zp_emit *e) { return take_message(e->arena, LLVMPrintModuleToString(e->module)); }

/* The text before the object: code generation changes the module. */
static bool compile(zp_arena *arena, zp_emit *e, LLVMTargetMachineRef machine, zp_compiled_module *module,
                    const char **error) {
  if (!verify(arena, e, error) || !optimise(arena, e, machine, error)) return false;
  module->ir = text_of(e);
  return emit_object(arena, e, machine, module, error);
}

bool zp_module_compile(zp_arena *arena, const zp_module_spec *spec, zp_compiled_module *module, const char **error) {
  target t = {0};
  if (!open_target(arena, spec, &t, error)) return false;
  zp_emit e = {.arena = arena};
  open_module(&e, spec, &t);
  for (int i = 0; i < spec->count; i++) zp_emit_function(&e, spec->program[i], spec->symbol[i]);
  bool ok = compile(arena, &e, t.machine, module, error);
  LLVMDisposeBuilder(e.builder);
  LLVMDisposeModule(e.module);
  LLVMContextDispose(e.context);
  LLVMDisposeTargetMachine(t.machine);
  return ok;
}
