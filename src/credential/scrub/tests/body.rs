//! Bodies: which bytes pass, which wait, and what ends a body.

use std::{
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use gateway_body::MockBody;
use http::{HeaderMap, HeaderValue};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full};

use super::*;

fn data(text: &'static str) -> Result<Frame<Bytes>, &'static str> {
    Ok(Frame::data(Bytes::from_static(text.as_bytes())))
}

#[tokio::test]
async fn a_body_is_scrubbed_in_data_and_trailers_and_counted() {
    let fields = HeaderMap::from_iter([(http::header::ETAG, HeaderValue::from_static(SECRET))]);
    let frames = [
        data("a ghp_"),
        data(&SECRET[4..]),
        data(" b ghp_"),
        Ok(Frame::trailers(fields)),
    ];
    let scrubber = Scrubber::new(github());
    let mut body = ScrubBody::new(MockBody(frames.into()), &HeaderMap::new(), scrubber);
    let read = (&mut body).collect().await.expect("it ends well");
    assert_eq!(
        read.trailers().map(|fields| &fields[http::header::ETAG]),
        Some(&HeaderValue::from_static(PHANTOM))
    );
    assert_eq!(read.to_bytes(), format!("a {PHANTOM} b ghp_"));
    assert_eq!(body.replaced(), 2);
}

/// Returns the bytes that a body yields until it waits.
fn given<B: Body<Data = Bytes, Error: std::fmt::Debug> + Unpin>(body: &mut B) -> String {
    let mut given = Vec::new();
    let mut context = Context::from_waker(Waker::noop());
    while let Poll::Ready(Some(frame)) = Pin::new(&mut *body).poll_frame(&mut context) {
        given.extend_from_slice(&frame.expect("no error").into_data().expect("data"));
    }
    text(given)
}

#[tokio::test]
async fn no_pause_shows_a_part_of_an_echo() {
    for cut in [1, 4, 20, SECRET.len() - 1] {
        let (tell, told) = tokio::sync::mpsc::unbounded_channel();
        let mut body = ScrubBody::new(Pausing(told), &HeaderMap::new(), Scrubber::new(github()));
        tell.send(SECRET[..cut].to_owned())
            .expect("the body is there");
        let silence = tokio::time::timeout(Duration::from_millis(100), body.frame()).await;
        assert!(silence.is_err(), "{cut}");
        tell.send(format!("{}\n", &SECRET[cut..]))
            .expect("the body is there");
        assert_eq!(given(&mut body), format!("{PHANTOM}\n"));
    }
}

#[test]
fn text_that_ends_as_events_and_json_do_waits_for_nothing() {
    for part in [
        "data: {\"a\":\"ghp_A1\"}\n\n",
        "{\"a\":17}",
        "ghp_A1\n",
        "[1]",
        "Password: ",
    ] {
        let (tell, told) = tokio::sync::mpsc::unbounded_channel();
        let mut body = ScrubBody::new(Pausing(told), &HeaderMap::new(), Scrubber::new(github()));
        tell.send(part.to_owned()).expect("the body is there");
        assert_eq!(given(&mut body), part);
    }
}

#[test]
fn a_message_with_its_length_is_given_whole_at_its_end() {
    let fields = HeaderMap::from_iter([(
        http::header::CONTENT_TYPE,
        HeaderValue::from_static("application/grpc"),
    )]);
    let (tell, told) = tokio::sync::mpsc::unbounded_channel();
    let mut body = ScrubBody::new(Pausing(told), &fields, Scrubber::new(github()));
    tell.send("\0\0\0\0\x06ab".to_owned())
        .expect("the body is there");
    assert_eq!(given(&mut body), "\0\0\0\0\x06");
    tell.send("ghp_\0\0\0\0\x28ghp_".to_owned())
        .expect("the body is there");
    assert_eq!(given(&mut body), "abghp_\0\0\0\0(");
    tell.send(SECRET[4..].to_owned())
        .expect("the body is there");
    assert_eq!(given(&mut body), PHANTOM);
    // Bytes after the last message are held back like other text.
    tell.send(SECRET[..20].to_owned())
        .expect("the body is there");
    assert_eq!(given(&mut body), "");
    tell.send(SECRET[20..].to_owned() + "\n")
        .expect("the body is there");
    assert_eq!(given(&mut body), format!("{PHANTOM}\n"));
}

/// A body that ends when its sender is dropped.
struct Pausing(tokio::sync::mpsc::UnboundedReceiver<String>);

impl Body for Pausing {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0
            .poll_recv(cx)
            .map(|text| text.map(|text| Ok(Frame::data(text.into()))))
    }
}

#[tokio::test]
async fn a_body_of_known_length_keeps_it_and_ends_after_what_was_held() {
    let mut body = ScrubBody::new(
        Full::new(Bytes::from("abc ghp_A1b2")),
        &HeaderMap::new(),
        Scrubber::new(github()),
    );
    assert_eq!(body.size_hint().exact(), Some(12));
    let frame = body.frame().await.expect("a frame").expect("no error");
    assert_eq!(frame.into_data().expect("data"), "abc ");
    assert_eq!(
        (body.size_hint().exact(), body.is_end_stream()),
        (Some(8), false)
    );
    let frame = body.frame().await.expect("a frame").expect("no error");
    assert_eq!(frame.into_data().expect("data"), "ghp_A1b2");
    assert_eq!(
        (body.size_hint().exact(), body.is_end_stream()),
        (Some(0), true)
    );
    assert!(body.frame().await.is_none());
}

#[tokio::test]
async fn a_failing_body_fails_scrubbed_and_what_was_held_stays_back() {
    let frames = [data("abc ghp_A1b2C3d4"), Err("cut")];
    let mut body = ScrubBody::new(
        MockBody(frames.into()),
        &HeaderMap::new(),
        Scrubber::new(github()),
    );
    assert_eq!(
        body.frame()
            .await
            .expect("a frame")
            .expect("data")
            .into_data()
            .expect("data"),
        "abc "
    );
    assert_eq!(
        body.frame().await.expect("a frame").err(),
        Some(ScrubFault::Body("cut"))
    );
    assert!(body.frame().await.is_none());
}

#[test]
fn the_wrapper_of_a_body_stays_small() {
    assert!(
        size_of::<ScrubBody<()>>() <= 144,
        "{}",
        size_of::<ScrubBody<()>>()
    );
}
