"""Renders a Helm chart with Helm's own engine over its profiles and options, and holds the manifests to what a cluster and an operator need.

    check_chart.py CHART IBEX      IBEX is the binary, which has to accept the rendered configuration
"""

import itertools
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import helm_python as helm
import jsonschema
import kubernetes_validate
import yaml

ROOT = Path(__file__).resolve().parents[2]
# The oldest that Chart.yaml allows, and the newest whose schemas are at hand.
KUBERNETES = ["1.30", "1.37"]
MONITORING = {"alerts.yaml": "prometheusRule", "dashboard.json": "dashboard"}
# What a deployment's Secret holds; the values are nobody's.
SECRET = {
    "IBEX_POSTGRES__URL": "postgres://ibex:unused@db:5432/ibex",
    "IBEX_REDIS__URLS": "redis://cache:6379",
    "IBEX_KEYS__TOKEN_DIGEST": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
    "OPENAI_API_KEY": "sk-unused",
}
# What the chart sets by variables, so that it is in no profile's file.
OURS = {("env",), ("server", "listen"), ("server", "drain_timeout_ms"), ("server", "drain_delay_ms"), ("log", "format"), ("store", "path")}

# Options that somebody may set, each alone and all together, over every profile.
OPTIONS = {
    "network policy": {"networkPolicy": {"enabled": True, "ingressFrom": [{"namespaceSelector": {}}], "egressPorts": []}},
    "ingress": {"ingress": {"enabled": True, "className": "nginx", "hosts": ["ibex.example"],
                            "tls": [{"secretName": "ibex-tls", "hosts": ["ibex.example"]}]}, "networkPolicy": {"ingressFrom": [{"namespaceSelector": {}}]}},
    "service monitor": {"serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}}, "networkPolicy": {"ingressFrom": [{"namespaceSelector": {}}]},
                        "resources": {"requests": {"cpu": 1}}},
    "names": {"fullnameOverride": "memory-proxy", "nameOverride": "proxy", "serviceAccount": {"create": False, "name": "given"}},
    "image": {"image": {"repository": "registry.example/ibex", "digest": "sha256:" + "0" * 64}, "imagePullSecrets": [{"name": "pull"}]},
    "extras": {
        "extraEnv": [{"name": "IBEX_LOG_LEVEL", "value": "debug"}], "extraEnvFrom": [{"secretRef": {"name": "more"}}],
        "extraVolumes": [{"name": "ca", "configMap": {"name": "ca"}}], "extraVolumeMounts": [{"name": "ca", "mountPath": "/etc/ca"}],
    },
    "scheduling": {
        "nodeSelector": {"disk": "fast"}, "tolerations": [{"key": "proxy", "operator": "Exists"}], "priorityClassName": "high",
        "affinity": {"nodeAffinity": {}}, "podAnnotations": {"note": "x"}, "podLabels": {"team": "x"}, "secret": {"generation": "2"},
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}],
    },
    "drain": {"drain": {"delaySeconds": 20, "timeoutSeconds": 600}},
    "service": {"service": {"type": "LoadBalancer", "port": 8080, "annotations": {"note": "x"}}},
}
ONLY = {
    "embedded": {
        "claim": {"persistence": {"existingClaim": "kept"}},
        "storage": {"persistence": {"storageClass": "fast", "size": "1Ti", "whenDeleted": "Delete"}},
    },
    "replicas": {
        "autoscaling": {"autoscaling": {"enabled": True}},
        "bare": {"migration": {"enabled": False}, "podDisruptionBudget": {"enabled": False}},
        "owner": {"migration": {"existingSecret": "ibex-owner"}},
    },
}
# Values that the schema has to refuse, by the word that its message names.
REFUSED = {
    "replicaCount": {"replicaCount": 3},
    "existingSecrt": {"secret": {"existingSecrt": "ibex"}},
    "mode": {"mode": "clustered"},
    "existingSecret": {"mode": "replicas"},
    "autoscaling": {"autoscaling": {"enabled": True}},
    "hosts": {"ingress": {"enabled": True}},
    "digest": {"image": {"digest": "latest"}},
    "ingressFrom": {"networkPolicy": {"enabled": True}, "serviceMonitor": {"enabled": True}},
    "timeoutSeconds": {"drain": {"timeoutSeconds": "30s"}},
}

