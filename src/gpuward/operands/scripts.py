"""Shell scripts that operands run, handed to their pods in ConfigMaps.

They are gpuward's own texts of the behaviour that the operands' images expect of NVIDIA's operator. Pods mount them one file at
a time, so a changed text reaches a pod only when the pod is replaced, and replaces none.
"""

from __future__ import annotations

_VALIDATIONS = "/run/nvidia/validations"

_AFTER_DRIVER = f"""\
#!/bin/sh
# Wait until the driver is validated, then take over what the validator found out about it.
facts={_VALIDATIONS}/driver-ready
while [ ! -f "$facts" ]; do
  echo "$facts does not exist yet: the driver is not validated"
  sleep 5
done
echo "driver facts from $facts:"
cat "$facts"
set -a
. "$facts"
set +a
"""

TOOLKIT_ENTRYPOINT = _AFTER_DRIVER + """\

# The installer restarts the container runtime. Some containerd 1.6 releases then stop this container again shortly after
# it came back; a pause before the next restart keeps that from becoming a crash loop.
sleep 5
exec nvidia-toolkit
"""

DEVICE_PLUGIN_ENTRYPOINT = _AFTER_DRIVER + """\

# A feature whose kernel module is loaded is offered to containers unless a variable says otherwise.
loaded() {
  grep -q "^$1 " /proc/modules
}
if loaded gdrdrv; then
  export GDRCOPY_ENABLED="${GDRCOPY_ENABLED:-true}"
fi
if loaded nvidia_fs; then
  export GDS_ENABLED="${GDS_ENABLED:-true}"
  export MOFED_ENABLED="${MOFED_ENABLED:-true}"
fi
exec nvidia-device-plugin
"""

MIG_MANAGER_ENTRYPOINT = _AFTER_DRIVER + """\

# With a driver on the host, services of the host hold the GPUs: the manager must stop them before it changes the layout.
export WITH_SHUTDOWN_HOST_GPU_CLIENTS="$IS_HOST_DRIVER"
exec nvidia-mig-manager
"""

DRIVER_STARTUP_PROBE = f"""\
#!/bin/sh
# Succeed once the driver works, and then say so to the pods that wait for it.
set -eu
dir={_VALIDATIONS}
mkdir -p "$dir"

fail() {{
  echo "$1"
  exit 1
}}

[ -f /sys/module/nvidia/refcnt ] || fail "the nvidia kernel module is not loaded"
if [ -f "$dir/.driver-daemons-status" ]; then
  status=$(cat "$dir/.driver-daemons-status")
  [ "$status" = Ready ] || fail "the driver's daemons are not ready: $status"
fi
nvidia-smi || fail "nvidia-smi does not work"

# Readers must never see half a file.
{{
  echo "GDRCOPY_ENABLED: ${{GDRCOPY_ENABLED:-false}}"
  echo "GDS_ENABLED: ${{GDS_ENABLED:-false}}"
  echo "GPU_DIRECT_RDMA_ENABLED: ${{GPU_DIRECT_RDMA_ENABLED:-false}}"
}} > "$dir/.driver-ctr-ready.new"
mv "$dir/.driver-ctr-ready.new" "$dir/.driver-ctr-ready"
"""
