//! The refusal of a push, as a report for each ref (gitprotocol-pack, "Report Status").

use bytes::Bytes;
use gateway_body::read::Push;

use super::details::ErrorDetails;

/// The media type of a report.
pub(super) const REPORT: &str = "application/x-git-receive-pack-result";

/// Writes the report. With a side band, git also shows the message.
pub(super) fn report(push: &Push, details: &ErrorDetails<'_>) -> Bytes {
    let (reason, id) = (details.reason.as_str(), details.id);
    let mut report = Vec::new();
    line(&mut report, &[b"unpack ok\n"]);
    for name in &push.refs {
        let told = format!("ng {name} refused by gateway: {reason}; gateway why {id}\n");
        line(&mut report, &[told.as_bytes()]);
    }
    report.extend_from_slice(FLUSH);
    if !push.has_side_band {
        return report.into();
    }
    let mut beside = Vec::new();
    let message = details.whole_message() + "\n";
    for piece in message.as_bytes().chunks(LONGEST) {
        line(&mut beside, &[MESSAGE, piece]);
    }
    for piece in report.chunks(LONGEST) {
        line(&mut beside, &[DATA, piece]);
    }
    beside.extend_from_slice(FLUSH);
    beside.into()
}

fn line(out: &mut Vec<u8>, parts: &[&[u8]]) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    out.extend_from_slice(format!("{:04x}", length + 4).as_bytes());
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

const FLUSH: &[u8] = b"0000";
/// The band of the report.
const DATA: &[u8] = b"\x01";
/// The band of messages to the user.
const MESSAGE: &[u8] = b"\x02";
/// git's `LARGE_PACKET_DATA_MAX`, less the band.
const LONGEST: usize = 65_515;

#[cfg(test)]
mod tests {
    use gateway_names::ReasonCode;

    use super::*;

    #[test]
    fn each_ref_is_refused_with_the_reason_and_the_message_beside_it() {
        let details = ErrorDetails {
            reason: ReasonCode::PolicyForbids,
            retry: false,
            message: "no.",
            to: "g.test",
            id: "00ff",
            push: None,
            call: None,
            policies: &[],
        };
        let mut push = Push {
            refs: vec!["refs/heads/a".to_owned(), "refs/tags/b".to_owned()],
            has_side_band: false,
        };
        let plain = "000eunpack ok\n\
            0049ng refs/heads/a refused by gateway: policy_forbids; gateway why 00ff\n\
            0048ng refs/tags/b refused by gateway: policy_forbids; gateway why 00ff\n0000";
        assert_eq!(report(&push, &details), plain);
        push.has_side_band = true;
        let message = "0041\x02The gateway refused this request: no. [policy_forbids 00ff]\n";
        let beside = format!("{message}{:04x}\x01{plain}0000", plain.len() + 5);
        assert_eq!(report(&push, &details), beside);
    }
}
