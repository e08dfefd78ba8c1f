//! Request heads of HTTP/1, read line by line under the strictest reading of RFC 9112.

use http::{Uri, Version};

use crate::message::{Authority, AuthorityMalformed};
use crate::names::ReasonCode;

/// Why a request is not well-formed HTTP/1.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// A line that does not end in CRLF, or a carriage return elsewhere (RFC 9112 §2.2).
    #[error("a line does not end in CRLF")]
    LineEnd,
    /// Not `METHOD SP target SP version`, or an empty line before it.
    #[error("the request line is not a method, a target and a version with one space between")]
    RequestLine,
    /// The method is not a token, or is longer than 32 bytes.
    #[error("the method is not a token of at most 32 bytes")]
    Method,
    /// A version that is neither HTTP/1.0 nor HTTP/1.1, or none.
    #[error("the version is neither HTTP/1.0 nor HTTP/1.1")]
    Version,
    /// A target with a byte that no target holds.
    #[error("the request target holds a character that it may not hold")]
    Target,
    /// A target whose form does not fit the method (RFC 9112 §3.2).
    #[error("the request target has a form that does not fit the method")]
    TargetForm,
    /// An absolute target of a scheme that is not `http` or `https`.
    #[error("the request target has a scheme that the gateway does not speak")]
    Scheme,
    /// The target of CONNECT is not a host and a port.
    #[error("the target of CONNECT is not a host and a port")]
    Authority(#[from] AuthorityMalformed),
    /// The target is longer than 8 KiB.
    #[error("the request target is longer than 8 KiB")]
    TargetTooLong,
    /// A field line without a colon, with a name that is not a token, folded, or with a control in
    /// its value.
    #[error("a field line is not a name, a colon and a value")]
    Field,
    /// More than 100 fields, or more than 32 KiB of them.
    #[error("the fields are more than 100 or longer than 32 KiB")]
    FieldsTooLarge,
    /// Not exactly one `Host` that is not empty.
    #[error("there is not exactly one host")]
    HostCount,
    /// `Content-Length` or `Transfer-Encoding` is doubled, mixed, or not exactly what RFC 9112 §6
    /// has.
    #[error("the length of the content is not told in exactly one way")]
    Framing,
    /// An expectation that is not one `100-continue` (RFC 9110 §10.1.1).
    #[error("the expectation is not `100-continue`")]
    Expectation,
    /// Chunked coding that is not size, CRLF, data, CRLF; extensions are refused.
    #[error("the content is not in chunks")]
    Chunk,
    /// A trailer section that is malformed, too long, or holds a field that no trailer may hold.
    #[error("the trailers are malformed or hold a field that no trailer may hold")]
    Trailer,
}

impl Malformed {
    /// The short code for refusals and audit records.
    pub fn reason(&self) -> ReasonCode {
        match self {
            Malformed::LineEnd | Malformed::RequestLine | Malformed::Field => ReasonCode::Syntax,
            Malformed::Method => ReasonCode::Method,
            Malformed::Version => ReasonCode::Version,
            Malformed::Target => ReasonCode::Path,
            Malformed::TargetForm => ReasonCode::TargetForm,
            Malformed::Scheme => ReasonCode::Scheme,
            Malformed::Authority(authority) => authority.reason(),
            Malformed::TargetTooLong => ReasonCode::TargetLength,
            Malformed::FieldsTooLarge => ReasonCode::FieldsTooLarge,
            Malformed::HostCount => ReasonCode::HostCount,
            Malformed::Framing | Malformed::Chunk => ReasonCode::Framing,
            Malformed::Expectation => ReasonCode::Expectation,
            Malformed::Trailer => ReasonCode::Trailer,
        }
    }
}

/// How the end of a request's content is told (RFC 9112 §6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Framing {
    /// There is no content.
    #[default]
    None,
    /// So many bytes.
    Length(u64),
    /// Until the last chunk.
    Chunked,
}

/// Whether a whole head stands in the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status<T> {
    /// It does.
    Complete(T),
    /// What is there is well-formed so far; more must come.
    Partial,
}

