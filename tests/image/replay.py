"""Replays the Dockerfile without a container engine, then starts what came out of it the way a careful operator would.

    replay.py BINARY      as root, on the distribution of the builder image; BINARY is a build of this tree (make image gives the debug one)

What is real: the context (.dockerignore), every COPY, every RUN in a root of its own, and the finished file system, from which the server is
started as its numeric user, without capabilities, on a read-only root, with a fresh volume, in a network of its own. What stands in:

- for the builder image, this machine's own root under an overlay, so nothing that a step writes reaches it;
- for `cargo build`, a program that accepts exactly the command of the file, lets the real cargo read the manifest and lock file in the context,
  checks that the context has every file that went into BINARY (cargo's own list of them), and hands out BINARY. Only the optimiser is left out.
"""

import ctypes
import fcntl
import gzip
import json
import os
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import urllib.request
from pathlib import Path

import dockerfile

ROOT = Path(__file__).resolve().parents[2]
OURS = 65532
PR_SET_NO_NEW_PRIVS = 38
# Compressed, without the binary: so much of it would be a distribution.
MOST_BASE_BYTES = 4_000_000
# Compressed and in all. Held only against a release build, for a debug one is several times as large.
MOST_BYTES = 30_000_000

CARGO = """#!/bin/bash
set -euo pipefail
[ "$*" = "build --release --locked --bin ibex --features " ] || { echo "cargo was called with: $*" >&2; exit 1; }
[ "$CARGO_INCREMENTAL" = 0 ]
# It reads the manifest as a build would, and fails when a file that it names is not in the context.
"$REAL_CARGO" fetch --quiet --locked --offline
missing=0
while read -r file; do
  [ -e "$file" ] || { echo "not in the build context: $file" >&2; missing=1; }
done < /replay/sources
[ "$missing" = 0 ]
mkdir -p target/release
strip "$STRIP" -o target/release/ibex /replay/ibex
"""


def main(binary):
    lacking = what_is_lacking()
    if lacking:
        print(f"image: SKIPPED, replaying the Dockerfile needs {lacking}", file=sys.stderr)
        return 1 if os.environ.get("CI") else 0
    if "IBEX_REPLAY" not in os.environ:
        # What the real cargo reads below, while there is still a network.
        sh("cargo", "fetch", "--quiet", "--locked", cwd=ROOT)
        # Mounts, processes and network of its own: nothing is left behind, however this ends.
        alone = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, __file__, binary]
        return subprocess.run(alone, env=os.environ | {"IBEX_REPLAY": "1"}, check=False).returncode
    with tempfile.TemporaryDirectory(prefix="ibex-image-") as folder:
        sh("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", folder)
        try:
            replay(Path(folder), Path(binary).resolve())
        finally:
            sh("umount", "--recursive", "--lazy", folder)
    return 0


def what_is_lacking():
    """Why nothing can be replayed here. Where CI runs that is a failure."""
    release = Path("/etc/os-release")
    if os.geteuid() != 0:
        return "root, for mounts and accounts"
    if not release.exists() or "VERSION_CODENAME=bookworm" not in release.read_text():
        return "Debian 12, from which the builder image is made"
    return None


def replay(scratch, binary):
    # As an engine has it, whatever the caller's is.
    os.umask(0o022)
    build, image = dockerfile.read(ROOT / "Dockerfile")
    assert build.base.startswith("rust:1.95.0-slim-bookworm"), f"the builder is {build.base}: this replay knows Debian 12's"
    assert image.base == "scratch"
    context = build_context(scratch / "context")
    builder = overlay_of_this_machine(scratch)
    prepare_cargo(builder, binary, build)
    run_stage(build, builder, context, {})
    result = scratch / "image"
    result.mkdir()
    run_stage(image, result, context, {build.name: builder})
    check_tree(result)
    check_size(result)
    check_metadata(image)
    start(image, result)


# ---------------------------------------------------------------- The stages


