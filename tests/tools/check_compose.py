"""Holds compose.yaml to the compose specification, to the Dockerfile and the configuration it mounts, and to what an operator expects of it.

    check_compose.py COMPOSE IBEX      IBEX is the binary, which has to accept what the services give it
"""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
# What .env holds; the values are nobody's.
DOT_ENV = {
    "POSTGRES_PASSWORD": "unused",
    "REDIS_PASSWORD": "unused",
    "IBEX_KEYS__TOKEN_DIGEST": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
    "OPENAI_API_KEY": "sk-unused",
}
# Capabilities with which an image's entry point becomes another account, and binds a low port.
BECOMING = {"CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID", "NET_BIND_SERVICE"}


def main(path, ibex):
    path = Path(path)
    subprocess.run([Path(sys.executable).with_name("check-jsonschema"), "--quiet", "--builtin-schema", "vendor.compose-spec", path], check=True)
    document = yaml.safe_load(path.read_text())
    services = interpolated(document, DOT_ENV)["services"]
    for name, service in services.items():
        hardened(name, service)
        dependencies(name, service, services, document)
    ours = {name: service for name, service in services.items() if "build" in service}
    for name, service in ours.items():
        the_server_takes_it(name, service, ibex)
    nothing_is_assumed(document)
    balancer(services)
    assert [service["command"] for service in ours.values() if "command" in service] == [["migrate"]]
    print(f"compose: {len(services)} services, {len(ours)} of them ibex")
    return 0


def interpolated(node, variables):
    """The document with its ${NAME}, ${NAME:-default} and ${NAME:?error}; $$ stays a dollar sign."""
    if isinstance(node, dict):
        return {key: interpolated(value, variables) for key, value in node.items()}
    if isinstance(node, list):
        return [interpolated(value, variables) for value in node]
    if not isinstance(node, str):
        return node

    def value(found):
        if found[0] == "$$":
            return "$"
        name, operator, text = found[1], found[2], found[3]
        if variables.get(name):
            return variables[name]
        assert operator != ":?", f"{name} {text}"
        return text or ""

    return re.sub(r"\$\$|\$\{(\w+)(?:(:-|:\?)([^}]*))?\}", value, node)


def nothing_is_assumed(document):
    """Without a .env nothing starts: there is no password that everybody knows."""
    for name in ("POSTGRES_PASSWORD", "REDIS_PASSWORD", "IBEX_KEYS__TOKEN_DIGEST"):
        try:
            interpolated(document["services"], {key: value for key, value in DOT_ENV.items() if key != name})
        except AssertionError as error:
            assert name in str(error)
        else:
            raise AssertionError(f"{name} has a default")


def hardened(name, service):
    assert service["read_only"] is True, f"{name}: the root can be written"
    assert service["cap_drop"] == ["ALL"] and set(service.get("cap_add", [])) <= BECOMING, f"{name}: capabilities"
    assert service["security_opt"] == ["no-new-privileges:true"], f"{name}: privileges can be gained"
    assert "privileged" not in service and "network_mode" not in service and "pid" not in service
    assert re.search(r":[0-9][^:/]*$", service["image"]), f"{name}: the image {service['image']} has no version"
    limits = service["deploy"]["resources"]["limits"]
    assert limits["memory"] and limits["cpus"], f"{name}: no limits"
    for port in service.get("ports", []):
        assert port.startswith("127.0.0.1:"), f"{name}: {port} is open to the network"
    for volume in service.get("volumes", []):
        if isinstance(volume, str) and volume.startswith("./"):
            source, _, mode = volume.split(":")
            assert (ROOT / source).is_file() and mode == "ro", f"{name}: {volume}"


def dependencies(name, service, services, document):
    once = service.get("restart") == "no"
    for other, how in service.get("depends_on", {}).items():
        condition = how["condition"]
        if condition == "service_healthy":
            # The image of ibex has a health check of its own.
            assert "healthcheck" in services[other] or "build" in services[other], f"{name} waits for {other}, which has no health check"
        else:
            assert condition == "service_completed_successfully" and services[other]["restart"] == "no", f"{name} waits for {other}"
    assert once or "build" in service or "healthcheck" in service, f"{name}: no health check"
    assert set(service.get("networks", [])) <= set(document["networks"])
    for volume in service.get("volumes", []):
        if isinstance(volume, str) and not volume.startswith("."):
            assert volume.split(":")[0] in document["volumes"], f"{name}: {volume}"


def the_server_takes_it(name, service, ibex):
    """The mounted file and the variables, over those of the image."""
    mounted = [volume.split(":") for volume in service["volumes"] if isinstance(volume, str)]
    file = next(source for source, target, _ in mounted if target == "/etc/ibex/ibex.toml")
    assert file == "./config/replicas.toml"
    image = dict(re.findall(r"(IBEX_\w+)=(\S+)", (ROOT / "Dockerfile").read_text()))
    assert image["IBEX_SERVER__LISTEN"] == "0.0.0.0:8080"
    env = image | {key: value for key, value in service["environment"].items() if value}
    done = subprocess.run([ibex, "check-config", "--config", ROOT / file], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{name}: the server refuses its configuration: {done.stdout}{done.stderr}"
    wrong = subprocess.run([ibex, "check-config", "--config", ROOT / file], env=env | {"IBEX_REDIS__URL": "x"}, capture_output=True, check=False)
    assert wrong.returncode == 1, "a misspelt variable is not noticed"
    drain = tomllib.loads((ROOT / file).read_text())["server"]["drain_timeout_ms"] / 1000
    drain += int(service["environment"]["IBEX_SERVER__DRAIN_DELAY_MS"]) / 1000
    assert int(service["stop_grace_period"].removesuffix("s")) >= drain + 10, f"{name}: killed before it has drained"


def balancer(services):
    """The servers of config/nginx.conf are services, and those alone are waited for."""
    servers = set(re.findall(r"^\s*server ([\w-]+):8080;", (ROOT / "config" / "nginx.conf").read_text(), re.MULTILINE))
    assert servers == set(services["balancer"]["depends_on"]), servers
    for name in servers:
        assert set(services[name]["networks"]) & set(services["balancer"]["networks"])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
