//! Messages of a client: which are replaced, which pass, and which end the WebSocket.

use gateway_session::stage::{GITHUB, binding, head, name};
use proptest::prelude::*;
use proptest::sample::Index;

use super::super::tests::{lender, session};
use super::*;

/// Returns a reader of messages to `/d/token`, and the phantom of the credential there.
fn messages() -> (InjectMessages, String) {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(async {
        let bound = binding("github", &["https://good.example"], &["websocket:/d/token"]);
        let lender = lender(vec![bound], &[("github", GITHUB)]).await;
        let source = &lender.credentials.slot(0).unwrap().source;
        let lease = source.resolve(Some(&session())).await.unwrap();
        let head = head("https://good.example", "/", &[]);
        let here = lender.credentials.bindings().at_origin(&head.origin);
        let phantom = lender.phantoms.all()[0].reveal().to_owned();
        let ours = Session::new(session(), Vec::new(), lender.phantoms, None);
        let secrets = vec![(name("github"), lease)];
        let search = here.in_messages(&head).unwrap();
        (
            InjectMessages::new(Some(search), None, Arc::new(ours), secrets),
            phantom,
        )
    })
}

const KEY: [u8; MASK] = [0x5a, 0, 0xff, 0x17];

/// Returns a frame of a client, with any first byte.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = whole_frame(TEXT, payload, Some(KEY));
    frame[0] = first;
    frame
}

/// Returns the frames of a client: first byte and payload, unmasked.
fn read(mut sent: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut frames = Vec::new();
    while let [first, second, rest @ ..] = sent {
        let (length, rest) = rest.split_at(match second & 0x7f {
            126 => 2,
            127 => 8,
            _ => 0,
        });
        let length = match length {
            [] => usize::from(second & 0x7f),
            all => all
                .iter()
                .fold(0, |sum, byte| sum << 8 | usize::from(*byte)),
        };
        let (mask, rest) = rest.split_first_chunk().unwrap();
        let (payload, rest) = rest.split_at(length);
        frames.push((*first, masked(payload, *mask).collect()));
        sent = rest;
    }
    frames
}

/// Returns the bytes that are passed on when all arrive in one piece.
fn sent(bytes: &[u8]) -> Result<Vec<u8>, MessageFault> {
    messages().0.push(bytes).map(|sent| sent.to_vec())
}

fn code(bytes: &[u8]) -> &'static str {
    sent(bytes).unwrap_err().reason().as_str()
}

