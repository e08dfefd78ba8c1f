//! What a case expects of an answer and its record.

use crate::rig::Rig;
use crate::rig::way::{Response, Way};

/// Asks, and expects a refusal by reason: in the answer, in the record, and by a closed connection
/// where the request was malformed.
pub fn refused(
    rig: &Rig,
    way: Way,
    host: &str,
    template: &str,
    status: u16,
    reason: &str,
) -> Response {
    let mut wire = rig.open(way, host);
    let answer = wire.ask(&rig.fill(way, host, template));
    let record = rig.record(way);
    assert_eq!(
        (
            answer.status,
            answer.reason().as_str(),
            record["reason"].as_str()
        ),
        (status, reason, Some(reason)),
        "{way:?} {template:?}: {answer:?} {record}"
    );
    let of_credentials = [
        "phantom_out_of_scope",
        "phantom_position",
        "phantom_disguised",
        "phantom_foreign_session",
        "foreign_credential",
    ];
    if of_credentials.contains(&reason) {
        let misplaced = &record["misplaced"];
        let place = misplaced["place"].as_str().unwrap_or_default();
        let known = [
            ("?key=", "query"),
            ("Cookie: sid=", "cookie"),
            ("\nX-Api-Key: {PH", "header:x-api-key"),
        ];
        let expected = known.iter().find(|(mark, _)| template.contains(mark));
        let is_so = expected.is_none_or(|(_, expected)| place == *expected);
        assert!(!place.is_empty() && is_so, "{template:?}: {record}");
        let is_strange = matches!(reason, "phantom_foreign_session" | "foreign_credential");
        assert_eq!(misplaced["credential"] == "", is_strange, "{record}");
    }
    if matches!(status, 400 | 417 | 431 | 505) {
        assert!(
            wire.is_over(),
            "{way:?} {template:?}: the connection is still open"
        );
    }
    assert!(
        rig.seen().is_empty(),
        "{way:?} {template:?}: E got something"
    );
    answer
}

/// The same on several ways.
pub fn refused_everywhere(
    rig: &Rig,
    ways: &[Way],
    host: &str,
    template: &str,
    status: u16,
    reason: &str,
) {
    for way in ways {
        refused(rig, *way, host, template, status, reason);
    }
}

/// Asks, and expects that the request reaches E.
pub fn allowed(rig: &Rig, way: Way, host: &str, template: &str) -> Response {
    let answer = rig.ask(way, host, template);
    let record = rig.record(way);
    assert_eq!(
        answer.status, 200,
        "{way:?} {template:?}: {answer:?} {record}"
    );
    answer
}