/// A well-formed request head, borrowed from the bytes it was read from.
#[derive(Clone, Copy)]
pub struct Head<'b> {
    /// The method token.
    pub method: &'b [u8],
    /// The target in whichever form it stands.
    pub target: &'b [u8],
    /// HTTP/1.0 or HTTP/1.1.
    pub version: Version,
    /// How its content ends.
    pub framing: Framing,
    /// The client waits for 100 before it sends content.
    pub expects_continue: bool,
    /// What follows may be another protocol: CONNECT, or `Upgrade` to anything but `h2c` without
    /// content.
    pub switches: bool,
    /// The length of the head in bytes, with the empty line that ends it.
    pub length: usize,
    lines: &'b [u8],
}

impl<'b> Head<'b> {
    /// The fields in order: names as written, values without white space around them.
    pub fn fields(&self) -> impl Iterator<Item = (&'b [u8], &'b [u8])> {
        // Every line was read before, so it ends in CRLF and has a colon.
        self.lines.split(|b| *b == b'\n').filter_map(|line| {
            let line = line.strip_suffix(b"\r")?;
            let colon = memchr::memchr(b':', line)?;
            Some((&line[..colon], trimmed(&line[colon + 1..])))
        })
    }
}

/// Reads one request head from the beginning of `bytes`.
///
/// Accepts what RFC 9112 says a client must send and nothing that it allows a server to forgive:
/// CRLF alone ends a line, no empty line comes first, one `Host`, one `Content-Length` in plain
/// digits or one `Transfer-Encoding: chunked`.
///
/// # Errors
/// By cause, see [`Malformed`]; as soon as the line that is at fault is complete.
pub fn parse_head(bytes: &[u8]) -> Result<Status<Head<'_>>, Malformed> {
    let mut reader = Reader::default();
    Ok(match reader.read(bytes)? {
        Some(length) => Status::Complete(reader.head(bytes, length)),
        None => Status::Partial,
    })
}

/// A head in the reading: may be given ever longer beginnings of the same bytes, and looks at each
/// byte once.
#[derive(Debug, Clone, Default)]
pub(super) struct Reader {
    lines: Lines,
    /// How far no control was found.
    clean: usize,
    /// Where the request line ends; zero until it was read.
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

impl Reader {
    /// The head's length once it is complete.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Result<Option<usize>, Malformed> {
        let outcome = self.read_lines(bytes);
        // Complete lines only, and before any other fault in them, so that the cause does not
        // depend on how reads were cut.
        if self.fields_start > 0 && has_control(&bytes[self.clean..self.lines.start]) {
            return Err(Malformed::Field);
        }
        self.clean = self.lines.start;
        outcome
    }