def build_context(folder):
    """What .dockerignore lets through. The file is a list of exceptions from `*`, so what is new is kept out unless somebody adds it."""
    everything, *exceptions = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    assert everything == "*" and all(line.startswith("!") for line in exceptions), ".dockerignore is no list of exceptions from *"
    folder.mkdir()
    for name in (line[1:] for line in exceptions):
        copy(ROOT / name, folder / name)
    return folder


def overlay_of_this_machine(scratch):
    """The builder image's stand-in: Debian 12 with its compiler and certificates, as this machine has them."""
    for name in ("upper", "work", "builder"):
        (scratch / name).mkdir()
    layers = f"lowerdir=/,upperdir={scratch / 'upper'},workdir={scratch / 'work'}"
    sh("mount", "-t", "overlay", "-o", layers, "overlay", scratch / "builder")
    for name in ("proc", "dev"):
        sh("mount", "--rbind", f"/{name}", scratch / "builder" / name)
    return scratch / "builder"


def prepare_cargo(builder, binary, stage):
    """Puts the stand-in for cargo where a step finds it first."""
    folder = builder / "replay"
    (folder / "bin").mkdir(parents=True)
    shutil.copy2(binary, folder / "ibex")
    workdir = next(i.text for i in stage.instructions if i.name == "WORKDIR")
    listed = binary.with_name(binary.name + ".d").read_text().partition(":")[2].split()
    here = [Path(name).as_posix() for name in listed]
    tree = next(name for name in here if name.endswith("/src/main.rs")).removesuffix("/src/main.rs")
    assert all(name.startswith(tree + "/") for name in here), "the binary is made of files from outside the tree"
    (folder / "sources").write_text("".join(name.replace(tree, workdir, 1) + "\n" for name in here))
    (folder / "bin" / "cargo").write_text(CARGO)
    (folder / "bin" / "cargo").chmod(0o755)


def run_stage(stage, root, context, stages):
    """Carries out what changes the file system: RUN, COPY, WORKDIR and VOLUME."""
    arguments, shell, workdir = {}, ["/bin/sh", "-c"], "/"
    for step in stage.instructions:
        if step.name == "ARG":
            arguments.update([step.text.split("=", 1)])
        elif step.name == "SHELL":
            shell = step.words()
        elif step.name == "WORKDIR":
            workdir = step.text
            inside(root, workdir).mkdir(parents=True, exist_ok=True)
        elif step.name == "VOLUME":
            assert inside(root, step.text).is_dir(), f"nothing is at {step.text} that a volume could take its owner from"
        elif step.name == "COPY":
            copy_step(step, root, workdir, context, stages)
        elif step.name == "RUN":
            print(f"    RUN {step.text[:100]}...")
            run(root, workdir, [*shell, step.text], arguments)


def run(root, workdir, command, arguments):
    """One RUN in its root, with the build's arguments and nothing else of this process's environment."""
    strip = tomllib.loads((ROOT / "Cargo.toml").read_text())["profile"]["release"]["strip"]
    variables = arguments | {
        "PATH": "/replay/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "REAL_CARGO": tool("cargo"),
        "RUSTC": tool("rustc"),
        # The builder keeps downloads in a cache mount; here they are where this machine's cargo keeps its own.
        "CARGO_HOME": os.environ.get("CARGO_HOME", str(Path.home() / ".cargo")),
        "STRIP": {"debuginfo": "--strip-debug", "symbols": "--strip-all"}[strip],
    }
    sh("chroot", root, "/usr/bin/env", "--chdir", workdir, *command, env=variables)


def tool(name):
    """The program itself, not the one that chooses a toolchain by the account's settings."""
    chosen = subprocess.run(["rustup", "which", name], capture_output=True, text=True, check=False) if shutil.which("rustup") else None
    return chosen.stdout.strip() if chosen and chosen.returncode == 0 else shutil.which(name)


