"""What the load tests read from the machine: processor time, memory, descriptors and threads of processes, what else kept the cores busy, and quantiles.

Linux only; everything comes from /proc and from the clocks of processes.
"""

import ctypes
import hashlib
import math
import os
import pathlib
import platform
import re
import subprocess
import time

# The share of its requests that a percentile may leave out, down to one in ten thousand.
CURVE = (0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995, 0.9999)
# A percentile is told when at least so many requests lie beyond it; with fewer it is chance.
BEYOND = 2


# ---------------------------------------------------------------- Processes

def tree(process):
    """A process and all that descend from it."""
    found, left = [], [process]
    while left:
        each = left.pop()
        found.append(each)
        try:
            for thread in os.listdir(f"/proc/{each}/task"):
                left += map(int, pathlib.Path(f"/proc/{each}/task/{thread}/children").read_text().split())
        except OSError:
            pass
    return found


def cpu_s(process):
    """Processor seconds that a process used so far, threads that have ended included; 0 when it is gone."""
    try:
        # The kernel's name for the processor clock of another process: its id inverted, over the bits for "whole process, exact".
        return time.clock_gettime((~process << 3) | 2)
    except OSError:
        return 0.0


def tree_cpu_s(process):
    """The same of a process and its descendants."""
    return sum(map(cpu_s, tree(process)))


def status(process, field):
    """A figure of /proc/PID/status, in its own unit; 0 when the process is gone."""
    try:
        found = re.search(rf"^{field}:\s+(\d+)", pathlib.Path(f"/proc/{process}/status").read_text(), re.M)
    except OSError:
        return 0
    return int(found[1]) if found else 0


def resident_kb(process):
    """Resident memory of a process and its descendants, in KiB."""
    return sum(status(each, "VmRSS") for each in tree(process))


def peak_kb(process):
    """The most it was since `forget_peak`, in KiB. Of several processes the sum of their own peaks."""
    return sum(status(each, "VmHWM") for each in tree(process))


def forget_peak(process):
    """Lets the peak begin at what is resident now."""
    for each in tree(process):
        try:
            pathlib.Path(f"/proc/{each}/clear_refs").write_text("5")
        except OSError:
            pass