    fn read_lines(&mut self, bytes: &[u8]) -> Result<Option<usize>, Malformed> {
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

    pub(super) fn framing(&self) -> Framing {
        match self.length {
            _ if self.chunked => Framing::Chunked,
            // No content and content of no bytes are told apart by nothing behind us.
            None | Some(0) => Framing::None,
            Some(length) => Framing::Length(length),
        }
    }

    pub(super) fn switches(&self) -> bool {
        self.connect || (self.upgrade && !self.http10 && self.framing() == Framing::None)
    }

    fn head<'b>(&self, bytes: &'b [u8], length: usize) -> Head<'b> {
        Head {
            method: &bytes[..self.method_end],
            target: &bytes[self.method_end + 1..self.target_end],
            version: if self.http10 {
                Version::HTTP_10
            } else {
                Version::HTTP_11
            },
            framing: self.framing(),
            expects_continue: self.expects_continue,
            switches: self.switches(),
            length,
            lines: &bytes[self.fields_start..length - 2],
        }
    }

    /// RFC 9112 §3.
    fn request_line(&mut self, line: &[u8]) -> Result<(), Malformed> {
        if line.is_empty() {
            return Err(Malformed::RequestLine);
        }
        let method_end = line
            .iter()
            .position(|b| !is_token_byte(*b))
            .ok_or(Malformed::Version)?;
        if method_end == 0 || line[method_end] != b' ' {
            return Err(Malformed::Method);
        }
        let rest = &line[method_end + 1..];
        let Some(target_length) = memchr::memchr(b' ', rest) else {
            return Err(if rest.len() > LONGEST_TARGET {
                Malformed::TargetTooLong
            } else {
                Malformed::Version
            });
        };
        if method_end > LONGEST_METHOD {
            return Err(Malformed::Method);
        }
        if target_length > LONGEST_TARGET {
            return Err(Malformed::TargetTooLong);
        }
        self.http10 = match &rest[target_length + 1..] {
            b"HTTP/1.1" => false,
            b"HTTP/1.0" => true,
            [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
                if major.is_ascii_digit() && minor.is_ascii_digit() =>
            {
                return Err(Malformed::Version);
            }
            _ => return Err(Malformed::RequestLine),
        };
        self.method_end = method_end;
        self.target_end = method_end + 1 + target_length;
        self.connect = &line[..method_end] == b"CONNECT";
        check_target(&line[..method_end], &rest[..target_length])
    }

    fn field(&mut self, line: &[u8]) -> Result<(), Malformed> {
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

    /// RFC 9112 §3.2.
    fn host(&mut self, value: &[u8]) -> Result<(), Malformed> {
        if self.host || trimmed(value).is_empty() {
            return Err(Malformed::HostCount);
        }
        self.host = true;
        Ok(())
    }

    fn expect(&mut self, value: &[u8]) -> Result<(), Malformed> {
        if self.expects_continue || !trimmed(value).eq_ignore_ascii_case(b"100-continue") {
            return Err(Malformed::Expectation);
        }
        self.expects_continue = true;
        Ok(())
    }

    /// An upgrade to `h2c` is one that the gateway ignores, as RFC 9113 §3.1 lets it: the request
    /// stays HTTP/1.1.
    fn upgrade(&mut self, value: &[u8]) -> Result<(), Malformed> {
        self.upgrade |= value
            .split(|b| *b == b',')
            .any(|protocol| !trimmed(protocol).eq_ignore_ascii_case(b"h2c"));
        Ok(())
    }

    /// RFC 9112 §6.2: once, plain digits without a leading zero or a list.
    fn content_length(&mut self, value: &[u8]) -> Result<(), Malformed> {
        let digits = spaces_trimmed(value);
        let plain = matches!(digits, [b'0'] | [b'1'..=b'9', ..]) && digits.len() <= 19;
        if self.length.is_some() || !plain || !digits.iter().all(u8::is_ascii_digit) {
            return Err(Malformed::Framing);
        }
        // 19 digits are below 2^64.
        let length = digits
            .iter()
            .fold(0_u64, |length, digit| length * 10 + u64::from(digit - b'0'));
        if length > LONGEST_CONTENT {
            return Err(Malformed::Framing);
        }
        self.length = Some(length);
        Ok(())
    }

    /// RFC 9112 §6.1: once, and `chunked` alone.
    fn transfer_encoding(&mut self, value: &[u8]) -> Result<(), Malformed> {
        if self.chunked || !spaces_trimmed(value).eq_ignore_ascii_case(b"chunked") {
            return Err(Malformed::Framing);
        }
        self.chunked = true;
        Ok(())
    }

    /// What only the whole head shows.
    fn check(&self) -> Result<(), Malformed> {
        // Python's http.client before 3.12, and with it requests and boto3, says CONNECT by
        // HTTP/1.0, which has no Host (RFC 9112 §3.2); the target names the authority.
        let may_lack = self.connect && self.http10;
        if !self.host && !may_lack {
            return Err(Malformed::HostCount);
        }
        // RFC 9112 §6.1 and §6.3: both at once is an attack; HTTP/1.0 has no chunks; CONNECT has no
        // content (RFC 9110 §9.3.6).
        let both = self.chunked && self.length.is_some();
        let framed = self.chunked || self.length.is_some();
        if both || (self.chunked && self.http10) || (self.connect && framed) {
            return Err(Malformed::Framing);
        }
        Ok(())
    }

    fn check_size(&self, read: usize) -> Result<(), Malformed> {
        if self.fields_start == 0 {
            return if read > LONGEST_REQUEST_LINE {
                Err(Malformed::TargetTooLong)
            } else {
                Ok(())
            };
        }
        if self.fields > MOST_FIELDS || read - self.fields_start > LONGEST_FIELDS {
            return Err(Malformed::FieldsTooLarge);
        }
        Ok(())
    }
}

/// Lines that end in CRLF, found in a beginning that grows.
#[derive(Debug, Clone, Default)]
pub(super) struct Lines {
    /// Where the next line starts.
    pub(super) start: usize,
    looked: usize,
}

impl Lines {
    /// The next line without its CRLF, once it is complete.
    pub(super) fn next<'b>(&mut self, bytes: &'b [u8]) -> Result<Option<&'b [u8]>, Malformed> {
        let Some(found) = memchr::memchr2(b'\r', b'\n', &bytes[self.looked..]) else {
            self.looked = bytes.len();
            return Ok(None);
        };
        self.looked += found;
        match &bytes[self.looked..] {
            [b'\r', b'\n', ..] => {}
            [b'\r'] => return Ok(None),
            _ => return Err(Malformed::LineEnd),
        }
        let line = &bytes[self.start..self.looked];
        self.looked += 2;
        self.start = self.looked;
        Ok(Some(line))
    }
}

