//! Searches the beginning of a response for tokens that its request did not ask for.

use http::HeaderMap;
use http::header::CONTENT_TYPE;
use zeroize::Zeroizing;

use super::token_answer::TokenAnswer;

/// Reads a response's content until it is known whether it has a token: the first object or list of
/// JSON, also in a call of JSONP or after a guard against scripts, in UTF-8, UTF-16 and UTF-32; or
/// a form to its end. Other content is recognised by its first byte, so that a stream is not
/// delayed beyond its first event.
pub struct TokenLook {
    kind: String,
    content: Zeroizing<Vec<u8>>,
    /// How many bytes were scanned, and the index of the first byte that shows the format.
    at: usize,
    begin: usize,
    format: Format,
    /// The number of open objects and lists, whether a text is open, and after a backslash.
    depth: usize,
    in_text: bool,
    is_escaped: bool,
    /// Whether it is a list whose first element has arrived.
    has_element: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Unknown,
    Json,
    Form,
}

impl TokenLook {
    /// The most content that is searched.
    pub const LONGEST: usize = 64 * 1024;

    /// Returns a search of a response with these fields. `None` if its type can hold no token: it
    /// is neither JSON nor a form nor text, or a stream of events.
    pub fn new(fields: &HeaderMap) -> Option<Self> {
        let kind = fields.get(CONTENT_TYPE);
        let kind = kind.map_or(Ok(""), |kind| kind.to_str());
        let kind = kind.unwrap_or("text/plain").to_ascii_lowercase();
        let is_json = kind == "application/json";
        let is_stream = [
            "text/event-stream",
            "application/grpc",
            "application/connect",
        ];
        let is_stream = !is_json && is_stream.iter().any(|stream| kind.starts_with(stream));
        let may_be = is_json
            || kind.is_empty()
            || kind.starts_with("text/")
            || ["json", "javascript", "form-urlencoded"]
                .iter()
                .any(|one| kind.contains(one));
        (may_be && !is_stream).then(|| Self {
            kind,
            content: Zeroizing::default(),
            at: 0,
            begin: 0,
            format: Format::Unknown,
            depth: 0,
            in_text: false,
            is_escaped: false,
            has_element: false,
        })
    }

    /// Whether these fields declare the content to be JSON or a form.
    pub fn is_declared(fields: &HeaderMap) -> bool {
        let look = Self::new(fields);
        let kinds = ["json", "javascript", "form-urlencoded"];
        look.is_some_and(|look| kinds.iter().any(|kind| look.kind.contains(kind)))
    }

    /// Reads the next piece of the content. Returns whether it has a token, once that is known.
    pub fn piece(&mut self, piece: &[u8]) -> Option<bool> {
        let room = Self::LONGEST - self.content.len();
        let is_more = if memchr::memchr(0, piece).is_none() {
            self.content
                .extend_from_slice(&piece[..piece.len().min(room)]);
            piece.len() > room
        } else {
            // In UTF-16 and UTF-32, NUL bytes stand between the letters.
            let mut letters = piece.iter().copied().filter(|byte| *byte != 0);
            self.content.extend(letters.by_ref().take(room));
            letters.next().is_some()
        };
        loop {
            self.at += self.inert();
            let Some(byte) = self.content.get(self.at).copied() else {
                break;
            };
            self.at += 1;
            let decided = self.step(byte);
            if decided.is_some() {
                return decided;
            }
        }
        is_more.then_some(false)
    }

    /// Whether the rest of a list is awaited, which may be a stream.
    pub fn is_in_list(&self) -> bool {
        self.has_element
    }

    /// Whether the content up to now has a token.
    pub fn end(&self) -> bool {
        TokenAnswer::is_in(&self.kind, &self.content)
    }

    /// How many of the next bytes of JSON change nothing.
    fn inert(&self) -> usize {
        let rest = &self.content[self.at..];
        let next = match self.format {
            Format::Json if self.is_escaped => Some(0),
            Format::Json if self.in_text => memchr::memchr2(b'"', b'\\', rest),
            Format::Json => rest.iter().position(|byte| b"\"\\{}[]".contains(byte)),
            Format::Unknown | Format::Form => Some(0),
        };
        next.unwrap_or(rest.len())
    }

