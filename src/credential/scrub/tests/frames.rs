//! WebSocket: frames that follow RFC 6455, and others.

use gateway_wire::websocket::FrameMalformed;
use proptest::prelude::*;

use super::*;

/// A frame from the origin.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let length = match payload.len() {
        short @ ..126 => vec![short as u8],
        medium @ ..0x1_0000 => [&[126][..], &(medium as u16).to_be_bytes()].concat(),
        long => [&[127][..], &(long as u64).to_be_bytes()].concat(),
    };
    [&[first][..], &length, payload].concat()
}

fn scrub_frames(content: &[u8], chunk: usize) -> Result<Vec<u8>, FrameFault> {
    let mut frames = ScrubFrames::new(github());
    let mut out = Vec::new();
    for chunk in content.chunks(chunk) {
        out.extend_from_slice(&frames.push(Bytes::copy_from_slice(chunk))?);
    }
    Ok(out)
}

#[test]
fn messages_are_scrubbed_across_fragments_with_control_frames_between() {
    let conversation = |token: &str| {
        [
            frame(0x81, b"hello"),
            frame(
                0x81,
                format!("whole {token} {}", ".".repeat(200)).as_bytes(),
            ),
            frame(0x01, format!("cut {}", &token[..10]).as_bytes()),
            frame(0x89, b"ping"),
            frame(0x00, b""),
            frame(0x00, &token.as_bytes()[10..11]),
            frame(
                0x80,
                &[&token.as_bytes()[11..], &[b' '; 70_000][..]].concat(),
            ),
            frame(0x82, b""),
            frame(0x82, b"ends as it may begin: ghp_"),
            frame(0x88, &[&[0x03, 0xe8], token.as_bytes()].concat()),
        ]
        .concat()
    };
    let (sent, expected) = (conversation(SECRET), conversation(PHANTOM));
    for chunk in [1, 2, 3, 7, 61, 1000, sent.len()] {
        assert_eq!(
            scrub_frames(&sent, chunk).as_ref(),
            Ok(&expected),
            "by {chunk}"
        );
    }
}

#[test]
fn a_message_that_breaks_off_shows_nothing_that_could_begin_an_echo() {
    let sent = frame(0x81, format!("its {SECRET}").as_bytes());
    assert_eq!(scrub_frames(&sent[..20], 7).as_deref(), Ok(&sent[..6]));
}

#[test]
fn of_an_echo_over_two_messages_each_part_is_replaced() {
    let over = |token: &str, at: usize| {
        let (one, two) = token.as_bytes().split_at(at);
        [frame(0x81, one), frame(0x81, two)].concat()
    };
    for at in [4, 9, 10, 20, 34, 35] {
        let sent = over(SECRET, at);
        let shown = scrub_frames(&sent, sent.len()).expect("it is in order");
        let expected = match at {
            // Five letters are not a piece.
            9 => [
                frame(0x81, &SECRET.as_bytes()[..9]),
                frame(0x81, &PHANTOM.as_bytes()[9..]),
            ]
            .concat(),
            35 => [
                frame(0x81, &PHANTOM.as_bytes()[..35]),
                frame(0x81, &SECRET.as_bytes()[35..]),
            ]
            .concat(),
            at => over(PHANTOM, at),
        };
        assert_eq!(shown, expected, "{at}");
    }
}

#[test]
fn frames_without_an_echo_pass_as_the_same_bytes() {
    let mut frames = ScrubFrames::new(github());
    let chunk = Bytes::from(
        [
            frame(0x81, b"one"),
            frame(0x89, b""),
            frame(0x82, &[7; 5000]),
        ]
        .concat(),
    );
    let passed = frames.push(chunk.clone()).expect("they are frames");
    assert_eq!(
        (passed.as_ptr(), passed.len()),
        (chunk.as_ptr(), chunk.len())
    );
}

#[test]
fn what_is_not_a_frame_of_a_server_is_a_fault() {
    let faults: [(&[u8], FrameMalformed); 13] = [
        (&[0x81, 0x81, 0, 0, 0, 0, b'x'], FrameMalformed::Masked),
        (&[0xc1, 0x01, b'x'], FrameMalformed::Reserved),
        (&[0xa1, 0x01, b'x'], FrameMalformed::Reserved),
        (&[0x91, 0x01, b'x'], FrameMalformed::Reserved),
        (&[0x83, 0x00], FrameMalformed::Reserved),
        (&[0x8b, 0x00], FrameMalformed::Reserved),
        (&[0x09, 0x00], FrameMalformed::Control),
        (&[0x89, 126, 0, 126], FrameMalformed::Control),
        (&[0x80, 0x00], FrameMalformed::Sequence),
        (&[0x01, 0x00, 0x81, 0x00], FrameMalformed::Sequence),
        (&[0x81, 126, 0, 125], FrameMalformed::Length),
        (
            &[0x81, 127, 0, 0, 0, 0, 0, 0, 0xff, 0xff],
            FrameMalformed::Length,
        ),
        (
            &[0x82, 127, 0x80, 0, 0, 0, 0, 0, 0, 0],
            FrameMalformed::Length,
        ),
    ];
    for (bytes, fault) in faults {
        for chunk in [1, bytes.len()] {
            assert_eq!(
                scrub_frames(bytes, chunk),
                Err(fault.into()),
                "{bytes:02x?}"
            );
        }
    }
}

#[test]
fn empty_frames_cannot_pile_up_behind_a_possible_echo() {
    let sent = [
        frame(0x01, &SECRET.as_bytes()[..10]),
        frame(0x00, b"").repeat(20_000),
    ]
    .concat();
    assert_eq!(scrub_frames(&sent, 4096), Err(FrameFault::Flood));
    let sent = [frame(0x01, b"no start."), frame(0x00, b"").repeat(20_000)].concat();
    assert_eq!(scrub_frames(&sent, 4096), Ok(sent));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn noise_after_an_upgrade_makes_nothing_panic(
        noise in proptest::collection::vec(any::<u8>(), 0..200),
        chunk in 1_usize..30,
    ) {
        let _ = scrub_frames(&noise, chunk);
    }

    #[test]
    fn a_message_is_scrubbed_as_its_payload_is_however_it_is_fragmented(
        before in "[ -~]{0,30}",
        after in "[ -~]{0,30}",
        borders in proptest::collection::vec(0_usize..12, 1..40),
        chunk in 1_usize..30,
    ) {
        let payload = format!("{before}{SECRET}{after}").into_bytes();
        let (expected, _) = scrub(&github(), [&payload[..]]);
        let fragment = |payload: &[u8]| {
            let (mut sent, mut rest, mut opcode) = (Vec::new(), payload, 1);
            for border in &borders {
                let (part, after) = rest.split_at((*border).min(rest.len()));
                sent.extend(frame(opcode, part));
                (rest, opcode) = (after, 0);
            }
            sent.extend(frame(opcode | 0x80, rest));
            sent
        };
        prop_assert_eq!(scrub_frames(&fragment(&payload), chunk), Ok(fragment(&expected)));
    }
}
