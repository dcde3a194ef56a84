// Lists GPUs by NVML, one a line: UUID, name and bytes of memory. It loads the library as NVIDIA's programs do, by its name alone.
#include <dlfcn.h>
#include <stdio.h>

struct memory {
	unsigned long long total, free, used;
};

static int (*initialize)(void), (*finish)(void), (*count_all)(unsigned *), (*handle_of)(unsigned, void **);
static int (*uuid_of)(void *, char *, unsigned), (*name_of)(void *, char *, unsigned), (*memory_of)(void *, struct memory *);
static const char *(*words_for)(int);

static void *find(void *library, const char *name) {
	void *found = dlsym(library, name);
	if (!found)
		fprintf(stderr, "%s\n", dlerror());
	return found;
}

static int link_all(void *library) {
	return (words_for = find(library, "nvmlErrorString")) && (initialize = find(library, "nvmlInit_v2")) &&
		(finish = find(library, "nvmlShutdown")) && (count_all = find(library, "nvmlDeviceGetCount_v2")) &&
		(handle_of = find(library, "nvmlDeviceGetHandleByIndex_v2")) && (uuid_of = find(library, "nvmlDeviceGetUUID")) &&
		(name_of = find(library, "nvmlDeviceGetName")) && (memory_of = find(library, "nvmlDeviceGetMemoryInfo"));
}

static int print(unsigned index) {
	void *device;
	char uuid[96], name[96];
	struct memory memory;
	int result = handle_of(index, &device);
	if (!result)
		result = uuid_of(device, uuid, sizeof uuid);
	if (!result)
		result = name_of(device, name, sizeof name);
	if (!result)
		result = memory_of(device, &memory);
	if (!result)
		printf("%s\t%s\t%llu\n", uuid, name, memory.total);
	return result;
}

int main(void) {
	void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	if (!link_all(library))
		return 1;
	unsigned count = 0;
	int result = initialize();
	if (!result)
		result = count_all(&count);
	for (unsigned index = 0; !result && index < count; index++)
		result = print(index);
	if (result)
		fprintf(stderr, "NVML: %s\n", words_for(result));
	else
		finish();
	return result != 0;
}