# The Prometheus operator's objects, as much as the chart makes of them: it ships no schema that could be had offline.
METADATA = {"type": "object", "required": ["name", "labels"]}
CUSTOM = {
    "ServiceMonitor": {
        "type": "object", "additionalProperties": False, "required": ["apiVersion", "kind", "metadata", "spec"],
        "properties": {
            "apiVersion": {"const": "monitoring.coreos.com/v1"}, "kind": {}, "metadata": METADATA,
            "spec": {
                "type": "object", "additionalProperties": False, "required": ["selector", "endpoints", "jobLabel"],
                "properties": {
                    "jobLabel": {"const": "app.kubernetes.io/name"},
                    "selector": {"type": "object", "additionalProperties": False, "properties": {"matchLabels": {"type": "object"}}},
                    "endpoints": {"type": "array", "minItems": 1, "items": {
                        "type": "object", "additionalProperties": False, "properties": {"port": {"const": "http"}, "path": {"const": "/metrics"},
                                                                                        "interval": {"type": "string"}}}},
                },
            },
        },
    },
    "PrometheusRule": {
        "type": "object", "additionalProperties": False, "required": ["apiVersion", "kind", "metadata", "spec"],
        "properties": {
            "apiVersion": {"const": "monitoring.coreos.com/v1"}, "kind": {}, "metadata": METADATA,
            "spec": {"type": "object", "additionalProperties": False, "required": ["groups"], "properties": {"groups": {
                "type": "array", "minItems": 1, "items": {
                    "type": "object", "additionalProperties": False, "required": ["name", "rules"],
                    "properties": {"name": {"type": "string"}, "interval": {"type": "string"}, "rules": {"type": "array", "minItems": 1, "items": {
                        "type": "object", "additionalProperties": False, "required": ["expr"],
                        "properties": {"alert": {"type": "string"}, "record": {"type": "string"}, "expr": {"type": "string"},
                                       "for": {"type": "string"}, "keep_firing_for": {"type": "string"},
                                       "labels": {"type": "object"}, "annotations": {"type": "object"}}}}}}}}},
        },
    },
}


SEEN = {}


class Faults(Exception):
    """What is wrong with a rendering, a line each."""


def main(folder, ibex):
    folder = Path(folder)
    lint(folder)
    cases = manifests = 0
    with helm.Chart.load(str(folder)) as chart:
        refusals(chart)
        every_value_is_in_the_schema(folder)
        profiles = {path.stem: yaml.safe_load(path.read_text()) for path in sorted((folder / "profiles").glob("*.yaml"))}
        for profile, values in profiles.items():
            for name, options in combinations(values.get("mode", "embedded"), monitoring(folder)):
                whole = merged(values, options)
                try:
                    objects = rendered(chart, whole)
                    check(objects, whole)
                except (Faults, AssertionError, helm.HelmError) as error:
                    print(f"chart: {profile} with {name}: {error}", file=sys.stderr)
                    return 1
                cases, manifests = cases + 1, manifests + len(objects)
            the_server_takes_it(chart, values, ibex)
            a_changed_configuration_starts_new_pods(chart, values)
        same_as_the_file(profiles["replicas"], ROOT / "config" / "replicas.toml")
    print(f"chart: {cases} combinations of values, {manifests} manifests, valid in Kubernetes {' and '.join(KUBERNETES)}")
    return 0


def lint(folder):
    # 1 is advice, such as a missing icon.
    serious = [message["error"] for message in helm.lint(str(folder))["messages"] if message["severity"] > 1]
    assert not serious, f"lint: {serious}"


