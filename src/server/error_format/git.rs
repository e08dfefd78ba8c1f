//! The refusal of a push, as a report for each ref (gitprotocol-pack, "Report Status").

use bytes::Bytes;
use gateway_body::read::Push;
use gateway_wire::pkt_line::{LONGEST_DATA, PktLine};

use super::details::ErrorDetails;

/// The media type of a report.
pub(super) const REPORT: &str = "application/x-git-receive-pack-result";

/// Writes the report. With a side band, git also shows the message.
pub(super) fn report(push: &Push, details: &ErrorDetails<'_>) -> Bytes {
    let (reason, id) = (details.reason.as_str(), details.id);
    let mut report = Vec::new();
    PktLine::Data(b"unpack ok\n").write(&mut report);
    for name in &push.refs {
        let told = format!("ng {name} refused by gateway: {reason}; gateway why {id}\n");
        PktLine::Data(told.as_bytes()).write(&mut report);
    }
    PktLine::Flush.write(&mut report);
    if !push.has_side_band {
        return report.into();
    }
    let mut beside = Vec::new();
    let message = details.whole_message() + "\n";
    for (band, bytes) in [(MESSAGE, message.as_bytes()), (DATA, &report)] {
        for piece in bytes.chunks(LONGEST_DATA - band.len()) {
            PktLine::Data(&[band, piece].concat()).write(&mut beside);
        }
    }
    PktLine::Flush.write(&mut beside);
    beside.into()
}

/// The band of the report.
const DATA: &[u8] = b"\x01";
/// The band of messages to the user.
const MESSAGE: &[u8] = b"\x02";

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
