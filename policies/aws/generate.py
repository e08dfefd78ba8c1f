"""Writes endpoints.txt and actions.txt from the service models of the installed botocore (Apache-2.0).

Run it by hand after `pip install --upgrade botocore`, read the difference, and commit it: python3 policies/aws/generate.py
"""

import glob
import gzip
import json
import os
import re
import sys

import botocore
from botocore.endpoint_provider import EndpointProvider

DATA = os.path.join(os.path.dirname(botocore.__file__), "data")
HERE = os.path.dirname(os.path.abspath(__file__))
# Their hosts hold buckets, access points and accounts: src/signature/sigv4/hosts.rs reads them by hand.
BY_HAND = {"s3", "s3control", "s3outposts"}
# Spoken to at a host of a customer, or without SigV4.
LEFT_OUT = {"signin", "codecatalyst", "apigatewaymanagementapi", "cloudsearchdomain"}


def load(path):
    with gzip.open(path) if path.endswith(".gz") else open(path, "rb") as file:
        return json.load(file)


def latest(service, name):
    found = sorted(glob.glob(f"{DATA}/{service}/*/{name}.json*"))
    return load(found[-1]) if found else None


def models():
    for service in sorted(os.listdir(DATA)):
        model = latest(service, "service-2") if os.path.isdir(f"{DATA}/{service}") else None
        if model and service not in LEFT_OUT:
            yield service, model


def split(host, outputs):
    """Stem and suffix of a host in a partition, or nothing where it is under neither suffix."""
    for suffix in (outputs["dualStackDnsSuffix"], outputs["dnsSuffix"]):
        if host.endswith("." + suffix):
            return host[: -len(suffix) - 1], suffix
    return None, None


def resolved(service, partitions):
    """Each host that the service's rules give for any region, and how it is signed there."""
    rules = latest(service, "endpoint-rule-set-1")
    provider, names = EndpointProvider(rules, partitions), set(rules["parameters"])
    for partition in partitions["partitions"]:
        for region in partition["regions"]:
            for fips in (False, True):
                for dual in (False, True):
                    asked = {"Region": region, "UseFIPS": fips, "UseDualStack": dual}
                    if (fips and "UseFIPS" not in names) or (dual and "UseDualStack" not in names):
                        continue
                    try:
                        found = provider.resolve_endpoint(**{k: v for k, v in asked.items() if k in names})
                    except Exception:
                        continue
                    host = found.url.split("://")[1].split("/")[0]
                    schemes = [s for s in found.properties.get("authSchemes", [{}]) if s.get("name") != "sigv4a"]
                    for scheme in schemes or [{}]:
                        yield partition, region, host, scheme


def endpoints(partitions):
    regional, exact = {}, {}
    for service, model in models():
        if service in BY_HAND:
            continue
        meta = model["metadata"]
        named = meta.get("signingName") or meta["endpointPrefix"]
        prefixes = {
            v.get("endpoint", {}).get("hostPrefix", "") for v in model["operations"].values()
        }
        prefixes = {""} | {p for p in prefixes if "{" not in p}
        for partition, region, host, scheme in resolved(service, partitions):
            outputs = partition["outputs"]
            stem, suffix = split(host, outputs)
            if stem is None:
                continue
            signing = scheme.get("signingName") or named
            signed = scheme.get("signingRegion") or region
            if signed.endswith("-global"):
                signed = outputs["implicitGlobalRegion"]
            for prefix in prefixes:
                if stem.endswith("." + signed):
                    key = (prefix + stem[: -len(signed) - 1], signing)
                    regional.setdefault(key, set()).add(service)
                elif not region.endswith("-global") or region not in stem:
                    key = (f"{prefix}{stem}.{suffix}", signing, signed)
                    exact.setdefault(key, set()).add(service)
    return regional, exact


def plain_fips(regional):
    """Leaves out each stem that is another with `-fips` at the end of a label: the reader knows of that."""
    kept = {}
    for (stem, signing), apis in regional.items():
        bare = re.sub(r"-fips(?=\.|$)", "", stem, count=1)
        other = regional.get((bare, signing)) if bare != stem else None
        if other is None or not apis <= other:
            kept[(stem, signing)] = apis
    return kept


def shown(uri):
    """A template without the names of its labels, but with a mark where a label is an account."""
    uri = re.sub(r"\{[^}]*\+\}", "{+}", uri)
    return re.sub(r"\{(\w+)\}", lambda m: "{@}" if re.search("account_?id", m[1], re.I) else "{}", uri)


def actions():
    for service, model in models():
        meta = model["metadata"]
        protocols = meta.get("protocols", [meta["protocol"]])
        names = sorted(model["operations"])
        rest = protocols[0].startswith("rest")
        # SQS spoke the query protocol before JSON and still does; its model no longer says so.
        spoken = protocols + (["query"] if service == "sqs" else [])
        kinds = "rest" if rest else ",".join(sorted({p.replace("smithy-", "") for p in spoken}))
        head = [f"@{service}", meta.get("signingName") or meta["endpointPrefix"], kinds]
        if not rest:
            head.append(meta.get("targetPrefix", "-"))
        yield " ".join(head)
        for name in names:
            http = model["operations"][name]["http"]
            if rest:
                uri = http["requestUri"]
                if service == "s3":
                    owner = model["shapes"][model["operations"][name]["input"]["shape"]]["members"] if "input" in model["operations"][name] else {}
                    uri += " owner" if "ExpectedBucketOwner" in owner else ""
                yield f"{name} {http['method']} {shown(uri)}"
            else:
                yield name


def main():
    partitions = load(f"{DATA}/partitions.json")
    regional, exact = endpoints(partitions)
    with open(f"{HERE}/endpoints.txt", "w") as out:
        print(f"# From botocore {botocore.__version__} by generate.py; not edited by hand.", file=out)
        for partition in partitions["partitions"]:
            o = partition["outputs"]
            names = [r for r in partition["regions"] if not r.endswith("-global")]
            print("partition", partition["id"], o["dnsSuffix"], o["dualStackDnsSuffix"], o["implicitGlobalRegion"], ",".join(sorted(names)), file=out)
        for (stem, signing), apis in sorted(plain_fips(regional).items()):
            print("regional", stem, signing, ",".join(sorted(apis)), file=out)
        for (host, signing, region), apis in sorted(exact.items()):
            print("exact", host, signing, region, ",".join(sorted(apis)), file=out)
    with open(f"{HERE}/actions.txt", "w") as out:
        print(f"# From botocore {botocore.__version__} by generate.py; not edited by hand.", file=out)
        for line in actions():
            print(line, file=out)


if __name__ == "__main__":
    sys.exit(main())
