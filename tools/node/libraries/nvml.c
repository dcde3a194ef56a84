// Stands in for NVML, libnvidia-ml.so.1: the functions by which a device plugin and an exporter find GPUs.
//
// It goes by the devices of its container: /dev/nvidia0, /dev/nvidia1, ... each holds the version of the loaded driver.
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))
#define MOST 16
#define TEXT 96

enum {
	SUCCESS = 0,
	UNINITIALIZED = 1,
	INVALID_ARGUMENT = 2,
	NOT_FOUND = 6,
	INSUFFICIENT_SIZE = 7,
	DRIVER_NOT_LOADED = 9,
	GPU_IS_LOST = 15,
};

struct memory {
	unsigned long long total, free, used;
};

static char devices[MOST];
static int users;

static int version(int number, char *text) {
	char path[32];
	snprintf(path, sizeof path, "/dev/nvidia%d", number);
	int file = open(path, O_RDONLY | O_CLOEXEC);
	if (file < 0)
		return 0;
	ssize_t length = read(file, text, TEXT - 1);
	close(file);
	text[length > 0 ? length : 0] = 0;
	text[strcspn(text, "\n")] = 0;
	return *text != 0;
}

static int tell(const char *said, char *text, unsigned length) {
	if (!text)
		return INVALID_ARGUMENT;
	if (strlen(said) >= length)
		return INSUFFICIENT_SIZE;
	strcpy(text, said);
	return SUCCESS;
}

// A container that was given the second GPU alone has that one as its first.
static int number_of(unsigned index) {
	char text[TEXT];
	for (int number = 0; number < MOST; number++)
		if (version(number, text) && !index--)
			return number;
	return -1;
}

static int number_in(const void *device) {
	const char *one = device;
	return one >= devices && one < devices + MOST ? (int)(one - devices) : -1;
}

static int look(const void *device) {
	char text[TEXT];
	if (!users)
		return UNINITIALIZED;
	if (number_in(device) < 0)
		return INVALID_ARGUMENT;
	return version(number_in(device), text) ? SUCCESS : GPU_IS_LOST;
}

EXPORTED int nvmlInit_v2(void) {
	if (number_of(0) < 0)
		return DRIVER_NOT_LOADED;
	users++;
	return SUCCESS;
}

EXPORTED int nvmlShutdown(void) {
	if (!users)
		return UNINITIALIZED;
	users--;
	return SUCCESS;
}

EXPORTED const char *nvmlErrorString(int result) {
	switch (result) {
	case SUCCESS: return "Success";
	case UNINITIALIZED: return "Uninitialized";
	case INVALID_ARGUMENT: return "Invalid Argument";
	case NOT_FOUND: return "Not Found";
	case INSUFFICIENT_SIZE: return "Insufficient Size";
	case DRIVER_NOT_LOADED: return "Driver Not Loaded";
	case GPU_IS_LOST: return "GPU is lost";
	default: return "Unknown Error";
	}
}

EXPORTED int nvmlSystemGetDriverVersion(char *text, unsigned length) {
	char found[TEXT];
	if (!users)
		return UNINITIALIZED;
	return version(number_of(0), found) ? tell(found, text, length) : DRIVER_NOT_LOADED;
}

EXPORTED int nvmlDeviceGetCount_v2(unsigned *count) {
	if (!users)
		return UNINITIALIZED;
	if (!count)
		return INVALID_ARGUMENT;
	for (*count = 0; number_of(*count) >= 0;)
		++*count;
	return SUCCESS;
}

EXPORTED int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
	if (!users)
		return UNINITIALIZED;
	if (!device || number_of(index) < 0)
		return INVALID_ARGUMENT;
	*device = devices + number_of(index);
	return SUCCESS;
}

EXPORTED int nvmlDeviceGetUUID(void *device, char *text, unsigned length) {
	char said[TEXT];
	int result = look(device);
	if (result)
		return result;
	snprintf(said, sizeof said, "GPU-%08d-0000-0000-0000-000000000000", number_in(device));
	return tell(said, text, length);
}

EXPORTED int nvmlDeviceGetName(void *device, char *text, unsigned length) {
	int result = look(device);
	return result ? result : tell("stand-in", text, length);
}

EXPORTED int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory) {
	int result = look(device);
	if (result)
		return result;
	if (!memory)
		return INVALID_ARGUMENT;
	memory->total = memory->free = 80ULL << 30;
	memory->used = 0;
	return SUCCESS;
}