    fn step(&mut self, byte: u8) -> Option<bool> {
        match (self.format, byte) {
            // Byte order marks.
            (Format::Unknown, 0xef | 0xbb | 0xbf | 0xff | 0xfe) => {}
            (Format::Unknown, byte) if byte.is_ascii_whitespace() => {}
            (Format::Unknown, b'{' | b'[') => self.begin_json(),
            (Format::Form, b'{' | b'[') if self.is_wrapped() => self.begin_json(),
            (Format::Form, b']' | b'}') if self.at <= GUARD.len() => {}
            (Format::Unknown, byte) if is_of_form(byte) => self.format = Format::Form,
            (Format::Json, byte) => return self.step_in_json(byte),
            (Format::Form, b'\r' | b'\n') => {}
            (Format::Form, byte) if is_of_form(byte) && !self.is_prose() => {}
            _ => return Some(false),
        }
        None
    }

    fn begin_json(&mut self) {
        (self.format, self.depth, self.begin) = (Format::Json, 1, self.at - 1);
    }

    /// Whether the text before the JSON is a call of JSONP or a guard against scripts.
    fn is_wrapped(&self) -> bool {
        let before = self.content[..self.at - 1].trim_ascii();
        let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"_$./*".contains(byte);
        let call = before.strip_suffix(b"(");
        let is_call =
            call.is_some_and(|name| name.len() <= LONGEST_NAME && name.iter().all(is_name));
        is_call || GUARDS.iter().any(|guard| before == guard.as_bytes())
    }

    fn step_in_json(&mut self, byte: u8) -> Option<bool> {
        match byte {
            _ if std::mem::take(&mut self.is_escaped) => {}
            b'\\' => self.is_escaped = self.in_text,
            b'"' => self.in_text = !self.in_text,
            _ if self.in_text => {}
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => self.depth -= 1,
            _ => {}
        }
        let is_list = self.content.get(self.begin) == Some(&b'[');
        self.has_element |= is_list && self.depth == 1 && byte == b'}';
        let is_over = self.depth == 0;
        is_over.then(|| TokenAnswer::is_in("json", &self.content[self.begin..self.at]))
    }

    /// Whether text that is not declared as a form does not begin with a name.
    fn is_prose(&self) -> bool {
        self.at == LONGEST_NAME
            && !self.kind.contains("form-urlencoded")
            && memchr::memchr(b'=', &self.content[..LONGEST_NAME]).is_none()
    }
}

/// Whether a byte may stand in a form (RFC 3986 §3.4).
fn is_of_form(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/?%".contains(&byte)
}

/// The text that keeps scripts of other sites from reading JSON.
const GUARD: &str = ")]}'";
const GUARDS: [&str; 4] = [GUARD, ")]}',", "while(1);", "for(;;);"];