def monitoring(folder):
    """The options that need files of the chart, which are those of config/monitoring."""
    options = {}
    for name, option in MONITORING.items():
        original, ours = ROOT / "config" / "monitoring" / name, folder / "files" / name
        if original.exists():
            assert ours.exists() and ours.read_bytes() == original.read_bytes(), f"{ours} is not {original}"
        if ours.exists():
            options[option] = {option: {"enabled": True}}
    return options


def combinations(mode, files):
    """(name, values): no option, each alone, all but one, all."""
    options = {**OPTIONS, **ONLY[mode], **files}
    for names in itertools.chain([()], *(itertools.combinations(options, n) for n in (1, len(options) - 1, len(options)))):
        values = {}
        for name in names:
            values = merged(values, options[name])
        yield ", ".join(names) or "no options", values


def merged(under, over):
    """Two sets of values as Helm puts them together: objects key by key, anything else replaced."""
    result = dict(under)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if both else value
    return result


def rendered(chart, values):
    """The manifests, valid against the schemas of their kinds."""
    chart.validate_schema(values)
    texts = chart.render(values, name="ibex", namespace="default")
    objects = [(template, manifest) for template, text in sorted(texts.items()) if template.endswith(".yaml")
               for manifest in yaml.safe_load_all(text) if manifest]
    faults = [f"{template}: {fault}" for template, manifest in objects for fault in invalid(manifest)]
    if faults:
        raise Faults("; ".join(faults))
    return [manifest for _, manifest in objects]


def invalid(manifest):
    """The faults of a manifest. Most of them come again and again, so each is looked at once."""
    text = json.dumps(manifest, sort_keys=True)
    if text not in SEEN:
        SEEN[text] = list(against_schemas(manifest))
    return SEEN[text]


