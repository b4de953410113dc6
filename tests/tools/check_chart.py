"""Lints a Helm chart, renders it with Helm's own engine, and validates every manifest against the schema of its kind.

    check_chart.py CHART
"""

import sys

import helm_python as helm
import kubernetes_validate
import yaml

KUBERNETES = "1.32"


def rendered(chart):
    """(template, manifest) for everything the chart makes with its default values."""
    with helm.Chart.load(chart) as loaded:
        loaded.validate_schema({})
        texts = loaded.render({}, name="ibex", namespace="default")
    for template, text in sorted(texts.items()):
        yield from ((template, manifest) for manifest in yaml.safe_load_all(text) if manifest)


def main(chart):
    report = helm.lint(chart)
    for error in report["errors"]:
        print(f"lint: {error}", file=sys.stderr)
    if report["errors"]:
        return 1
    faults = checked = 0
    for template, manifest in rendered(chart):
        checked += 1
        try:
            kubernetes_validate.validate(manifest, KUBERNETES, strict=True)
        except kubernetes_validate.ValidationError as error:
            faults += 1
            print(f"{template}: {'.'.join(map(str, error.path))}: {error.message}", file=sys.stderr)
        except kubernetes_validate.SchemaNotFoundError:
            print(f"{template}: no schema for {manifest.get('apiVersion')} {manifest.get('kind')}")
    print(f"chart: {checked} manifests checked, {faults} faults")
    return 1 if faults or not checked else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