/// RFC 9112 §5: name, colon, value; no white space before the colon and no folding. Controls are
/// for [`has_control`].
pub(super) fn split_field(line: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    match line.iter().position(|b| !is_token_byte(*b)) {
        Some(colon @ 1..) if line[colon] == b':' => Ok((&line[..colon], &line[colon + 1..])),
        _ => Err(Malformed::Field),
    }
}

/// A control other than tab, CR and LF. No early end: this form runs over many bytes at once.
pub(super) fn has_control(bytes: &[u8]) -> bool {
    let control = |b: u8| ((b < 0x20) & (b != b'\t') & (b != b'\r') & (b != b'\n')) | (b == 0x7f);
    bytes.iter().fold(false, |found, &b| found | control(b))
}

/// The shape of the target; what it means is for `message::agree` and `message::RequestTarget`.
fn check_target(method: &[u8], target: &[u8]) -> Result<(), Malformed> {
    if target.is_empty() {
        return Err(Malformed::RequestLine);
    }
    if !target.iter().fold(true, |good, &b| {
        good & (b > 0x20) & (b < 0x7f) & (b != b'#')
    }) {
        return Err(Malformed::Target);
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
    // What `http` does not take, hyper would refuse on its own, without a record.
    let uri = Uri::try_from(target).map_err(|_| Malformed::Target)?;
    match uri.scheme_str() {
        _ if target[0] == b'/' => Ok(()),
        None => Err(Malformed::TargetForm),
        Some("http" | "https") => Ok(()),
        Some(_) => Err(Malformed::Scheme),
    }
}

fn trimmed(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// White space around a framing field's value may be spaces only: parsers differ on tabs there.
fn spaces_trimmed(mut value: &[u8]) -> &[u8] {
    while let [b' ', rest @ ..] | [rest @ .., b' '] = value {
        value = rest;
    }
    value
}

fn is_token_byte(byte: u8) -> bool {
    BYTES[usize::from(byte)] & TOKEN != 0
}

fn is_plain_target_byte(byte: u8) -> bool {
    BYTES[usize::from(byte)] & PLAIN != 0
}

const TOKEN: u8 = 1;
const PLAIN: u8 = 2;

/// RFC 9110 §5.6.2 tokens, and the bytes of RFC 3986 paths and queries.
static BYTES: [u8; 256] = {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 128 {
        let byte = at as u8;
        let alphanumeric = byte.is_ascii_alphanumeric();
        if alphanumeric || is_one_of(byte, b"!#$%&'*+-.^_`|~") {
            table[at] |= TOKEN;
        }
        if alphanumeric || is_one_of(byte, b"-._~%!$&'()*+,;=:@/?") {
            table[at] |= PLAIN;
        }
        at += 1;
    }
    table
};

const fn is_one_of(byte: u8, set: &[u8]) -> bool {
    let mut at = 0;
    while at < set.len() {
        if set[at] == byte {
            return true;
        }
        at += 1;
    }
    false
}

const LONGEST_METHOD: usize = 32;
const LONGEST_TARGET: usize = 8192;
/// Method, target, version, two spaces and CRLF.
const LONGEST_REQUEST_LINE: usize = LONGEST_METHOD + LONGEST_TARGET + 12;
const MOST_FIELDS: usize = 100;
const LONGEST_FIELDS: usize = 32 * 1024;
const LONGEST_CONTENT: u64 = i64::MAX as u64;