def copy_step(step, root, workdir, context, stages):
    """COPY: owners are 0:0 unless it says otherwise, modes stay unless it says so."""
    *sources, target = step.words()
    origin = stages[step.flags["from"][0]] if "from" in step.flags else context
    owner = [int(number) for number in step.flags.get("chown", ["0:0"])[0].split(":")]
    several = len(sources) > 1 or target.endswith("/") or target == "."
    for source in sources:
        place = inside(root, os.path.join(workdir, target))
        start_from = inside(origin, source)
        if start_from.is_file() and (several or place.is_dir()):
            place = place / start_from.name
        copy(start_from, place)
        for path in ([place] if start_from.is_file() else copied(start_from, place)):
            mode = path.lstat().st_mode
            os.chown(path, *owner, follow_symlinks=False)
            if not path.is_symlink():
                # Said again because a new owner takes the set-id bits away, which an engine keeps.
                path.chmod(int(step.flags["chmod"][0], 8) if "chmod" in step.flags else stat.S_IMODE(mode))


def copied(source, place):
    """What a copy of the folder made in `place`; the folder itself was there or is the parent's."""
    return [place / path.relative_to(source) for path in source.rglob("*")]


def copy(source, place):
    if source.is_dir():
        shutil.copytree(source, place, symlinks=True, dirs_exist_ok=True)
    else:
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, place)


def inside(root, path):
    return root / path.lstrip("/")


# ---------------------------------------------------------------- What came out


def check_tree(root):
    """Everything is root's and not to be written by others, but for the one folder of state; there is no shell and no special file."""
    allowed = ("etc/", "lib/", "lib64/", "usr/local/bin/ibex", "usr/share/doc/", "var/lib/dpkg/status.d/")
    for path in sorted(root.rglob("*")):
        name, status = path.relative_to(root).as_posix(), path.lstat()
        where = f"/{name} ({stat.filemode(status.st_mode)} {status.st_uid}:{status.st_gid})"
        if name == "var/lib/ibex":
            assert (status.st_uid, status.st_gid, status.st_mode) == (OURS, OURS, stat.S_IFDIR | 0o700), f"state: {where}"
            continue
        assert (status.st_uid, status.st_gid) == (0, 0), f"not root's: {where}"
        assert not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH | stat.S_ISUID | stat.S_ISGID), f"mode: {where}"
        assert stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode), f"neither folder nor file: {where}"
        assert stat.S_ISDIR(status.st_mode) or name.startswith(allowed), f"nobody asked for it: {where}"
    for name in ("libc6", "libgcc-s1", "ca-certificates"):
        assert f"Package: {name}\n" in inside(root, f"/var/lib/dpkg/status.d/{name}").read_text(), f"no record of {name}"
        assert inside(root, f"/usr/share/doc/{name}/copyright").stat().st_size > 0
    assert inside(root, "/usr/share/doc/ibex/copyright").read_text() == (ROOT / "LICENSE").read_text()
    assert "BEGIN CERTIFICATE" in inside(root, "/etc/ssl/certs/ca-certificates.crt").read_text()
    sections = subprocess.check_output(["readelf", "--section-headers", "--wide", inside(root, "/usr/local/bin/ibex")], text=True)
    assert ".debug_info" not in sections, "the binary holds debugging information"


def check_size(root):
    binary = inside(root, "/usr/local/bin/ibex")
    base, program = compressed(root, lambda name: name != "usr/local/bin/ibex"), compressed(root, lambda name: name == "usr/local/bin/ibex")
    print(f"    compressed: {base / 1e6:.1f} MB beside the binary, {program / 1e6:.1f} MB for this binary of {binary.stat().st_size / 1e6:.1f} MB")
    assert base <= MOST_BASE_BYTES, "the image has more than a C library and certificates"
    assert os.environ.get("IBEX_REPLAY_RELEASE") is None or base + program <= MOST_BYTES, "the image is too large"


