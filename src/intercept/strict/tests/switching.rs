//! Upgrades: accepted, refused, and followed by violations.

use super::*;

const UPGRADE: &[u8] =
    b"GET /ws HTTP/1.1\r\nHost: good\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";

#[test]
fn bytes_behind_an_upgrade_wait_for_the_answer() {
    for head in [
        UPGRADE,
        b"CONNECT good:443 HTTP/1.1\r\nHost: good:443\r\n\r\n",
    ] {
        let mut strict =
            StrictStream::new(Pieces::new(&[head, b"\x81\x05 not \nHTTP"].concat(), &[]));
        let violations = strict.violations();
        assert_eq!(passed(&mut strict, 64), (head.to_vec(), End::Pending));
        violations.begin().unwrap();
        violations.upgraded();
        let mut cx = Context::from_waker(Waker::noop());
        assert!(
            Pin::new(&mut strict)
                .poll_write(&mut cx, b"HTTP/1.1 101 \r\n\r\n")
                .is_ready()
        );
        assert_eq!(
            passed(&mut strict, 7),
            (b"\x81\x05 not \nHTTP".to_vec(), End::Eof)
        );
    }
}

#[test]
fn bytes_behind_a_refused_upgrade_are_requests() {
    let next = b"GET /next HTTP/1.1\r\nHost: good\r\n\r\n";
    let mut strict = StrictStream::new(Pieces::new(
        &[UPGRADE, next, b"bad\r\n"].concat(),
        &[UPGRADE.len() + 5],
    ));
    let violations = strict.violations();
    assert_eq!(passed(&mut strict, 4096), (UPGRADE.to_vec(), End::Pending));
    let mut cx = Context::from_waker(Waker::noop());
    // A response to an earlier request decides nothing.
    assert!(
        Pin::new(&mut strict)
            .poll_write(&mut cx, b"HTTP/1.1 200 OK\r\n\r\n")
            .is_ready()
    );
    assert_eq!(passed(&mut strict, 4096), (vec![], End::Pending));
    violations.begin().unwrap();
    assert!(
        Pin::new(&mut strict)
            .poll_write(&mut cx, b"HTTP/1.1 200 OK\r\n\r\n")
            .is_ready()
    );
    assert_eq!(
        passed(&mut strict, 4096),
        ([next, PLACEHOLDER].concat(), End::Pending)
    );
    violations.begin().unwrap();
    assert_eq!(violations.begin(), Err(WireMalformed::Version));
}

#[test]
fn an_upgrade_to_h2c_or_with_content_is_no_switch() {
    let h2c = b"GET / HTTP/1.1\r\nHost: good\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n\r\n";
    accepted(&[&h2c[..], &h2c[..]].concat());
    assert_eq!(
        whole(&[&h2c[..], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"].concat()).2,
        Some((1, WireMalformed::Version))
    );
    let content = with_fields("Upgrade: foo\r\nContent-Length: 2") + "ab";
    accepted(content.repeat(2).as_bytes());
}

#[test]
fn a_violation_after_an_upgrade_was_taken_never_becomes_the_other_protocol() {
    let mut strict = StrictStream::new(Pieces::new(b"bad\r\n", &[]));
    let violations = strict.violations();
    let mut space = [0; 4];
    let mut buf = ReadBuf::new(&mut space);
    assert!(
        Pin::new(&mut strict)
            .poll_read(&mut Context::from_waker(Waker::noop()), &mut buf)
            .is_ready()
    );
    violations.upgraded();
    assert_eq!(passed(&mut strict, 64), (vec![], End::Failed));
}