#[test]
fn a_phantom_in_its_place_becomes_the_secret_in_each_message_and_nowhere_else() {
    let (mut messages, phantom) = messages();
    let text = |at: &str| format!(r#"{{"op":2, "x":"{phantom}","d":{{"a":[1],"token":"{at}"}}}}"#);
    for _ in 0..2 {
        let sent = messages
            .push(&frame(0x81, text(&phantom).as_bytes()))
            .unwrap();
        let frames = read(&sent);
        assert_eq!(frames, [(0x81, text(GITHUB).into_bytes())]);
    }
    for other in [
        format!(r#"{{"token":"{phantom}"}}"#),
        format!(r#"{{"d":{{"x":"{phantom}","token":null}}}}"#),
        format!(r#"{{"d":{{"token":""}},"e":{{"token":"{phantom}"}}}}"#),
        format!("42[\"{phantom}\"]"),
        "é".repeat(32 << 10),
        String::new(),
    ] {
        let frame = frame(0x81, other.as_bytes());
        assert_eq!(*messages.push(&frame).unwrap(), frame, "{other:.60}");
    }
    // Binary messages are not read, and may hold a foreign credential.
    let binary = messages.push(&frame(0x02, text(&phantom).as_bytes()));
    let fault = binary.unwrap_err();
    assert!(matches!(fault, MessageFault::Binary) && fault.close_status() == 1003);
}

#[test]
fn a_message_that_may_not_go_on_ends_the_websocket() {
    let (_, phantom) = messages();
    let text = |text: &str| frame(0x81, text.replace("PH", &phantom).as_bytes());
    for doubled in [
        r#"{"d":{"token":"PH","token":"PH"}}"#,
        r#"{"d":{"token":"PH"},"d":{}}"#,
        r#"{"d":{"token":"PH"},"D":{}}"#,
        r#"{"d":{"Token":"PH"}}"#,
        r#"{"d":{"token":"PH"},}"#,
        r#"{"d":{"token":"PH"}} {"#,
        "\u{feff}{'d':{'token':'PH'}}",
    ] {
        assert_eq!(code(&text(doubled)), "content_unreadable", "{doubled}");
    }
    for foreign in [
        r#"{"d":{"token":"attackers"}}"#,
        r#"{"d":{"token":7}}"#,
        r#"{"D":{"token":"xPH"}}"#,
    ] {
        assert_eq!(code(&text(foreign)), "foreign_credential", "{foreign}");
    }
    let over = frame(0x81, &[b' '; 65_537]);
    let fragments = [frame(0x01, &[b' '; 65_536]), frame(0x00, b" ")].concat();
    let empty = [frame(0x01, b"x"), frame(0x00, b"").repeat(700)].concat();
    let unmasked = [0x81, 1, b'x'];
    for (bytes, status) in [
        (&over[..], 1009),
        (&fragments, 1009),
        (&empty, 1009),
        (&unmasked, 1002),
        (&frame(0xc1, b"x"), 1002),
        (&frame(0x83, b"x"), 1002),
        (&frame(0x09, b"x"), 1002),
        (&frame(0x80, b"x"), 1002),
        (&[0x81, 0xfe, 0, 1, 0, 0, 0, 0], 1002),
        (&frame(0x81, b"\xff"), 1007),
    ] {
        let fault = sent(bytes).unwrap_err();
        assert_eq!(
            (fault.close_status(), fault.reason().as_str()),
            (status, "websocket_message")
        );
    }
    let shown = format!("{:?}", sent(&text(r#"{"d":{"token":"xPH"}}"#)).unwrap_err());
    assert!(!shown.contains(&phantom), "{shown}");
}

proptest! {
    #[test]
    fn messages_are_read_alike_however_they_are_cut_and_fragmented(
        pieces in prop::collection::vec(any::<Index>(), 0..6),
        cuts in prop::collection::vec(any::<Index>(), 0..40),
    ) {
        let (mut messages, phantom) = messages();
        let text = format!(r#"{{"d":{{"token":"{phantom}"}}}}"#).into_bytes();
        let sorted = |all: &[Index], length: usize| {
            let mut all: Vec<usize> = all.iter().map(|at| at.index(length)).chain([0, length]).collect();
            all.sort_unstable();
            all
        };
        let borders = sorted(&pieces, text.len());
        let parts: Vec<&[u8]> = borders.windows(2).map(|at| &text[at[0]..at[1]]).collect();
        let mut bytes = frame(0x8a, b"first");
        for (nth, part) in parts.iter().enumerate() {
            let first = u8::from(nth == 0) | if nth + 1 == parts.len() { 0x80 } else { 0 };
            bytes.extend(frame(first, part));
            bytes.extend(frame(0x89, b"ping"));
        }
        let cuts = sorted(&cuts, bytes.len());
        let mut out = Vec::new();
        for at in cuts.windows(2) {
            out.extend_from_slice(&messages.push(&bytes[at[0]..at[1]]).unwrap());
        }
        let mut frames = read(&out);
        let expected = format!(r#"{{"d":{{"token":"{GITHUB}"}}}}"#).into_bytes();
        let replaced: Vec<_> = frames.extract_if(.., |(first, _)| *first == 0x81).collect();
        prop_assert_eq!(replaced, [(0x81, expected)]);
        prop_assert_eq!(frames.remove(0), (0x8a, b"first".to_vec()));
        prop_assert!(frames.len() == parts.len() && frames.iter().all(|one| *one == (0x89, b"ping".to_vec())));
    }
}
