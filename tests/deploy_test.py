#!/usr/bin/env python3
"""What deploy/ starts, checked as far as one machine can.

  tests/deploy_test.py DIVISI-BINARY

Each flag that a unit or a manifest gives exists in that command's --help, the YAML holds what it
has to, and systemd finds no fault with the units where it is installed. 77: skipped.
"""
import os, pathlib, re, shutil, subprocess, sys, tempfile

try:
    import yaml
except ImportError:
    print("skipped: no python3-yaml")
    sys.exit(77)

binary = os.path.abspath(sys.argv[1])
deploy = pathlib.Path(__file__).resolve().parent.parent / "deploy"
faults = []


def flags_of(command):
    text = subprocess.run([binary, command, "--help"], capture_output=True, text=True).stdout
    return set(re.findall(r"--[a-z][a-z-]*", text))


KNOWN = {command: flags_of(command) for command in ("gateway", "worker", "store")}


def check_flags(where, command, words):
    for word in words:
        flag = re.match(r"--[a-z][a-z-]*", word)
        if flag and flag[0] not in KNOWN[command]:
            faults.append(f"{where}: divisi {command} has no {flag[0]}")


# 0 where it isn't given: a store has nothing to drain.
def seconds(words, flag):
    found = re.search(flag + r"[= ](\d+)", " ".join(words))
    return float(found[1]) if found else 0


def check_units():
    for unit in sorted((deploy / "systemd").glob("*.service")):
        text = unit.read_text()
        words = re.search(r"^ExecStart=(.*)$", text, re.M)[1].split()
        check_flags(unit.name, words[1], words)
        stop = float(re.search(r"^TimeoutStopSec=(\d+)$", text, re.M)[1])
        if stop <= seconds(words, "--drain-seconds"):
            faults.append(f"{unit.name}: TimeoutStopSec ends before the drain does")
        user = re.search(r"^User=(.*)$", text, re.M)
        if "@" in unit.name and (not user or "%" in user[1]):
            faults.append(f"{unit.name}: each instance has a user of its own, and none may read "
                          "another's memory")
    settings = (deploy / "systemd" / "divisi.env").read_text()
    for name, value in re.findall(r"^(?:#   )?(DIVISI_\w+)=(.*)$", settings, re.M):
        owners = {"DIVISI_GATEWAY_ARGS": "gateway", "DIVISI_STORE_ARGS": "store"}
        command = owners.get(name, "worker")
        check_flags("divisi.env", command, value.split())


def verify_units():
    tool = shutil.which("systemd-analyze")
    if not tool:
        return print("systemd-analyze is not here")
    with tempfile.TemporaryDirectory() as folder:
        for unit in (deploy / "systemd").glob("*.service"):
            text = unit.read_text().replace("/usr/local/bin/divisi", binary)
            name = unit.name.replace("@.", "@prefill.")
            path = pathlib.Path(folder) / name
            path.write_text(text)
            ran = subprocess.run([tool, "verify", "--man=no", str(path)], capture_output=True,
                                 text=True)
            about = [line for line in (ran.stderr + ran.stdout).splitlines() if name in line]
            if about:
                faults.append("\n".join(about))


def check_pod(name, spec, config):
    grace = spec["terminationGracePeriodSeconds"]
    for container in spec["containers"]:
        words = container["args"]
        check_flags(name, words[0], words)
        known = set(config) | {entry["name"] for entry in container.get("env", [])}
        for used in re.findall(r"\$\((\w+)\)", " ".join(words)):
            if used not in known:
                faults.append(f"{name}: $({used}) is set nowhere")
            elif used in config:
                check_flags(name, words[0], [config[used]])
        sleeps = container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", [0])
        if grace <= seconds(words, "--drain-seconds") + float(sleeps[-1]):
            faults.append(f"{name}: terminationGracePeriodSeconds ends before the drain does")
        ports = {port["name"] for port in container["ports"]}
        for probe in ("readinessProbe", "livenessProbe"):
            for action in ("httpGet", "tcpSocket"):
                port = container.get(probe, {}).get(action, {}).get("port")
                if port is not None and port not in ports:
                    faults.append(f"{name}: {probe} asks for port {port}, which it has not")


ROLES = {"divisi.yaml": {"divisi-gateway", "divisi-prefill", "divisi-decode"},
         "store.yaml": {"divisi-store"}}


def check_manifests():
    for file in sorted((deploy / "kubernetes").glob("*.yaml")):
        objects = [item for item in yaml.safe_load_all(file.read_text()) if item]
        maps = [item["data"] for item in objects if item["kind"] == "ConfigMap"]
        config = maps[0] if maps else {}
        pods = [item for item in objects if "template" in item.get("spec", {})]
        services = [item for item in objects if item["kind"] == "Service"]
        roles = {item["metadata"]["name"] for item in pods}
        if roles != ROLES[file.name]:
            faults.append(f"{file.name}: it has {roles}")
        labels = [item["spec"]["template"]["metadata"]["labels"] for item in pods]
        for item in pods:
            check_pod(item["metadata"]["name"], item["spec"]["template"]["spec"], config)
            own = item["spec"]["template"]["metadata"]["labels"].items()
            if not item["spec"]["selector"]["matchLabels"].items() <= own:
                faults.append(f"{item['metadata']['name']}: it does not select its own pods")
        for service in services:
            wanted = service["spec"]["selector"].items()
            if not any(wanted <= label.items() for label in labels):
                faults.append(f"{service['metadata']['name']}: it selects no pod")


check_units()
verify_units()
check_manifests()
print("\n".join(faults) or "ok")
sys.exit(1 if faults else 0)
