// Stands in for CUDA's driver, libcuda.so.1: the functions by which a program adds two vectors on the first GPU, and an addition for whatever
// kernel is launched.
//
// It goes by the devices of its container, as libnvidia-ml.so.1 does.
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))
#define MOST 16

enum {
	SUCCESS = 0,
	INVALID_VALUE = 1,
	OUT_OF_MEMORY = 2,
	NOT_INITIALIZED = 3,
	NO_DEVICE = 100,
	INVALID_CONTEXT = 201,
	INVALID_PTX = 218,
	NOT_FOUND = 500,
};

static int device = -1, retained, current;

// From the start to the end of a process its GPU is in use.
EXPORTED int cuInit(unsigned flags) {
	char path[32];
	for (int number = 0; number < MOST && device < 0; number++) {
		snprintf(path, sizeof path, "/dev/nvidia%d", number);
		device = open(path, O_RDONLY | O_CLOEXEC);
	}
	return flags ? INVALID_VALUE : device < 0 ? NO_DEVICE : SUCCESS;
}

EXPORTED int cuGetErrorName(int error, const char **name) {
	switch (error) {
	case INVALID_VALUE: *name = "CUDA_ERROR_INVALID_VALUE"; break;
	case OUT_OF_MEMORY: *name = "CUDA_ERROR_OUT_OF_MEMORY"; break;
	case NOT_INITIALIZED: *name = "CUDA_ERROR_NOT_INITIALIZED"; break;
	case NO_DEVICE: *name = "CUDA_ERROR_NO_DEVICE"; break;
	case INVALID_CONTEXT: *name = "CUDA_ERROR_INVALID_CONTEXT"; break;
	case INVALID_PTX: *name = "CUDA_ERROR_INVALID_PTX"; break;
	case NOT_FOUND: *name = "CUDA_ERROR_NOT_FOUND"; break;
	default: *name = NULL; return INVALID_VALUE;
	}
	return SUCCESS;
}

EXPORTED int cuDriverGetVersion(int *version) {
	*version = 13000;
	return SUCCESS;
}

EXPORTED int cuDeviceGetCount(int *count) {
	*count = device >= 0;
	return device < 0 ? NOT_INITIALIZED : SUCCESS;
}

EXPORTED int cuDeviceGet(int *found, int index) {
	*found = 0;
	return device < 0 ? NOT_INITIALIZED : index ? INVALID_VALUE : SUCCESS;
}

EXPORTED int cuDeviceGetName(char *name, int length, int which) {
	snprintf(name, length, "stand-in");
	return which ? INVALID_VALUE : SUCCESS;
}

EXPORTED int cuDevicePrimaryCtxRetain(void **context, int which) {
	if (device < 0)
		return NOT_INITIALIZED;
	retained++;
	*context = &retained;
	return which ? INVALID_VALUE : SUCCESS;
}

EXPORTED int cuDevicePrimaryCtxRelease_v2(int which) {
	current = 0;
	return which || !retained-- ? INVALID_CONTEXT : SUCCESS;
}

EXPORTED int cuCtxSetCurrent(void *context) {
	current = context == &retained;
	return current ? SUCCESS : INVALID_CONTEXT;
}

EXPORTED int cuModuleLoadData(void **module, const char *text) {
	if (!current)
		return INVALID_CONTEXT;
	if (!strstr(text, ".entry"))
		return INVALID_PTX;
	*module = strdup(text);
	return SUCCESS;
}

EXPORTED int cuModuleGetFunction(void **function, const char *module, const char *name) {
	char entry[128];
	snprintf(entry, sizeof entry, ".entry %s(", name);
	*function = strstr(module, entry);
	return *function ? SUCCESS : NOT_FOUND;
}

EXPORTED int cuMemAlloc_v2(uint64_t *place, size_t size) {
	void *found = current ? malloc(size) : NULL;
	*place = (uint64_t)(uintptr_t)found;
	return !current ? INVALID_CONTEXT : found ? SUCCESS : OUT_OF_MEMORY;
}

EXPORTED int cuMemFree_v2(uint64_t place) {
	free((void *)(uintptr_t)place);
	return SUCCESS;
}

EXPORTED int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t size) {
	memcpy((void *)(uintptr_t)to, from, size);
	return current ? SUCCESS : INVALID_CONTEXT;
}

EXPORTED int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t size) {
	memcpy(to, (void *)(uintptr_t)from, size);
	return current ? SUCCESS : INVALID_CONTEXT;
}

EXPORTED int cuLaunchKernel(void *function, unsigned blocks, unsigned blocks_y, unsigned blocks_z, unsigned threads, unsigned threads_y,
                            unsigned threads_z, unsigned shared, void *stream, void **arguments, void **extra) {
	if (!current)
		return INVALID_CONTEXT;
	if (!function || blocks_y * blocks_z * threads_y * threads_z != 1 || shared || stream || extra)
		return INVALID_VALUE;
	const float *left = *(float **)arguments[0], *right = *(float **)arguments[1];
	float *sum = *(float **)arguments[2];
	unsigned count = *(unsigned *)arguments[3];
	for (unsigned each = 0; each < blocks * threads && each < count; each++)
		sum[each] = left[each] + right[each];
	return SUCCESS;
}

EXPORTED int cuCtxSynchronize(void) {
	return current ? SUCCESS : INVALID_CONTEXT;
}
