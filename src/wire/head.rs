//! Request heads of HTTP/1, read line by line under the strictest reading of RFC 9112.

use http::Uri;

use super::lines::{
    Lines, has_control, is_plain_target_byte, is_token_byte, spaces_trimmed, split_field,
};
use super::malformed::WireMalformed;
use gateway_message::Authority;

/// The framing that ends a request's content (RFC 9112 §6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Framing {
    /// There is no content.
    #[default]
    None,
    /// This many bytes.
    Length(u64),
    /// Until the last chunk.
    Chunked,
}

/// A well-formed request head, borrowed from the bytes it was parsed from.
#[derive(Clone, Copy)]
pub struct ParsedHead<'b> {
    /// The method token.
    pub method: &'b [u8],
    /// The target, in any of its forms.
    pub target: &'b [u8],
    /// The length of the head in bytes, including the empty line that ends it.
    pub length: usize,
    lines: &'b [u8],
}

impl<'b> ParsedHead<'b> {
    /// The fields in order: names as written, values without white space around them.
    pub fn fields(&self) -> impl Iterator<Item = (&'b [u8], &'b [u8])> {
        // Every line was parsed before, so it ends in CRLF and has a colon.
        self.lines.split(|b| *b == b'\n').filter_map(|line| {
            let line = line.strip_suffix(b"\r")?;
            let colon = memchr::memchr(b':', line)?;
            Some((&line[..colon], line[colon + 1..].trim_ascii()))
        })
    }
}

/// Parses one request head from the start of `bytes`.
///
/// Accepts what RFC 9112 says a client must send, and nothing that it lets a server tolerate: only
/// CRLF ends a line, no empty line comes first, one `Host`, one `Content-Length` in plain digits or
/// one `Transfer-Encoding: chunked`. `None` if the bytes are well-formed so far, and more must
/// arrive.
///
/// # Errors
/// [`WireMalformed`] by cause, as soon as the faulty line is complete.
pub fn parse_head(bytes: &[u8]) -> Result<Option<ParsedHead<'_>>, WireMalformed> {
    let mut reader = HeadReader::default();
    let length = reader.read(bytes)?;
    Ok(length.map(|length| reader.head(bytes, length)))
}

/// Refuses bytes that begin no method before the line is complete: binary protocols have no lines.
fn check_start(bytes: &[u8]) -> Result<(), WireMalformed> {
    let mut start = bytes.iter().take(LONGEST_METHOD);
    match start.find(|byte| !is_token_byte(**byte)) {
        None | Some(b' ' | b'\r' | b'\n') => Ok(()),
        Some(_) => Err(WireMalformed::Method),
    }
}

/// An incremental head parser. It takes ever longer prefixes of the same bytes, and reads each byte
/// once.
#[derive(Debug, Clone, Default)]
pub struct HeadReader {
    lines: Lines,
    /// The bytes before this offset contain no control.
    clean: usize,
    /// Where the request line ends; zero until it was parsed.
    fields_start: usize,
    method_end: usize,
    target_end: usize,
    http10: bool,
    fields: usize,
    host: bool,
    length: Option<u64>,
    chunked: bool,
    expects_continue: bool,
    upgrade: bool,
    connect: bool,
}

impl HeadReader {
    /// The head's length once it is complete.
    ///
    /// # Errors
    /// [`WireMalformed`] by cause, as soon as the faulty line is complete.
    pub fn read(&mut self, bytes: &[u8]) -> Result<Option<usize>, WireMalformed> {
        let outcome = self.read_lines(bytes);
        // Only complete lines are checked, and this fault comes before any other in them, so that
        // the cause does not depend on how reads were split.
        if self.fields_start > 0 && has_control(&bytes[self.clean..self.lines.start]) {
            return Err(WireMalformed::Field);
        }
        self.clean = self.lines.start;
        outcome
    }

    fn read_lines(&mut self, bytes: &[u8]) -> Result<Option<usize>, WireMalformed> {
        if self.fields_start == 0 {
            check_start(bytes)?;
        }
        while let Some(line) = self.lines.next(bytes)? {
            if self.fields_start == 0 {
                self.request_line(line)?;
                self.fields_start = self.lines.start;
            } else if line.is_empty() {
                self.check()?;
                return Ok(Some(self.lines.start));
            } else {
                self.field(line)?;
                self.check_size(self.lines.start)?;
            }
        }
        self.check_size(bytes.len())?;
        Ok(None)
    }

    /// The framing of the content.
    pub fn framing(&self) -> Framing {
        match self.length {
            _ if self.chunked => Framing::Chunked,
            // Later stages do not distinguish no content from empty content.
            None | Some(0) => Framing::None,
            Some(length) => Framing::Length(length),
        }
    }