def compressed(root, wanted):
    """Bytes of those files as a layer is pushed: tar, gzip."""
    with tempfile.TemporaryFile() as file:
        with gzip.GzipFile(fileobj=file, mode="wb", compresslevel=6) as packed, tarfile.open(fileobj=packed, mode="w|") as tar:
            for path in sorted(root.rglob("*")):
                if path.is_file() and wanted(path.relative_to(root).as_posix()):
                    tar.add(path, path.relative_to(root), recursive=False)
        return file.tell()


def check_metadata(image):
    assert image.last("USER").text == f"{OURS}:{OURS}", "a name would not satisfy runAsNonRoot"
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["package"]["version"]
    assert {i.text for i in image.instructions if i.name == "ARG"} >= {f"VERSION={version}"}, "VERSION is not the crate's"
    assert image.last("VOLUME").text == "/var/lib/ibex"


# ---------------------------------------------------------------- Starting it


def start(image, root):
    """Init, serve, the health check, a request, the stop signal."""
    volume = inside(root, image.last("VOLUME").text)
    loopback_up()
    sh("mount", "--bind", root, root)
    sh("mount", "-o", "remount,bind,ro", root)
    sh("mount", "-t", "tmpfs", "-o", f"mode=700,uid={OURS},gid={OURS}", "tmpfs", volume)
    entry, command = image.last("ENTRYPOINT").words(), image.last("CMD").words()
    probe = json.loads(image.last("HEALTHCHECK").text.removeprefix("CMD "))

    created = json.loads(subprocess.check_output(**contained(image, root, [*entry, "init", "--json"])))
    assert created["token"].startswith("ibex_pat_")
    alone = subprocess.run(**contained(image, root, probe), check=False).returncode
    assert alone == 1, f"the health check exits with {alone} where no server is, and not with 1"
    with subprocess.Popen(**contained(image, root, [*entry, *command]), stderr=subprocess.PIPE) as server:
        try:
            observe(image, root, server, probe)
        finally:
            server.kill()
    assert sorted(path.name for path in volume.iterdir()) == ["ibex.db", "ibex.db.keys"], "state is elsewhere, or was not closed"
    print(f"image: starts as {OURS} on a read-only root, is healthy, stops with 0")


def loopback_up():
    """A new network has its loopback down, and not every machine has a command for it."""
    set_flags, up = 0x8914, 1
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, set_flags, struct.pack("16sh", b"lo", up))


def observe(image, root, server, probe):
    """A running server, from outside and from inside, until it was told to stop."""
    for line in server.stderr:
        if json.loads(line)["message"] == "listening":
            break
    assert server.poll() is None, "the server ended"
    subprocess.run(**contained(image, root, probe), check=True)
    with urllib.request.urlopen(f"http://127.0.0.1:{image.last('EXPOSE').text}/health", timeout=5) as answer:
        assert json.load(answer)["status"] == "ok"
    status = Path(f"/proc/{server.pid}/status").read_text()
    for line in (f"Uid:\t{OURS}\t{OURS}", f"Gid:\t{OURS}\t{OURS}", "CapEff:\t0000000000000000", "NoNewPrivs:\t1"):
        assert line in status, status
    server.send_signal(signal.Signals[image.last("STOPSIGNAL").text])
    server.stderr.read()
    assert server.wait() == 0, "it did not stop cleanly"


def contained(image, root, command):
    """How an engine starts a command: as the image's user, in its folder, with its variables, unable to gain rights."""
    user, group = (int(number) for number in image.last("USER").text.split(":"))

    def enter():
        ctypes.CDLL(None).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        os.chroot(root)
        os.chdir(image.last("WORKDIR").text)
        os.setgroups([])
        os.setresgid(group, group, group)
        os.setresuid(user, user, user)

    return {"args": command, "env": image.environment() | {"OPENAI_API_KEY": "sk-nobody"}, "preexec_fn": enter, "text": True}


def sh(*command, **options):
    subprocess.run(command, check=True, **options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
