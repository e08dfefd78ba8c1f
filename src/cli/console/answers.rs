//! Answers the page's calls.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, REFRESH, SET_COOKIE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Either, Full, Limited};
use hyper::body::Incoming;
use maud::{Markup, html};
use serde_json::{Map, Value};
use tokio::time::timeout;

use crate::app::{note, safe};
use crate::cli::console::door::{Refused, is_same};
use crate::cli::console::feed::Wanted;
use crate::cli::console::pages::{self, Answers};
use crate::cli::console::requests::fields;
use crate::cli::console::shown::{Console, Shown};
use crate::cli::console::stream::{self, Events};

type Answer = Response<Either<Full<Bytes>, Events>>;

/// The calls of the control socket that the page makes, and what is told when they are done. A star
/// stands for a name.
const ACTS: [(&str, &str); 8] = [
    ("/v1/proposals/allow", "The request is allowed, once."),
    ("/v1/proposals/refuse", "It is denied."),
    ("/v1/policies/allow", "The rule is in force."),
    ("/v1/sessions/*/pause", "The session is paused."),
    ("/v1/sessions/*/resume", "The session goes on."),
    ("/v1/sessions/*/end", "The session is ended, for good."),
    ("/v1/credentials/*/revoke", "The secret is revoked."),
    ("/v1/credentials/*/restore", "The secret can be lent again."),
];

/// Answers one call.
pub(super) async fn answer(console: &Arc<Console>, request: Request<Incoming>) -> Answer {
    let answered = call(console, request).await;
    let mut answer = answered.unwrap_or_else(|(status, why)| told(status, why));
    let fields = answer.headers_mut();
    for (name, value) in FIELDS {
        fields.insert(name, HeaderValue::from_static(value));
    }
    answer
}

async fn call(console: &Arc<Console>, request: Request<Incoming>) -> Result<Answer, Refused> {
    let (head, content) = request.into_parts();
    console.door.vet(&head.method, &head.uri, &head.headers)?;
    let (path, query) = (head.uri.path(), head.uri.query().unwrap_or_default());
    let is_known = console.door.knows(&head.headers);
    if head.method == Method::POST {
        let form = read(content).await?;
        return match path {
            "/open" => open(console, &form),
            _ if is_known => act(console, path, form).await,
            _ => Err(UNKNOWN),
        };
    }
    match path {
        "/console.js" => return Ok(page("text/javascript", include_str!("console.js"))),
        "/console.css" => return Ok(page("text/css", include_str!("console.css"))),
        "/" if !is_known => return Ok(shown(&pages::entry())),
        _ if !is_known => return Err(UNKNOWN),
        _ => {}
    }
    let Some(now) = console.shown() else {
        let mut answer = told(StatusCode::SERVICE_UNAVAILABLE, GONE);
        let soon = HeaderValue::from_static("2");
        answer.headers_mut().insert(REFRESH, soon);
        return Ok(answer);
    };
    match path {
        "/" => {
            let answers = Answers::of(&now).await;
            let wanted = Wanted::of(query);
            let feed = console.feed.lock();
            Ok(shown(&pages::whole(&now, &answers, &feed, &wanted)))
        }
        "/events" => {
            let place = console.streams.clone().try_acquire_owned();
            let place = place.map_err(|_| MANY)?;
            let events = stream::begin(console, Wanted::of(query), place);
            Ok(typed("text/event-stream", Either::Right(events)))
        }
        _ => {
            let id = path.strip_prefix("/why/").ok_or(MISSING)?;
            let is_id = id.len() == 20 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
            let why = match is_id {
                true => pages::why(console, &now, id).await,
                false => None,
            };
            Ok(shown(&why.ok_or(NO_STORY)?))
        }
    }
}

/// Reads a form.
async fn read(content: Incoming) -> Result<Map<String, Value>, Refused> {
    let reading = Limited::new(content, MOST_CONTENT).collect();
    let read = timeout(READ_WITHIN, reading).await;
    let read = read.ok().and_then(Result::ok).ok_or(UNREADABLE)?.to_bytes();
    let text = std::str::from_utf8(&read).map_err(|_| UNREADABLE)?;
    Ok(fields(text)
        .map(|(name, value)| (name, value.into()))
        .collect())
}

