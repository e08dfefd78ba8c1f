"""Holds exported records to the schemas that OpenTelemetry and OCSF publish.

Reads one JSON document a line from standard input: {"path": …, "content": …}. Ends with 1 and says
what is wrong at the first that does not fit.
"""

import base64
import json
import os
import pathlib
import sys

PACKAGES = pathlib.Path(os.environ["GATEWAY_CLIENTS"]) / "otlp"
sys.path.insert(0, str(PACKAGES))

from google.protobuf import json_format  # noqa: E402
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (  # noqa: E402
    ExportLogsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (  # noqa: E402
    ExportTraceServiceRequest,
)

OTLP = {"/v1/logs": ExportLogsServiceRequest, "/v1/traces": ExportTraceServiceRequest}
BYTES = {"traceId": 16, "spanId": 8, "parentSpanId": 8}


def as_protojson(value):
    """OTLP's JSON is ProtoJSON, but for the ids, which are hexadecimal and not base64."""
    if isinstance(value, list):
        return [as_protojson(one) for one in value]
    if not isinstance(value, dict):
        return value
    changed = {}
    for key, inner in value.items():
        if key in BYTES:
            raw = bytes.fromhex(inner)
            assert len(raw) == BYTES[key] and any(raw), f"{key} {inner}"
            changed[key] = base64.b64encode(raw).decode()
        else:
            changed[key] = as_protojson(inner)
    return changed


def otlp(path, content):
    # Unknown keys and values of another type are errors.
    request = json_format.ParseDict(as_protojson(content), OTLP[path]())
    for resource in list(getattr(request, "resource_spans", [])):
        for scope in resource.scope_spans:
            for span in scope.spans:
                assert 0 < span.start_time_unix_nano <= span.end_time_unix_nano, span
                assert span.name and span.kind == 2, span
    for resource in list(getattr(request, "resource_logs", [])):
        for scope in resource.scope_logs:
            for log in scope.log_records:
                assert log.time_unix_nano and log.severity_number and log.event_name, log


# Only the schema that the package carries is used, as data.
SCHEMA = json.loads((PACKAGES / "ocsf_json_schema/ocsf/1.3.0.json").read_text())


def fits(value, attributes, where, profiles):
    """Checks an object against a class or an object of the schema, and everything inside it."""
    for name, about in attributes.items():
        if about.get("profile") and about["profile"] not in profiles:
            continue
        assert about.get("requirement") != "required" or name in value, f"{where} lacks {name}"
    for name, inner in value.items():
        assert name in attributes, f"{where} has no {name}"
        about = attributes[name]
        values = inner if about.get("is_array") else [inner]
        assert isinstance(values, list), f"{where}.{name} is no list"
        for one in values:
            typed(one, about, f"{where}.{name}", profiles)


def typed(value, about, where, profiles):
    kind = about["type"]
    if kind == "object_t":
        if about["object_type"] != "object":
            inner = SCHEMA["objects"][about["object_type"]]["attributes"]
            fits(value, inner, where, profiles)
        return
    if about.get("enum"):
        assert str(value) in about["enum"], f"{where} is {value}"
    base = SCHEMA["types"].get(kind, {}).get("type", kind)
    wanted = int if base in ("integer_t", "long_t") else str
    assert base in ("json_t", "boolean_t") or isinstance(value, wanted), f"{where} is {value!r}"


def ocsf(event):
    found = [one for one in SCHEMA["classes"].values() if one["uid"] == event["class_uid"]]
    assert len(found) == 1, event["class_uid"]
    profiles = event["metadata"].get("profiles", [])
    fits(event, found[0]["attributes"], found[0]["name"], profiles)
    assert event["type_uid"] == event["class_uid"] * 100 + event["activity_id"]


for line in sys.stdin:
    document = json.loads(line)
    if document["path"] in OTLP:
        otlp(document["path"], document["content"])
    else:
        ocsf(document["content"])
    print("fits", document["path"])