    /// Whether another protocol may follow: CONNECT, or `Upgrade: websocket` without content.
    pub fn switches(&self) -> bool {
        self.connect || (self.upgrade && !self.http10 && self.framing() == Framing::None)
    }

    fn head<'b>(&self, bytes: &'b [u8], length: usize) -> ParsedHead<'b> {
        ParsedHead {
            method: &bytes[..self.method_end],
            target: &bytes[self.method_end + 1..self.target_end],
            length,
            lines: &bytes[self.fields_start..length - 2],
        }
    }

    /// Parses the request line (RFC 9112 §3).
    fn request_line(&mut self, line: &[u8]) -> Result<(), WireMalformed> {
        if line.is_empty() {
            return Err(WireMalformed::RequestLine);
        }
        let method_end = line
            .iter()
            .position(|b| !is_token_byte(*b))
            .ok_or(WireMalformed::Version)?;
        if method_end == 0 || line[method_end] != b' ' {
            return Err(WireMalformed::Method);
        }
        let rest = &line[method_end + 1..];
        let Some(target_length) = memchr::memchr(b' ', rest) else {
            return Err(if rest.len() > LONGEST_TARGET {
                WireMalformed::TargetTooLong
            } else {
                WireMalformed::Version
            });
        };
        if method_end > LONGEST_METHOD {
            return Err(WireMalformed::Method);
        }
        if target_length > LONGEST_TARGET {
            return Err(WireMalformed::TargetTooLong);
        }
        self.http10 = match &rest[target_length + 1..] {
            b"HTTP/1.1" => false,
            b"HTTP/1.0" => true,
            [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
                if major.is_ascii_digit() && minor.is_ascii_digit() =>
            {
                return Err(WireMalformed::Version);
            }
            _ => return Err(WireMalformed::RequestLine),
        };
        self.method_end = method_end;
        self.target_end = method_end + 1 + target_length;
        self.connect = &line[..method_end] == b"CONNECT";
        check_target(&line[..method_end], &rest[..target_length])
    }

    fn field(&mut self, line: &[u8]) -> Result<(), WireMalformed> {
        self.fields += 1;
        let (name, value) = split_field(line)?;
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => self.host(value),
            6 if name.eq_ignore_ascii_case(b"expect") => self.expect(value),
            7 if name.eq_ignore_ascii_case(b"upgrade") => self.upgrade(value),
            14 if name.eq_ignore_ascii_case(b"content-length") => self.content_length(value),
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => self.transfer_encoding(value),
            _ => Ok(()),
        }
    }

    /// Accepts one non-empty `Host` (RFC 9112 §3.2).
    fn host(&mut self, value: &[u8]) -> Result<(), WireMalformed> {
        if self.host || value.trim_ascii().is_empty() {
            return Err(WireMalformed::HostCount);
        }
        self.host = true;
        Ok(())
    }

    fn expect(&mut self, value: &[u8]) -> Result<(), WireMalformed> {
        if self.expects_continue || !value.trim_ascii().eq_ignore_ascii_case(b"100-continue") {
            return Err(WireMalformed::Expectation);
        }
        self.expects_continue = true;
        Ok(())
    }

    /// Only an upgrade to `websocket` is taken. Any other is ignored (RFC 9110 §7.8): the request
    /// stays HTTP/1.1.
    fn upgrade(&mut self, value: &[u8]) -> Result<(), WireMalformed> {
        self.upgrade |= value.trim_ascii().eq_ignore_ascii_case(b"websocket");
        Ok(())
    }

    /// Accepts one length in plain digits, without a leading zero and not as a list (RFC 9112
    /// §6.2).
    fn content_length(&mut self, value: &[u8]) -> Result<(), WireMalformed> {
        let digits = spaces_trimmed(value);
        let plain = matches!(digits, [b'0'] | [b'1'..=b'9', ..]) && digits.len() <= 19;
        if self.length.is_some() || !plain || !digits.iter().all(u8::is_ascii_digit) {
            return Err(WireMalformed::Framing);
        }
        // 19 digits are below 2^64.
        let length = digits
            .iter()
            .fold(0_u64, |length, digit| length * 10 + u64::from(digit - b'0'));
        if length > LONGEST_CONTENT {
            return Err(WireMalformed::Framing);
        }
        self.length = Some(length);
        Ok(())
    }

    /// Accepts only one `chunked` (RFC 9112 §6.1).
    fn transfer_encoding(&mut self, value: &[u8]) -> Result<(), WireMalformed> {
        if self.chunked || !spaces_trimmed(value).eq_ignore_ascii_case(b"chunked") {
            return Err(WireMalformed::Framing);
        }
        self.chunked = true;
        Ok(())
    }

    /// Checks that need the whole head.
    fn check(&self) -> Result<(), WireMalformed> {
        // Python's http.client before 3.12, and with it requests and boto3, sends CONNECT as
        // HTTP/1.0, which has no Host (RFC 9112 §3.2); the target names the authority.
        let may_lack = self.connect && self.http10;
        if !self.host && !may_lack {
            return Err(WireMalformed::HostCount);
        }
        // RFC 9112 §6.1 and §6.3: both at once is an attack; HTTP/1.0 has no chunks; CONNECT has no
        // content (RFC 9110 §9.3.6).
        let both = self.chunked && self.length.is_some();
        let framed = self.chunked || self.length.is_some();
        if both || (self.chunked && self.http10) || (self.connect && framed) {
            return Err(WireMalformed::Framing);
        }
        Ok(())
    }

    fn check_size(&self, read: usize) -> Result<(), WireMalformed> {
        if self.fields_start == 0 {
            return if read > LONGEST_REQUEST_LINE {
                Err(WireMalformed::TargetTooLong)
            } else {
                Ok(())
            };
        }
        if self.fields > MOST_FIELDS || read - self.fields_start > LONGEST_FIELDS {
            return Err(WireMalformed::FieldsTooLarge);
        }
        Ok(())
    }
}

