/* An array of tensors that lie in this library. "constants.inc" defines COUNT, their data, `extents` and `tensors`. */
#include <tvm/ffi/c_api.h>

static void keep(DLManagedTensorVersioned* tensor) { (void)tensor; } /* the library is never unloaded */

#include "constants.inc"

static TVMFFIObjectHandle made;
static char making;

static int make(TVMFFIObjectHandle* array) {
  static TVMFFIAny items[COUNT];
  const TVMFFIByteArray name = {"ffi.Array", 9};
  TVMFFIObjectHandle maker = 0;
  TVMFFIAny result = {0};
  int failed = TVMFFIFunctionGetGlobal(&name, &maker);
  int count = 0;
  for (; count < COUNT && !failed; ++count) {
    TVMFFIObjectHandle tensor = 0;
    failed = TVMFFITensorFromDLPackVersioned(&tensors[count], 0, 1, &tensor);
    items[count].type_index = kTVMFFITensor;
    items[count].v_obj = (TVMFFIObject*)tensor;
  }
  if (!failed) failed = TVMFFIFunctionCall(maker, items, COUNT, &result);
  while (count--)
    if (items[count].v_obj) TVMFFIObjectDecRef(items[count].v_obj);
  if (maker) TVMFFIObjectDecRef(maker);
  *array = result.v_obj;
  return failed;
}

__attribute__((visibility("default"))) int __tvm_ffi_eqsat_layout_constants(void* self, const TVMFFIAny* args,
                                                                            int32_t count, TVMFFIAny* result) {
  TVMFFIObjectHandle own = __atomic_load_n(&made, __ATOMIC_ACQUIRE);
  (void)self, (void)args, (void)count;
  if (!own) { /* of several threads in their first runs one makes it */
    int failed = 0;
    while (__atomic_test_and_set(&making, __ATOMIC_ACQUIRE)) {
    }
    own = made;
    if (!own) {
      failed = make(&own);
      if (!failed) __atomic_store_n(&made, own, __ATOMIC_RELEASE);
    }
    __atomic_clear(&making, __ATOMIC_RELEASE);
    if (failed) return failed;
  }
  TVMFFIObjectIncRef(own);
  result->type_index = ((TVMFFIObject*)own)->type_index;
  result->zero_padding = 0;
  result->v_obj = (TVMFFIObject*)own;
  return 0;
}