def descriptors(process):
    """-> (open file descriptors, those of them that are no connection with a peer at its other end).

    A connection whose peer has gone and that is still open here counts among the latter: that is what a leak looks like, and a burst of clients does not.
    """
    try:
        links = [os.readlink(f"/proc/{process}/fd/{name}") for name in os.listdir(f"/proc/{process}/fd")]
    except OSError:
        return 0, 0
    live = set()
    for line in pathlib.Path(f"/proc/{process}/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == ESTABLISHED:
            live.add(f"socket:[{fields[9]}]")
    return len(links), sum(link not in live for link in links)


# The state of a connection in /proc/net/tcp.
ESTABLISHED = "01"


# ---------------------------------------------------------------- Cores

def core_busy_s(core):
    """Seconds that a core was not idle since the machine started, with the time that its host took."""
    for line in pathlib.Path("/proc/stat").read_text().splitlines():
        name, *ticks = line.split()
        if name == f"cpu{core}":
            ticks = list(map(int, ticks))
            return (sum(ticks[:8]) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")
    return 0.0


class Cores:
    """Which part runs on which core. With two, the target has one and everything that measures has the other; with one, nothing is pinned."""

    def __init__(self, target=None, driver=None, provider=None):
        have = sorted(os.sched_getaffinity(0))
        self.all = set(have)
        self.target = have[0] if target is None else target
        self.driver = have[min(1, len(have) - 1)] if driver is None else driver
        self.provider = have[min(2, len(have) - 1)] if provider is None else provider
        self.pinned = len(have) > 1 and self.target != self.driver
        self.shared = self.driver == self.provider

    def command(self, core, command):
        """A command that runs on that core."""
        return ["taskset", "-c", str(core), *command] if self.pinned else list(command)

    def take(self):
        """Puts this process on the driver's core."""
        if self.pinned:
            os.sched_setaffinity(0, {self.driver})

    def leave(self):
        """Lets this process, and what it starts from now on, run everywhere."""
        os.sched_setaffinity(0, self.all)

    def text(self):
        """For people."""
        if not self.pinned:
            return "nothing pinned: there is one core for everything"
        return f"target on core {self.target}, driver on core {self.driver}, provider on core {self.provider}"


# ---------------------------------------------------------------- Figures

def quantile(ordered, share):
    """The smallest value that so large a share of an ordered list does not exceed."""
    return ordered[min(max(math.ceil(share * len(ordered)) - 1, 0), len(ordered) - 1)]


def curve(values, factor=1000.0):
    """-> {share: value times factor} for as many percentiles as the number of values bears, and the greatest as "max"."""
    if not values:
        return {}
    ordered = sorted(values)
    shares = [share for share in CURVE if share <= 0.5 or (1 - share) * len(ordered) >= BEYOND]
    return {**{str(share): round(quantile(ordered, share) * factor, 4) for share in map(float, shares)}, "max": round(ordered[-1] * factor, 4)}


def slope(points):
    """Theil-Sen: the median of the slopes between all pairs of (time, value), which a few wild values do not move."""
    if len(points) > 400:
        points = points[::len(points) // 400 + 1]
    found = sorted((b[1] - a[1]) / (b[0] - a[0]) for at, a in enumerate(points) for b in points[at + 1:] if b[0] != a[0])
    return found[len(found) // 2] if found else 0.0


def median(values):
    """The middle one, or 0 of none."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if ordered else 0


def samples(text, *names):
    """-> {sample: value} of a page of metrics, for those whose names begin with one of these."""
    found = {}
    for line in text.splitlines():
        if line.startswith(names):
            name, _, value = line.rpartition(" ")
            found[name] = float(value)
    return found


# ---------------------------------------------------------------- What was measured with

def first_line(*command):
    """What a program says about itself, or nothing when it is not there."""
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ((told.stdout or told.stderr).splitlines() or [""])[0].strip()


def binary(path):
    """Which build it is: its version, the beginning of its digest, and the commit of the tree that it lies in, if any.

    The commit is that of the sources now; a binary built before the last commit is told by its digest alone.
    """
    file = pathlib.Path(path).resolve()
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()[:16]
    commit = first_line("git", "-C", str(file.parent), "log", "-1", "--format=%h %cs")
    return {"version": first_line(str(file), "--version"), "sha256": digest, "commit_of_its_tree": "" if commit.startswith("fatal") else commit,
            "built": time.strftime("%Y-%m-%d %H:%M", time.gmtime(file.stat().st_mtime)) + " UTC"}


def machine(cores):
    """Cores, kernel, versions."""
    info = pathlib.Path("/proc/cpuinfo").read_text()
    model = re.search(r"^model name\s*:\s*(.*)$", info, re.M)
    memory = re.search(r"^MemTotal:\s+(\d+)", pathlib.Path("/proc/meminfo").read_text(), re.M)
    return {"processor": model[1] if model else platform.machine(), "cores": len(cores.all), "placement": cores.text(),
            "memory_mib": int(memory[1]) // 1024, "kernel": platform.release(), "libc": " ".join(platform.libc_ver()),
            "python": platform.python_version(), "nginx": first_line("nginx", "-v"), "load_average": os.getloadavg()[0]}


# ---------------------------------------------------------------- A timer

class Timer:
    """Wakes the event loop at a moment, to some ten microseconds. The loop's own timers are rounded up to a millisecond, which is more than a hop takes."""

    class _Spec(ctypes.Structure):
        _fields_ = [(name, ctypes.c_long) for name in ("every_s", "every_ns", "at_s", "at_ns")]

    _CLOEXEC_NONBLOCK = 0o2004000
    _ABSOLUTE = 1

    def __init__(self, loop, called):
        self.loop, self.called = loop, called
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.file = self.libc.timerfd_create(time.CLOCK_MONOTONIC, self._CLOEXEC_NONBLOCK)
        if self.file < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        loop.add_reader(self.file, self._woken)

    def at(self, moment):
        """Calls at that moment of `time.monotonic`; one that has passed already is at once."""
        spec = self._Spec(0, 0, int(moment), max(int(moment % 1 * 1e9), 1))
        self.libc.timerfd_settime(self.file, self._ABSOLUTE, ctypes.byref(spec), None)

    def _woken(self):
        try:
            os.read(self.file, 8)
        except BlockingIOError:
            return
        self.called()

    def close(self):
        """No more calls."""
        self.loop.remove_reader(self.file)
        os.close(self.file)
