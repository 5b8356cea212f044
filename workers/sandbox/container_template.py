"""The template from which every container is created: user, limits, and what is visible inside.

`seccomp.json` lists the permitted system calls.
"""

import os
import secrets
from pathlib import Path
from typing import Any

from django.conf import settings
from docker.types import LogConfig, Ulimit

from workers.sandbox import ownership
from workers.sandbox.limits import DEFAULT_SHAPE, MEBIBYTE, Shape

# Limit, in seconds, on the runner's own CPU time, which it needs only to load code. The limit ends
# an endless loop in loaded code even if the worker was killed. Child processes that run user code
# are limited separately, to less time.
LIFETIME_CPU_SECONDS = 120
# Container user IDs: within the 65,536 IDs that a container gets if the engine uses user namespaces
# or runs rootless.
USER_IDS = range(10_000, 60_000)

SECCOMP_PROFILE = Path(__file__).with_name("seccomp.json")

_KERNEL = Path("/proc/sys/kernel")
# Kernel files to hide, since they describe the machine or its other users, or could be written to.
# This list replaces the engine's default list, so it begins with the engine's entries. Only the
# container's own control groups in /sys and the container's processes in /proc stay visible.
MASKED_PATHS = [
    *("/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats"),
    *("/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats"),
    "/sys/firmware",
    *("/dev/mqueue", "/dev/pts"),
    *("/proc/bootconfig", "/proc/buddyinfo", "/proc/bus", "/proc/cgroups", "/proc/cmdline"),
    *("/proc/config.gz", "/proc/consoles", "/proc/cpuinfo", "/proc/crypto", "/proc/devices"),
    *("/proc/diskstats", "/proc/dma", "/proc/driver", "/proc/execdomains", "/proc/fb"),
    *("/proc/filesystems", "/proc/fs", "/proc/interrupts", "/proc/iomem", "/proc/ioports"),
    *("/proc/irq", "/proc/kallsyms", "/proc/key-users", "/proc/kmsg", "/proc/kpagecgroup"),
    *("/proc/kpagecount", "/proc/kpageflags", "/proc/loadavg", "/proc/locks", "/proc/mdstat"),
    *("/proc/meminfo", "/proc/misc", "/proc/modules", "/proc/mtrr", "/proc/pagetypeinfo"),
    *("/proc/partitions", "/proc/pressure", "/proc/schedstat", "/proc/slabinfo"),
    *("/proc/softirqs", "/proc/stat", "/proc/swaps", "/proc/sysrq-trigger"),
    *("/proc/sysvipc", "/proc/tty", "/proc/uptime", "/proc/version", "/proc/version_signature"),
    *("/proc/vmallocinfo", "/proc/vmstat", "/proc/zoneinfo"),
    *("/sys/block", "/sys/bus", "/sys/class", "/sys/dev", "/sys/devices", "/sys/hypervisor"),
    *("/sys/kernel", "/sys/module", "/sys/power"),
    *("/sys/fs/bcachefs", "/sys/fs/bpf", "/sys/fs/btrfs", "/sys/fs/erofs", "/sys/fs/ext4"),
    *("/sys/fs/f2fs", "/sys/fs/fuse", "/sys/fs/nfs", "/sys/fs/nilfs2", "/sys/fs/ocfs2"),
    *("/sys/fs/pstore", "/sys/fs/resctrl", "/sys/fs/selinux", "/sys/fs/smackfs"),
    *("/sys/fs/tmpfs", "/sys/fs/virtiofs", "/sys/fs/xfs", "/sys/fs/zonefs"),
    # All of /proc/sys but cap_last_cap, which runc reads after it has hidden these (since 1.3.3).
    *("/proc/sys/abi", "/proc/sys/crypto", "/proc/sys/debug", "/proc/sys/dev", "/proc/sys/fs"),
    *("/proc/sys/net", "/proc/sys/sunrpc", "/proc/sys/user", "/proc/sys/vm", "/proc/sys/xen"),
    *(str(path) for path in sorted(_KERNEL.glob("*")) if path.name != "cap_last_cap"),
]

# File size limit, in bytes: user code may write no files, but crun itself writes one of a kilobyte
# under this limit.
CRUN_BYTES = 64 * 1024
# Limit on open files: crun itself opens every masked path under this limit. User code runs in child
# processes with a lower one.
CRUN_FILES = 512
# Maximum number of processes in a container: the runner, its fork and the engine need a few, and
# user code cannot start any.
PIDS = 32
# Number of processes and threads per container that gVisor itself needs.
PIDS_OF_GVISOR = 224
# gVisor masks no paths, describes the processors, lets a process open whatever another process of
# the same user has open, and has a writable /tmp. So we mount empty, read-only directories over
# these paths.
_HIDDEN = ("/proc", "/sys", "/tmp")  # noqa: S108  # nosec B108 # in the container
HIDDEN_UNDER_GVISOR = dict.fromkeys(_HIDDEN, "ro,size=4k")


def container_config(image: str, hash_seed: int, shape: Shape = DEFAULT_SHAPE) -> dict[str, Any]:
    """Return the template for all sandbox containers, in the format of the engine's API."""
    memory = shape.memory_mib * MEBIBYTE
    user_id = secrets.choice(USER_IDS)
    return {
        "Image": image,
        "User": f"{user_id}:{user_id}",
        "Env": [f"PYTHONHASHSEED={hash_seed}"],
        "Hostname": "sandbox",
        "Labels": {ownership.LABEL: ownership.owner(os.getpid())},
        "NetworkDisabled": True,
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "OpenStdin": True,
        "StdinOnce": True,
        "Tty": False,
        # Stop the runner with SIGKILL: it has nothing to save and, as the container's first
        # process, ignores milder signals, with which stopping or restarting the engine would take
        # ten seconds longer.
        "StopSignal": "SIGKILL",
        "HostConfig": {
            "Runtime": settings.UAC_SANDBOX_RUNTIME,  # "" means the engine's default runtime
            "NetworkMode": "none",
            "IpcMode": "none",
            "ReadonlyRootfs": True,
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges:true", f"seccomp={SECCOMP_PROFILE.read_text()}"],
            "MaskedPaths": MASKED_PATHS,
            # The other paths in the engine's own list of read-only paths are masked above; crun
            # would leave this path writable.
            "ReadonlyPaths": ["/sys/fs/cgroup"],
            "Tmpfs": HIDDEN_UNDER_GVISOR if is_gvisor() else {},
            "Memory": memory,
            "MemorySwap": memory,
            "PidsLimit": PIDS + (PIDS_OF_GVISOR if is_gvisor() else 0),
            "NanoCpus": 1_000_000_000,
            "OomScoreAdj": 500,
            "Ulimits": [
                Ulimit(name="cpu", soft=LIFETIME_CPU_SECONDS, hard=LIFETIME_CPU_SECONDS),
                Ulimit(name="core", soft=0, hard=0),
                Ulimit(name="fsize", soft=CRUN_BYTES, hard=CRUN_BYTES),
                Ulimit(name="nofile", soft=CRUN_FILES, hard=CRUN_FILES),
                Ulimit(name="msgqueue", soft=0, hard=0),
                Ulimit(name="memlock", soft=0, hard=0),
            ],
            "LogConfig": LogConfig(type=LogConfig.types.NONE),
            "RestartPolicy": {"Name": "no"},
        },
    }


def is_gvisor() -> bool:
    """Return whether the runtime is gVisor, by its name; each container still has to prove it."""
    return any(name in settings.UAC_SANDBOX_RUNTIME.lower() for name in ("runsc", "gvisor"))