def against_schemas(manifest):
    if manifest["kind"] in CUSTOM:
        for error in jsonschema.Draft202012Validator(CUSTOM[manifest["kind"]]).iter_errors(manifest):
            yield f"{error.json_path}: {error.message}"
        return
    for version in KUBERNETES:
        try:
            kubernetes_validate.validate(manifest, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            yield f"{version}: {'.'.join(map(str, error.path))}: {error.message}"


# ---------------------------------------------------------------- What has to be true of every rendering


def check(objects, values):
    names = [(o["kind"], o["metadata"]["name"]) for o in objects]
    assert len(names) == len(set(names)), f"two objects of one name: {sorted(names)}"
    assert "Secret" not in {kind for kind, _ in names}, "a secret is rendered"
    pods = [pod(o) for o in objects if o["kind"] in ("Deployment", "StatefulSet", "Job", "Pod")]
    for template in pods:
        no_more_rights_than_needed(template)
    server = one(objects, "Deployment" if values.get("mode") == "replicas" else "StatefulSet")
    a_stop_loses_nothing(server["spec"]["template"], values)
    probes(server["spec"]["template"]["spec"]["containers"][0])
    selectors(objects, server)
    replicas_are_replicas(objects, server, values)
    names_lead_somewhere(objects, pods, values)


def one(objects, kind):
    found = [o for o in objects if o["kind"] == kind]
    assert len(found) == 1, f"{len(found)} objects of kind {kind}"
    return found[0]


def some(objects, kind):
    return [o for o in objects if o["kind"] == kind]


def pod(manifest):
    return manifest if manifest["kind"] == "Pod" else manifest["spec"]["template"]


def no_more_rights_than_needed(template):
    spec = template["spec"]
    assert spec["automountServiceAccountToken"] is False and spec["enableServiceLinks"] is False, "the pod can see the cluster"
    outer = spec["securityContext"]
    assert outer["runAsNonRoot"] is True and outer["runAsUser"] == 65532 and outer["seccompProfile"] == {"type": "RuntimeDefault"}, outer
    assert not any(spec.get(name) for name in ("hostNetwork", "hostPID", "hostIPC")), "the pod shares the node's namespaces"
    for container in [*spec["containers"], *spec.get("initContainers", [])]:
        inner = container["securityContext"]
        assert inner == {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}, inner
        assert "memory" in container["resources"]["limits"] and "cpu" in container["resources"]["requests"], "no resources"
        assert re.search(r":[0-9][0-9a-zA-Z._-]*(@sha256:[0-9a-f]{64})?$", container["image"]), f"{container['image']} has no version"


def a_stop_loses_nothing(template, values):
    container, given = template["spec"]["containers"][0], values.get("drain", {})
    delay = int(variables(container)["IBEX_SERVER__DRAIN_DELAY_MS"]) / 1000
    drain = int(variables(container)["IBEX_SERVER__DRAIN_TIMEOUT_MS"])
    assert delay == given.get("delaySeconds", 10) and drain == 1000 * given.get("timeoutSeconds", 30), (delay, drain)
    # After the drain the server has five seconds for background work, and closes its store.
    assert template["spec"]["terminationGracePeriodSeconds"] >= delay + drain / 1000 + 10, "killed before it has drained"


def probes(container):
    paths = {name: container[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    asked = {name: probe["path"] for name, probe in paths.items()}
    assert asked == {"startupProbe": "/health", "livenessProbe": "/health", "readinessProbe": "/ready"}, asked
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert all(ports[probe["port"]] == 8080 for probe in paths.values()), f"probes of {ports}"
    assert variables(container)["IBEX_SERVER__LISTEN"].endswith(":8080"), "the server listens elsewhere"


def variables(container):
    return {variable["name"]: variable.get("value") for variable in container["env"]}


def selectors(objects, server):
    """What selects pods selects the server's, and no pod of a hook."""
    labels = server["spec"]["template"]["metadata"]["labels"]
    others = [pod(o)["metadata"]["labels"] for o in objects if o["kind"] in ("Job", "Pod")]
    wanted = [server["spec"]["selector"]["matchLabels"], one(objects, "Service")["spec"]["selector"]]
    wanted += [o["spec"]["selector"]["matchLabels"] for o in some(objects, "PodDisruptionBudget")]
    wanted += [o["spec"]["podSelector"]["matchLabels"] for o in some(objects, "NetworkPolicy")]
    for selector in wanted:
        assert selector.items() <= labels.items(), f"{selector} does not select {labels}"
        assert not any(selector.items() <= other.items() for other in others), f"{selector} selects the pod of a hook"
    service = one(objects, "Service")["metadata"]["labels"]
    for monitor in some(objects, "ServiceMonitor"):
        assert monitor["spec"]["selector"]["matchLabels"].items() <= service.items()


def replicas_are_replicas(objects, server, values):
    if values.get("mode") != "replicas":
        assert server["spec"]["replicas"] == 1 and not some(objects, "HorizontalPodAutoscaler") and not some(objects, "PodDisruptionBudget"), "more than one"
        return
    scalers = some(objects, "HorizontalPodAutoscaler")
    assert ("replicas" in server["spec"]) != bool(scalers), "an upgrade would undo what the autoscaler decided"
    assert server["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    for scaler in scalers:
        target = scaler["spec"]["scaleTargetRef"]
        assert (target["kind"], target["name"]) == (server["kind"], server["metadata"]["name"])
    if values.get("migration", {}).get("enabled", True):
        job = one(objects, "Job")
        hooks = {o["kind"]: o["metadata"]["annotations"] for o in objects if o["metadata"]["name"] == job["metadata"]["name"]}
        assert {h["helm.sh/hook"] for h in hooks.values()} == {"pre-install,pre-upgrade"}
        assert int(hooks["ConfigMap"]["helm.sh/hook-weight"]) < int(hooks["Job"]["helm.sh/hook-weight"])
        assert pod(job)["spec"]["containers"][0]["args"] == ["migrate"]


def names_lead_somewhere(objects, pods, values):
    """What a pod or an ingress refers to exists, or is one of the objects that the operator was asked for."""
    given = {"ibex", "ibex-owner", "more", "ca"}
    maps = {o["metadata"]["name"] for o in some(objects, "ConfigMap")} | given
    for template in pods:
        spec = template["spec"]
        mounts = {volume["name"] for volume in spec.get("volumes", [])}
        mounts |= {c["metadata"]["name"] for o in objects for c in o.get("spec", {}).get("volumeClaimTemplates", [])}
        for container in spec["containers"]:
            assert {mount["name"] for mount in container.get("volumeMounts", [])} <= mounts
            assert {source["secretRef"]["name"] for source in container.get("envFrom", [])} <= given
        for volume in spec.get("volumes", []):
            assert "configMap" not in volume or volume["configMap"]["name"] in maps, volume
    service = one(objects, "Service")
    for ingress in some(objects, "Ingress"):
        for rule in ingress["spec"]["rules"]:
            for path in rule["http"]["paths"]:
                assert path["backend"]["service"] == {"name": service["metadata"]["name"], "port": {"name": "http"}}
                assert path["path"].startswith("/v1"), "more is published than what clients need"


# ---------------------------------------------------------------- What has to be true of the chart


def refusals(chart):
    for word, values in REFUSED.items():
        try:
            chart.validate_schema(values)
        except helm.HelmValuesError as error:
            assert word in str(error), f"refused without naming {word}: {error}"
        else:
            raise AssertionError(f"the schema lets {values} pass")


def every_value_is_in_the_schema(folder):
    """And every key of the schema is a value that values.yaml describes."""

    def compare(values, schema, path):
        known = set(schema["properties"]) - {"global"}
        assert set(values) == known, f"{path}: values.yaml and its schema differ in {set(values) ^ known}"
        for key, inner in schema["properties"].items():
            assert inner.get("type") != "object" or key == "global" or "properties" in inner or isinstance(values[key], dict)
            if "properties" in inner and values.get(key):
                compare({**dict.fromkeys(inner["properties"]), **values[key]}, inner, f"{path}.{key}")

    compare(yaml.safe_load((folder / "values.yaml").read_text()), json.loads((folder / "values.schema.json").read_text()), "values")


def the_server_takes_it(chart, values, ibex):
    """`ibex check-config` over the file and the variables that a container would have: every one of them."""
    objects = rendered(chart, values)
    for holder in [o for o in objects if o["kind"] in ("Deployment", "StatefulSet", "Job")]:
        spec = pod(holder)["spec"]
        name = next(volume["configMap"]["name"] for volume in spec["volumes"] if volume["name"] == "config")
        text = next(o for o in some(objects, "ConfigMap") if o["metadata"]["name"] == name)["data"]["ibex.toml"]
        env = variables(spec["containers"][0]) | (SECRET if spec["containers"][0].get("envFrom") else {})
        status, told = check_config(ibex, text, env)
        assert status == 0, f"{holder['kind']}: the server refuses its configuration: {told}"
        status, told = check_config(ibex, text + "\n[context]\ndeadline = 40\n", env)
        assert status == 1 and "context.deadline_ms" in told, "a misspelt key is not noticed"


def check_config(ibex, text, env):
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(text)
        file.flush()
        done = subprocess.run([ibex, "check-config", "--config", file.name], env=env, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def a_changed_configuration_starts_new_pods(chart, values):
    def annotations(more):
        objects = rendered(chart, merged(values, more))
        server = next(o for o in objects if o["kind"] in ("Deployment", "StatefulSet"))
        return server["spec"]["template"]["metadata"]["annotations"]

    assert annotations({}) == annotations({})
    assert annotations({}) != annotations({"config": "[log]\nlevel = \"debug\"\n"}), "a changed file starts no new pods"
    assert annotations({}) != annotations({"secret": {"generation": "2"}})


def same_as_the_file(profile, path):
    """The profile is the example of the same name, without what the chart sets by variables."""

    def flat(table, prefix=()):
        for key, value in table.items():
            yield from flat(value, (*prefix, key)) if isinstance(value, dict) else [((*prefix, key), value)]

    example = {key: value for key, value in flat(tomllib.loads(path.read_text())) if key not in OURS}
    assert dict(flat(tomllib.loads(profile["config"]))) == example, f"the profile `replicas` is not {path}"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