/// Checks the form of the target; `message::agree` and `message::RequestTarget` interpret it.
fn check_target(method: &[u8], target: &[u8]) -> Result<(), WireMalformed> {
    if target.is_empty() {
        return Err(WireMalformed::RequestLine);
    }
    if !target.iter().fold(true, |good, &b| {
        good & (b > 0x20) & (b != 0x7f) & (b != b'#')
    }) {
        return Err(WireMalformed::Target);
    }
    if method == b"CONNECT" {
        Authority::parse(target, None)?;
        return Ok(());
    }
    match target {
        b"*" if method == b"OPTIONS" => return Ok(()),
        [b'/', ..] if target.iter().all(|b| is_plain_target_byte(*b)) => return Ok(()),
        _ => {}
    }
    // hyper would refuse a target that `http` does not accept, without a record.
    let uri = Uri::try_from(target).map_err(|_| WireMalformed::Target)?;
    match uri.scheme_str() {
        _ if target[0] == b'/' => Ok(()),
        None => Err(WireMalformed::TargetForm),
        Some("http" | "https") => Ok(()),
        Some(_) => Err(WireMalformed::Scheme),
    }
}

const LONGEST_METHOD: usize = 32;
const LONGEST_TARGET: usize = 8192;
/// Method, target, version, two spaces and CRLF.
const LONGEST_REQUEST_LINE: usize = LONGEST_METHOD + LONGEST_TARGET + 12;
const MOST_FIELDS: usize = 100;
const LONGEST_FIELDS: usize = 32 * 1024;
const LONGEST_CONTENT: u64 = i64::MAX as u64;

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_head_that_is_written_is_read_however_it_is_cut(
            method in "[A-Z]{1,6}", target in "/[a-z0-9/?=&%.-]{0,30}", length in 0..1_000_u64,
            fields in vec(("x-[a-z!#]{0,9}", "[!-~]([\t -~]{0,20}[!-~])?"), 0..20), step in 1..99_usize,
        ) {
            let fields: Vec<_> = fields.into_iter().chain([
                ("Host".to_owned(), "good.example".to_owned()),
                ("Content-Length".to_owned(), length.to_string()),
            ]).collect();
            let line = |(name, value): &(String, String)| format!("{name}: {value}\r\n");
            let lines: String = fields.iter().map(line).collect();
            let written = format!("{method} {target} HTTP/1.1\r\n{lines}\r\n");
            let all = written.clone() + "GET /";
            let mut reader = HeadReader::default();
            let mut ends = (0..written.len()).step_by(step).chain([all.len()]);
            let read = ends.find_map(|end| reader.read(&all.as_bytes()[..end]).unwrap());
            prop_assert_eq!(read, Some(written.len()));
            let framing = if length == 0 { Framing::None } else { Framing::Length(length) };
            prop_assert_eq!(reader.framing(), framing);
            let head = parse_head(all.as_bytes()).unwrap().unwrap();
            prop_assert_eq!((head.method, head.target), (method.as_bytes(), target.as_bytes()));
            let expected = fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
            prop_assert!(head.fields().eq(expected));
        }
    }
}