/// Takes the link, for a cookie.
fn open(console: &Console, form: &Map<String, Value>) -> Result<Answer, Refused> {
    let token = form.get("token").and_then(Value::as_str);
    let opened = console.door.open(token.unwrap_or_default());
    // Whoever has the link, and not whoever else can ask, is told of to the operator.
    if let Err((StatusCode::GONE, why)) = opened {
        note(format!("gateway: {why}"));
    }
    let mut answer = told(StatusCode::OK, "");
    answer.headers_mut().insert(SET_COOKIE, opened?);
    Ok(answer)
}

/// Makes a call of the control socket, with the fields of a form.
async fn act(console: &Console, path: &str, form: Map<String, Value>) -> Result<Answer, Refused> {
    let fits = |one: &str| {
        let (mut wanted, mut parts) = (one.split('/'), path.split('/'));
        let is_fit = wanted.all(|wanted| {
            parts
                .next()
                .is_some_and(|part| part == wanted || wanted == "*" && !part.is_empty())
        });
        is_fit && parts.next().is_none()
    };
    let done = ACTS.iter().find(|(one, _)| fits(one)).ok_or(MISSING)?.1;
    let now = console
        .shown()
        .ok_or((StatusCode::SERVICE_UNAVAILABLE, GONE))?;
    let content = checked(&now, form)?;
    let called = now.gateway.ask(Method::POST, path, content.as_ref()).await;
    Ok(match called {
        Ok(answer) if answer["own"].as_array().is_some_and(|own| !own.is_empty()) => {
            told(StatusCode::OK, OWN_USE)
        }
        Ok(_) => told(StatusCode::OK, done),
        Err(why) => {
            let why = safe(&why.to_string());
            told(StatusCode::CONFLICT, &format!("Not done as asked: {why}."))
        }
    })
}

/// Returns a form's own fields, if the page that sent it shows the gateway that runs.
fn checked(now: &Shown, mut form: Map<String, Value>) -> Result<Option<Value>, Refused> {
    let token = form.remove("form_token");
    let token = token.as_ref().and_then(Value::as_str).unwrap_or_default();
    if !is_same(token, &now.form_token) {
        return Err(OLDER);
    }
    Ok((!form.is_empty()).then_some(Value::Object(form)))
}

/// Says something, in a page of its own.
fn told(status: StatusCode, words: &str) -> Answer {
    let page = pages::framed("gateway", words, html! { p { a href="/" { "← all" } } });
    let mut answer = shown(&page);
    *answer.status_mut() = status;
    answer
}

fn shown(page: &Markup) -> Answer {
    self::page("text/html; charset=utf-8", page.0.clone())
}

fn page(kind: &'static str, text: impl Into<Bytes>) -> Answer {
    typed(kind, Either::Left(Full::new(text.into())))
}

fn typed(kind: &'static str, content: Either<Full<Bytes>, Events>) -> Answer {
    let mut answer = Response::new(content);
    answer
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

/// The fields of every answer. No page frames this one, none of another origin reads it, and it
/// loads and runs nothing of its own but one script and one style.
const FIELDS: [(&str, &str); 7] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
         form-action 'self'; base-uri 'none'; frame-ancestors 'none'; \
         require-trusted-types-for 'script'; trusted-types console",
    ),
    ("cache-control", "no-store"),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
];
const UNKNOWN: Refused = (
    StatusCode::FORBIDDEN,
    "This page opens by the link that `gateway console` prints.",
);
const MISSING: Refused = (StatusCode::NOT_FOUND, "There is no such page.");
const NO_STORY: Refused = (
    StatusCode::NOT_FOUND,
    "It is not among what is shown here. `gateway why` finds it in the whole log.",
);
const MANY: Refused = (StatusCode::SERVICE_UNAVAILABLE, "Too many pages are open.");
const UNREADABLE: Refused = (StatusCode::BAD_REQUEST, "The form cannot be read.");
const OLDER: Refused = (
    StatusCode::CONFLICT,
    "Nothing was done: the gateway was started anew since this page was loaded. Look again.",
);
const GONE: &str = "The gateway has ended. This page shows the next one that runs.";
const OWN_USE: &str =
    "The secret is lent no more, and the gateway itself goes on to use it: end it.";
const MOST_CONTENT: usize = 64 << 10;
const READ_WITHIN: Duration = Duration::from_secs(10);
