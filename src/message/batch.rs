//! Batches: requests that contain many others, which policy cannot judge without their content.

use super::host::Host;
use super::parameter::folded_parameters;
use super::path_pattern::segments;
use super::target::RequestTarget;

/// Whether origins are known to accept batch requests at this target, whatever the host.
///
/// Covers OData (Microsoft Graph, Dynamics, SAP), Google's services, Elasticsearch and its
/// relatives, and Azure Storage. Targets of a single service are in its preset (`batches`).
pub fn is_batch(host: &Host, target: &RequestTarget) -> bool {
    let path = target.path();
    let known = |segment: &str| {
        SEGMENTS
            .iter()
            .any(|known| known.eq_ignore_ascii_case(segment))
    };
    let google = || {
        host.as_str().ends_with(".googleapis.com")
            && segments(path).any(|segment| segment.eq_ignore_ascii_case("batch"))
    };
    let azure = || {
        target.query_pairs().any(|(name, value)| {
            value.eq_ignore_ascii_case("batch")
                && folded_parameters(&name).iter().any(|name| name == "comp")
        })
    };
    // Most paths contain none of the characters that these segments start with.
    let may_be = path.bytes().any(|byte| matches!(byte, b'$' | b'%' | b'_'));
    (may_be && segments(path).any(known)) || google() || azure()
}

const SEGMENTS: [&str; 9] = gateway_names::word_list(
    "$batch %24batch _bulk _bulk_docs _bulk_get _mget _msearch _mtermvectors _reindex",
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EncodedSlash;

    #[test]
    fn where_many_requests_are_taken_in_one_is_known() {
        let is = |host: &str, target: &str| {
            let target = RequestTarget::parse(target.as_bytes(), EncodedSlash::Keep).unwrap();
            is_batch(&host.parse().unwrap(), &target)
        };
        for (host, target) in [
            ("graph.microsoft.com", "/v1.0/$batch"),
            ("graph.microsoft.com", "/beta/%24Batch"),
            ("es.example", "/_bulk"),
            ("es.example", "/logs/_msearch/template?x=y"),
            ("es.example", "/logs//_MGET"),
            ("es.example", "/logs%2F_bulk"),
            ("www.googleapis.com", "/batch"),
            ("storage.googleapis.com", "/batch/storage/v1"),
            ("a.blob.core.windows.net", "/?comp=batch"),
        ] {
            assert!(is(host, target), "{host}{target}");
        }
        for (host, target) in [
            ("x.example", "/batch"),
            ("api.anthropic.com", "/v1/messages/batches"),
            ("es.example", "/bulk"),
            ("x.example", "/?comp=list"),
        ] {
            assert!(!is(host, target), "{host}{target}");
        }
    }
}