/// The longest name of a form's first pair.
const LONGEST_NAME: usize = 64;

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    /// What is known after each byte of the content, and at its end.
    fn look(kind: &'static str, content: &str) -> (Option<usize>, bool) {
        let kind = HeaderValue::from_static(kind);
        let mut look = TokenLook::new(&HeaderMap::from_iter([(CONTENT_TYPE, kind)])).unwrap();
        for (at, byte) in content.bytes().enumerate() {
            if let Some(has) = look.piece(&[byte]) {
                return (Some(at + 1), has);
            }
        }
        (None, look.end())
    }

    #[test]
    fn what_is_no_token_is_known_by_its_first_bytes() {
        for (kind, content, after) in [
            (
                "application/json",
                r#" {"a":["}","\"}"],"b":{}} {"access_token":"AAAAAAAAAAAAAAAA","expires_in":1}"#,
                25,
            ),
            ("application/json", "12", 2),
            ("text/html", "<html>access_token=A&expires_in=1", 1),
            ("text/plain", "time=2026 token=A", 10),
            ("text/plain", "one line\n", 4),
        ] {
            assert_eq!(
                look(kind, content),
                (Some(after).filter(|_| content != "12"), false),
                "{content}"
            );
        }
        let prose = "a".repeat(100);
        assert_eq!(look("text/plain", &prose).0, Some(LONGEST_NAME));
        for kind in ["text/event-stream", "application/grpc+json", "image/png"] {
            let kind = HeaderValue::from_static(kind);
            assert!(TokenLook::new(&HeaderMap::from_iter([(CONTENT_TYPE, kind)])).is_none());
        }
        let long = format!(r#"{{"a":"{}""#, "b".repeat(TokenLook::LONGEST));
        assert_eq!(
            look("application/json", &long),
            (Some(TokenLook::LONGEST + 1), false)
        );
    }

    #[test]
    fn a_token_is_known_by_what_stands_beside_it() {
        let token = "AAAAAAAAAAAAAAAAAAAA";
        for content in [
            r#"{"accessToken":"@","expiresIn":1}"#,
            r#"{"ok":true,"authed_user":{"access_token":"@","token_type":"user"}}"#,
            r#"{"access_token":"@","scope":"write_orders"}"#,
            r#"{"token":"@","issued_at":"x"}"#,
            r#"[{"idToken":"@","refreshToken":"@2"}]"#,
            r#"[{"data":{}},{"data":{"access_token":"@","expires_in":1}}]"#,
            r#"["x",{"access_token":"@","expires_in":1}]"#,
            r#"cb({"access_token":"@","expires_in":1})"#,
            r#"/**/a.b_c([{"access_token":"@","expires_in":1}])"#,
            ")]}'\n{\"access_token\":\"@\",\"expires_in\":1}",
            "for(;;);{\"access_token\":\"@\",\"expires_in\":1}",
            r#"{"access_token":"@","scope":"a","a":1,"a":2}"#,
            r#"{"token":"@","issued_at":"x","name":"\ud800"}"#,
            r#"{"idToken":"@","refreshToken":"@","name":"\ud800"}"#,
            r#"{"\u0061ccess_token":"@","expires_in":1,"name":"\ud800"}"#,
            r#"{"objects":[{"actions":{"download":{"href":"https://a.test/x","header":{"authorization":"RemoteAuth @"}}}}]}"#,
            r#"{"\u0061ccess_token":"@","expires_in":1}"#,
            "access_token=@&expires=5183999",
            r#"{"access_token":"@","access_token":"@","expires_in":1}"#,
            r#"{"access_token":"@","expires_in":1"#,
        ] {
            let content = content.replace('@', token);
            assert!(
                look("application/json", &content).1 || look("text/plain", &content).1,
                "{content}"
            );
        }
        let content = r#"{"access_token":"@","expires_in":1}"#.replace('@', token);
        for (mark, is_big) in [
            ("", true),
            ("", false),
            ("\u{feff}", true),
            ("\u{feff}", false),
        ] {
            let text = format!("{mark}{content}");
            let units = text.encode_utf16().flat_map(|unit| {
                if is_big {
                    unit.to_be_bytes()
                } else {
                    unit.to_le_bytes()
                }
            });
            let kind = HeaderValue::from_static("application/json; charset=utf-16");
            let fields = HeaderMap::from_iter([(CONTENT_TYPE, kind)]);
            let mut look = TokenLook::new(&fields).unwrap();
            let units: Vec<u8> = units.collect();
            assert_eq!(look.piece(&units), Some(true), "{mark:?} {is_big}");
        }
        for content in [
            r#"(function(){var a={"access_token":"@","expires_in":1}})()"#,
            r#"define(["access_token"],function(){return{"access_token":"@","expires_in":1}})"#,
            r#"{"access_token":"@"}"#,
            r#"{"access_token":"short","expires_in":1}"#,
            r#"{"token":"@","scope":"source.rust"}"#,
            r#"{"next_page_token":"@","expires_in":1}"#,
            r#"{"usage":{"input_tokens":1,"token":"@"},"expires_in":1}"#,
            r#"{"objects":[{"actions":{"download":{"href":"https://a.test/x","header":{"Authorization":"Basic @"}}}}]}"#,
            r#"{"message":"{\"access_token\":\"@\",\"expires_in\":1}"}"#,
        ] {
            let content = content.replace('@', token);
            assert!(!look("application/json", &content).1, "{content}");
        }
    }
}
