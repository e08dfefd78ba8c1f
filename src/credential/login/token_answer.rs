//! Reads the tokens in the response of an authorization server, and replaces them.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use gateway_message::folded;
use gateway_message::json::{Json, JsonParts, Value};
use gateway_message::pairs::ESCAPED;
use memchr::memmem::Finder;
use percent_encoding::{percent_decode, utf8_percent_encode};
use zeroize::Zeroizing;

use super::moment::{self, MomentFormat};
use super::tokens::{TokenKind, Tokens};
use crate::secret::Secret;

/// The most tokens in one response: three of RFC 6749 and similar ones, in a few spellings.
const MOST_TOKENS: usize = 12;

/// The longest token, in bytes: its search forms take about two thousand times as much memory.
const LONGEST_TOKEN: usize = 8 * 1024;

/// The tokens in a response (RFC 6749 §5.1), as JSON or a form, and their positions.
pub struct TokenAnswer {
    /// The tokens.
    pub tokens: Tokens,
    /// The address and the scheme that they are for, if the response says so.
    pub target: Option<TokenTarget>,
    places: Vec<(TokenKind, Range<usize>)>,
    is_form: bool,
}

/// The target of a token, as an action of Git LFS states it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenTarget {
    /// A URL.
    pub address: String,
    /// The scheme of `Authorization` (RFC 9110 §11.1).
    pub scheme: String,
}

/// A response has a token that cannot be read in exactly one way, or that cannot be kept. The
/// client gets no part of the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UnmappedToken {
    /// The response is too long to hold tokens, has a content coding, or broke off.
    #[error("the answer with tokens is longer than 64 KiB, has a content coding, or broke off")]
    Unheld,
    /// It is not well-formed, or has a member twice.
    #[error("the answer with tokens is not well-formed, or a member stands in it twice")]
    Illegible,
    /// A token is in a member that is not known, or is of a kind that cannot be lent.
    #[error("the answer has a token that the gateway does not know how to lend")]
    Unknown,
    /// Policy allows no request to the host of the tokens, or that host has another credential.
    #[error("the tokens are for a host that policy does not allow, or that has a credential")]
    Host,
    /// A token is too long, or the session's tokens together exceed the limit of the search.
    #[error(
        "a token is longer than 8 KiB, or the session's tokens are longer than 16 KiB together"
    )]
    TooLong,
    /// They came in cleartext.
    #[error("the tokens came in clear text")]
    Cleartext,
    /// The session has reached its limit of logins.
    #[error("the session has logged in at as many services as it may")]
    TooMany,
    /// The gateway could not store them.
    #[error("the gateway could not keep the tokens of the answer")]
    Unkept,
}

impl TokenAnswer {
    /// Reads the content of a response, of the given type. `None` if there is no token in it.
    ///
    /// # Errors
    /// [`UnmappedToken`] if there may be a token that cannot be read in exactly one way.
    pub fn read(kind: &str, content: &[u8]) -> Result<Option<Self>, UnmappedToken> {
        let (found, is_form) = TokenSearch::read(kind, content)?;
        found.settled(content, is_form)
    }

    /// Whether content has a token next to a member that only tokens have: the end, type or scope,
    /// or another token. Content that looks so and cannot be read counts as having one.
    pub fn is_in(kind: &str, content: &[u8]) -> bool {
        /// What content with a token has, in any case: a name of one, or an escape in it.
        static MARKS: LazyLock<[Finder<'static>; 3]> =
            LazyLock::new(|| ["token", "authorization", "\\u"].map(Finder::new));
        let lower = content.to_ascii_lowercase();
        if MARKS.iter().all(|mark| mark.find(&lower).is_none()) {
            return false;
        }
        match TokenSearch::read(kind, content) {
            Ok((found, _)) => found.is_issued,
            Err(_) => may_be_issued(content),
        }
    }

    /// Returns the kinds of the tokens.
    pub fn kinds(&self) -> impl Iterator<Item = TokenKind> {
        let has = |kind: &TokenKind| self.tokens.of(*kind).is_some();
        TokenKind::ALL.into_iter().filter(has)
    }

    /// Returns the content with another text in place of each token.
    ///
    /// # Errors
    /// [`UnmappedToken::Unknown`] if there is no text for one of the tokens, or if a token also
    /// appears elsewhere.
    pub fn replaced<'t>(
        &self,
        content: &[u8],
        text: impl Fn(TokenKind) -> Option<&'t str>,
    ) -> Result<Vec<u8>, UnmappedToken> {
        let mut out = Vec::with_capacity(content.len());
        let mut from = 0;
        for (kind, place) in &self.places {
            let text = text(*kind).ok_or(UnmappedToken::Unknown)?;
            out.extend_from_slice(&content[from..place.start]);
            if self.is_form {
                out.extend(utf8_percent_encode(text, ESCAPED).flat_map(str::bytes))
            } else {
                out.extend_from_slice(text.as_bytes())
            }
            from = place.end;
        }
        out.extend_from_slice(&content[from..]);
        let mut tokens = self.kinds().filter_map(|kind| self.tokens.of(kind));
        if tokens.any(|token| memchr::memmem::find(&out, token.as_bytes()).is_some()) {
            Err(UnmappedToken::Unknown)
        } else {
            Ok(out)
        }
    }
}

impl Tokens {
    /// Reads a response to the gateway's own request. Members that it lacks stay as before.
    pub fn of_answer(content: &[u8], before: Option<&Self>) -> Option<Self> {
        let (found, _) = TokenSearch::read("", content).ok()?;
        let new = found.tokens().ok()??;
        Some(Self {
            refresh: new.refresh.or_else(|| before?.refresh.clone()),
            id: new.id.or_else(|| before?.id.clone()),
            scope: new.scope.or_else(|| before?.scope.clone()),
            owner: before.and_then(|before| before.owner.clone()),
            grant: before.and_then(|before| before.grant.clone()),
            ..new
        })
    }
}

/// Whether text of an unknown format may hold a token.
fn names_a_token(content: &[u8]) -> bool {
    let lower = content.to_ascii_lowercase();
    let names = ["access_token", "refresh_token", "id_token", "accesstoken"];
    names
        .iter()
        .any(|name| memchr::memmem::find(&lower, name.as_bytes()).is_some())
}

/// Whether content that cannot be read names a token and a member that goes with tokens.
fn may_be_issued(content: &[u8]) -> bool {
    let lower = String::from_utf8_lossy(content).to_ascii_lowercase();
    // Letters may be written as escapes.
    let mut parts = lower.split("\\u00");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let letter = part
            .get(..2)
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        plain.extend(letter.map(char::from));
        plain.push_str(part.get(2..).unwrap_or(part));
    }
    plain.retain(|letter| letter != '_' && letter != '-');
    let ends = ["expiresin", "expiresat", "tokentype", "issuedat"];
    let has = |name: &&str| plain.contains(*name);
    let known = ["accesstoken", "refreshtoken", "idtoken"];
    let known = known.iter().filter(|name| has(name)).count();
    let is_ending = ends.iter().any(has);
    known > 1 || known == 1 && (is_ending || has(&"scope")) || is_ending && has(&"\"token\"")
}

/// The meaning of a member of a response.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Member {
    Token(TokenKind),
    /// The lifetime of the access token, in seconds.
    Life,
    /// The end of the access token, as GitHub states it for an installation of an App.
    End,
    /// The time of issue, or the end, in a form that is not read.
    Moment,
    Scope,
    Type,
    /// A secret of an unknown kind.
    Unknown,
    Other,
}

impl Member {
    fn named(name: &str) -> Self {
        match folded(name).as_str() {
            "accesstoken" | "token" => Self::Token(TokenKind::Access),
            "refreshtoken" => Self::Token(TokenKind::Refresh),
            "idtoken" => Self::Token(TokenKind::Id),
            "expiresin" => Self::Life,
            "expiresat" => Self::End,
            "issuedat" | "expires" => Self::Moment,
            "scope" => Self::Scope,
            "tokentype" => Self::Type,
            name if name.ends_with("token") || name.contains("secret") => Self::Unknown,
            _ => Self::Other,
        }
    }

    fn is_secret(self) -> bool {
        matches!(self, Self::Token(_) | Self::Unknown)
    }
}

/// The members read from a response.
#[derive(Default)]
struct TokenSearch {
    /// The position of each token; `None` if it could not be replaced there.
    places: Vec<(TokenKind, Option<Range<usize>>, Zeroizing<String>)>,
    life: Option<Duration>,
    end: Option<SystemTime>,
    scope: Option<String>,
    target: Option<TokenTarget>,
    /// Whether there is a token of an unknown kind.
    is_unknown: bool,
    /// Whether a token is next to a member that only tokens have.
    is_issued: bool,
}

impl TokenSearch {
    /// Reads content of the given type, and returns whether it is a form.
    fn read(kind: &str, content: &[u8]) -> Result<(Self, bool), UnmappedToken> {
        let kind = kind.split(';').next().unwrap_or_default().trim();
        let kind = kind.to_ascii_lowercase();
        let mut found = Self::default();
        let first = content.iter().find(|byte| !byte.is_ascii_whitespace());
        let is_json = kind.contains("json") || matches!(first, Some(b'{' | b'['));
        let is_form = !is_json && (kind.contains("form-urlencoded") || names_a_token(content));
        match first {
            None => {}
            Some(_) if is_json => found.json(content)?,
            Some(_) if is_form => found.form(content.trim_ascii_end())?,
            Some(_) => {}
        }
        Ok((found, is_form && first.is_some()))
    }

    fn put(&mut self, member: Member, text: Zeroizing<String>, place: Option<Range<usize>>) {
        match member {
            _ if text.is_empty() => {}
            // The whole response is searched for each token.
            Member::Token(_) if self.places.len() == MOST_TOKENS => self.is_unknown = true,
            Member::Token(kind) => self.places.push((kind, place, text)),
            Member::Unknown => self.is_unknown = true,
            Member::Life => {
                let seconds = text.parse().ok();
                self.life = seconds.and_then(|life| Duration::try_from_secs_f64(life).ok());
            }
            Member::End => {
                let end = moment::read(&text).filter(|(_, form)| *form == MomentFormat::Text);
                self.end = end.map(|(end, _)| end);
            }
            Member::Scope => self.scope = Some(text.to_string()),
            // Such a type binds the token to a client's key, which would have to sign the token.
            Member::Type => {
                let bound = ["dpop", "pop", "mac"].iter();
                self.is_unknown |= bound.into_iter().any(|one| text.eq_ignore_ascii_case(one));
            }
            Member::Moment | Member::Other => {}
        }
    }

    fn json(&mut self, content: &[u8]) -> Result<(), UnmappedToken> {
        let whole =
            Json::read(content, &JsonParts::whole()).map_err(|_| UnmappedToken::Illegible)?;
        self.value(whole.root());
        // A token must not appear anywhere else, in any encoding.
        self.is_unknown |= self.repeats(whole.root());
        Ok(())
    }

    /// Reads an object, and every value in it. Members about a token are in the same object.
    fn value(&mut self, value: Value<'_>) {
        let of_token = |(name, value): (&str, Value<'_>)| {
            Member::named(name).is_secret() && value.text().is_some()
        };
        let has_token = value.members().any(of_token);
        let mut signs = TokenSigns::default();
        for (name, value) in value.members() {
            let (member, at) = (Member::named(name), value.at());
            match value.text() {
                Some(text) => {
                    let text = Zeroizing::new(text.into_owned());
                    signs.see(name, &text);
                    if has_token {
                        self.put(member, text, Some(at.start + 1..at.end - 1));
                    }
                }
                None if value.is_null() => {}
                None if value.is_number() && !member.is_secret() => {
                    let text = Zeroizing::new(value.raw().to_owned());
                    signs.see(name, &text);
                    if has_token {
                        self.put(member, text, None);
                    }
                }
                None => {
                    self.is_unknown |= member.is_secret() && value.flag().is_none();
                    self.value(value);
                }
            }
        }
        self.is_issued |= signs.are_of_a_token();
        self.action(value);
        value.elements().for_each(|(_, one)| self.value(one));
    }

    /// Reads an action of Git LFS: an address, and the token for it. `Basic` repeats the client's
    /// own credentials, and signatures of AWS are no secrets.
    fn action(&mut self, action: Value<'_>) {
        let (Some(address), Some(header)) = (action.member("href"), action.member("header")) else {
            return;
        };
        let mut fields = header.members();
        let field = fields.find(|(name, _)| name.eq_ignore_ascii_case("authorization"));
        let (Some(address), Some((_, value))) = (address.text(), field) else {
            return;
        };
        let text = Zeroizing::new(value.text().unwrap_or_default().into_owned());
        let Some((scheme, token)) = text.split_once(' ') else {
            self.is_issued |= !text.is_empty();
            self.is_unknown |= !text.is_empty();
            return;
        };
        if ["basic", "aws4-hmac-sha256"].contains(&&*scheme.to_ascii_lowercase()) {
            return;
        }
        self.is_issued = true;
        let target = TokenTarget {
            address: address.into_owned(),
            scheme: scheme.to_owned(),
        };
        let is_same = |known: &TokenTarget| {
            known.scheme == target.scheme && host(&known.address) == host(&target.address)
        };
        self.is_unknown |= self.target.as_ref().is_some_and(|known| !is_same(known));
        let at = value.at();
        // A token with escapes in it has no range of its own.
        let is_plain = at.len() == text.len() + 2;
        let place = at.start + 2 + scheme.len()..at.end - 1;
        let token = Zeroizing::new(token.to_owned());
        self.put(
            Member::Token(TokenKind::Access),
            token,
            Some(place).filter(|_| is_plain),
        );
        for (name, value) in action.members() {
            let member = Member::named(name);
            if matches!(member, Member::Life | Member::End) {
                let text = value
                    .text()
                    .map_or(value.raw().to_owned(), |text| text.into_owned());
                self.put(member, Zeroizing::new(text), None);
            }
        }
        self.target = Some(target);
    }

    /// Whether a text other than the token members contains a token.
    fn repeats(&self, value: Value<'_>) -> bool {
        let at = value.at();
        let is_place = |place: &Range<usize>| at.start < place.start && place.end + 1 == at.end;
        let mut places = self.places.iter();
        let is_known = places.any(|(_, place, _)| place.as_ref().is_some_and(is_place));
        let text = value.text().filter(|_| !is_known);
        text.is_some_and(|text| self.has_token(&text))
            || value
                .members()
                .any(|(name, value)| self.has_token(name) || self.repeats(value))
            || value.elements().any(|(_, one)| self.repeats(one))
    }

    fn has_token(&self, text: &str) -> bool {
        let mut tokens = self.places.iter();
        tokens.any(|(.., token)| text.contains(&***token))
    }

    fn form(&mut self, content: &[u8]) -> Result<(), UnmappedToken> {
        let (mut names, mut signs) = (BTreeSet::new(), TokenSigns::default());
        let mut start = 0;
        for pair in content.split(|byte| *byte == b'&') {
            let equals = memchr::memchr(b'=', pair).unwrap_or(pair.len());
            let value = start + (equals + 1).min(pair.len())..start + pair.len();
            start += pair.len() + 1;
            let name = decoded(&pair[..equals])?;
            let member = Member::named(&name);
            let text = match member {
                Member::Other => Zeroizing::default(),
                _ => decoded(&content[value.clone()])?,
            };
            if !names.insert(name.to_string()) {
                return Err(UnmappedToken::Illegible);
            }
            signs.see(&name, &text);
            self.put(member, text, Some(value));
        }
        self.is_issued = signs.are_of_a_token();
        Ok(())
    }

    /// Returns the tokens; `None` if there is no access token.
    fn tokens(&self) -> Result<Option<Tokens>, UnmappedToken> {
        let one = |kind: TokenKind| {
            let mut texts = self.places.iter().filter(|(known, ..)| *known == kind);
            let first = texts.next().map(|(.., text)| text.clone());
            // Docker's registries send an access token under two names.
            if texts.all(|(.., text)| Some(text) == first.as_ref()) {
                Ok(first)
            } else {
                Err(UnmappedToken::Illegible)
            }
        };
        let [access, refresh, id] = TokenKind::ALL.map(one);
        let (refresh, id) = (refresh?, id?);
        let ends = |life: Duration| SystemTime::now().checked_add(life);
        Ok(access?.map(|access| Tokens {
            access,
            refresh,
            id,
            expires: self.life.and_then(ends).or(self.end),
            scope: self.scope.clone(),
            owner: None,
            grant: None,
        }))
    }

    fn settled(
        mut self,
        content: &[u8],
        is_form: bool,
    ) -> Result<Option<TokenAnswer>, UnmappedToken> {
        let is_nameless = self.places.is_empty() && is_form && names_a_token(content);
        let is_fixed = self.places.iter().any(|(_, place, _)| place.is_none());
        if self.is_unknown || is_nameless || is_fixed {
            return Err(UnmappedToken::Unknown);
        }
        let Some(tokens) = self.tokens()? else {
            return if self.places.is_empty() {
                Ok(None)
            } else {
                Err(UnmappedToken::Unknown)
            };
        };
        let places = self.places.drain(..);
        let mut places: Vec<_> = places
            .filter_map(|(kind, at, _)| Some((kind, at?)))
            .collect();
        places.sort_by_key(|(_, place)| place.start);
        let answer = TokenAnswer {
            tokens,
            target: self.target,
            places,
            is_form,
        };
        // No token may also appear elsewhere, or be unfit for a request.
        answer.replaced(content, |_| Some(""))?;
        let is_fit = |text: &Zeroizing<String>| {
            let bytes = Zeroizing::new(text.as_bytes().to_vec());
            Secret::new(bytes, false).is_ok()
        };
        let fits = |kind: TokenKind| answer.tokens.of(kind).is_none_or(is_fit);
        let is_long = |kind| {
            answer
                .tokens
                .of(kind)
                .is_some_and(|text| text.len() > LONGEST_TOKEN)
        };
        if TokenKind::ALL.into_iter().any(is_long) {
            return Err(UnmappedToken::TooLong);
        }
        if TokenKind::ALL.into_iter().all(fits) {
            Ok(Some(answer))
        } else {
            Err(UnmappedToken::Unknown)
        }
    }
}

fn decoded(raw: &[u8]) -> Result<Zeroizing<String>, UnmappedToken> {
    let spaced: Zeroizing<Vec<u8>> = Zeroizing::new(
        raw.iter()
            .map(|byte| if *byte == b'+' { b' ' } else { *byte })
            .collect(),
    );
    let bytes = Zeroizing::new(percent_decode(&spaced).collect::<Vec<u8>>());
    let text = std::str::from_utf8(&bytes).map_err(|_| UnmappedToken::Illegible)?;
    Ok(Zeroizing::new(text.to_owned()))
}

/// The signs by which an object or a form is known to have a token.
#[derive(Default)]
struct TokenSigns {
    /// The number of members that are tokens by their name alone.
    tokens: usize,
    /// Whether there is a `token`, the name that registries and GitHub's Apps use.
    is_bare: bool,
    has_end: bool,
    has_scope: bool,
}

impl TokenSigns {
    fn see(&mut self, name: &str, text: &str) {
        // A shorter text cannot be a secret worth guessing.
        let is_secret = text.len() >= 16 && text.bytes().all(|byte| byte.is_ascii_graphic());
        match Member::named(name) {
            Member::Token(_) if folded(name) == "token" => self.is_bare |= is_secret,
            Member::Token(_) => self.tokens += usize::from(is_secret),
            Member::Life | Member::End | Member::Moment | Member::Type => self.has_end = true,
            Member::Scope => self.has_scope = true,
            Member::Unknown | Member::Other => {}
        }
    }

    fn are_of_a_token(&self) -> bool {
        let is_any = self.is_bare || self.tokens > 0;
        is_any && self.has_end || self.tokens > 0 && self.has_scope || self.tokens > 1
    }
}

/// Returns the scheme and authority of a URL.
fn host(url: &str) -> &str {
    let end = url
        .match_indices('/')
        .nth(2)
        .map_or(url.len(), |(at, _)| at);
    &url[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: &str = "application/json";
    const FORM: &str = "application/x-www-form-urlencoded; charset=utf-8";

    fn shown(kind: &str, content: &str) -> Result<Option<String>, UnmappedToken> {
        let Some(answer) = TokenAnswer::read(kind, content.as_bytes())? else {
            return Ok(None);
        };
        let phantom = |kind: TokenKind| match kind {
            TokenKind::Access => Some("<a/>"),
            TokenKind::Refresh => Some("<r>"),
            TokenKind::Id => Some("<i>"),
        };
        let out = answer.replaced(content.as_bytes(), phantom)?;
        Ok(Some(String::from_utf8(out).unwrap()))
    }

    #[test]
    fn each_token_is_replaced_where_it_stands() {
        let rows = [
            (
                JSON,
                r#" {"access_token":"AAAAAAAAAAAA","expires_in":3600,"refresh_token" : "RRRRRRRRRRRR","id_token":"IIIIIIIIIIII","account":{"uuid":"u"}} "#,
                r#" {"access_token":"<a/>","expires_in":3600,"refresh_token" : "<r>","id_token":"<i>","account":{"uuid":"u"}} "#,
            ),
            (
                "text/plain",
                r#"{"token":"AAAAAAAAAAAA","access_token":"AAAAAAAAAAAA"}"#,
                r#"{"token":"<a/>","access_token":"<a/>"}"#,
            ),
            (
                JSON,
                r#"{"accessToken":"AAAAAAAAAAAA","refresh_token":null,"tokenType":"Bearer"}"#,
                r#"{"accessToken":"<a/>","refresh_token":null,"tokenType":"Bearer"}"#,
            ),
            (
                JSON,
                r#"{"access_token":"AAAA\/AAAA\u0041AAA","refresh_token":"RRRRRRRRRRRR"}"#,
                r#"{"access_token":"<a/>","refresh_token":"<r>"}"#,
            ),
            (
                JSON,
                r#"{"ok":true,"authed_user":{"access_token":"AAAAAAAAAAAA","expires_in":1}}"#,
                r#"{"ok":true,"authed_user":{"access_token":"<a/>","expires_in":1}}"#,
            ),
            (
                JSON,
                r#"[{"href":"https://a.test/1","header":{"authorization":"T AAAAAAAAAAAA"}},
                    {"href":"https://a.test/2","header":{"authorization":"T AAAAAAAAAAAA"}}]"#,
                r#"[{"href":"https://a.test/1","header":{"authorization":"T <a/>"}},
                    {"href":"https://a.test/2","header":{"authorization":"T <a/>"}}]"#,
            ),
            (
                FORM,
                "access_token=gho%5FAAAAAAAAAAAA&scope=repo%2Cgist&token_type=bearer",
                "access_token=%3Ca%2F%3E&scope=repo%2Cgist&token_type=bearer",
            ),
        ];
        for (kind, content, expected) in rows {
            let shown = shown(kind, content);
            assert_eq!(shown, Ok(Some(expected.to_owned())), "{content}");
        }
        let form = TokenAnswer::read(
            FORM,
            b"access_token=gho%5FAAAAAAAAAAAA&scope=a+b&expires_in=60",
        );
        let tokens = form.unwrap().unwrap().tokens;
        assert_eq!(tokens.access.as_str(), "gho_AAAAAAAAAAAA");
        assert_eq!(tokens.scope.as_deref(), Some("a b"));
        assert!(tokens.expires.is_some_and(|at| at > SystemTime::now()));
    }

    #[test]
    fn answers_without_a_token_have_none() {
        for (kind, content) in [
            (JSON, r#"{"error":"authorization_pending","interval":5}"#),
            (JSON, r#"{"access_token":""}"#),
            (FORM, "error=authorization_pending"),
            ("text/html", "<p>hello</p>"),
            ("", ""),
        ] {
            assert_eq!(shown(kind, content), Ok(None), "{content}");
        }
    }

    #[test]
    fn tokens_that_cannot_be_read_in_one_way_are_refused() {
        use UnmappedToken::{Illegible, Unknown};
        for (kind, content, why) in [
            (
                JSON,
                r#"{"access_token":"AAAAAAAAAAAA","access_token":"BBBBBBBBBBBB"}"#,
                Illegible,
            ),
            (
                JSON,
                r#"{"access_token":"AAAAAAAAAAAA","accessToken":"BBBBBBBBBBBB"}"#,
                Illegible,
            ),
            (JSON, r#"{"access_token":"AAAAAA"#, Illegible),
            (
                JSON,
                r#"{"\ud800":1,"access_token":"AAAAAAAAAAAA"}"#,
                Illegible,
            ),
            (JSON, r#"{"access_token":"AAAAAAAAAAAA"} {}"#, Illegible),
            (
                JSON,
                r#"{"access_token":"AAAA/AAAAAAA","note":"AAAA\/AAAAAAA"}"#,
                Unknown,
            ),
            (
                JSON,
                r#"{"access_token":"AAAAAAAAAAAA","authed_user":{"access_token":"BBBBBBBBBBBB"}}"#,
                Illegible,
            ),
            (
                JSON,
                r#"[{"href":"https://a.test/1","header":{"Authorization":"T AAAAAAAAAAAA"}},
                    {"href":"https://b.test/1","header":{"Authorization":"T AAAAAAAAAAAA"}}]"#,
                Unknown,
            ),
            (
                JSON,
                r#"{"href":"https://a.test","header":{"Authorization":"T AAAA\u0041AAAAAAA"}}"#,
                Unknown,
            ),
            (
                JSON,
                r#"{"access_token":{"value":"AAAAAAAAAAAA"}}"#,
                Unknown,
            ),
            (
                JSON,
                r#"{"access_token":"AAAAAAAAAAAA","note":"AAAAAAAAAAAA"}"#,
                Unknown,
            ),
            (
                JSON,
                r#"{"access_token":"AAAAAAAAAAAA","device_secret":"BBBBBBBBBBBB"}"#,
                Unknown,
            ),
            (
                JSON,
                r#"{"access_token":"AAAAAAAAAAAA","token_type":"DPoP"}"#,
                Unknown,
            ),
            (JSON, r#"{"access_token":"AAA"}"#, Unknown),
            (JSON, r#"{"access_token":"AAAAAAAAAAA A"}"#, Unknown),
            (JSON, r#"{"refresh_token":"RRRRRRRRRRRR"}"#, Unknown),
            (
                FORM,
                "access_token=AAAAAAAAAAAA&access_token=BBBBBBBBBBBB",
                Illegible,
            ),
            (
                FORM,
                "access_token=AAAAAAAAAAAA&web_token=BBBBBBBBBBBB",
                Unknown,
            ),
            (
                "text/html",
                "<input name=access_token value=AAAAAAAAAAAA>",
                Unknown,
            ),
        ] {
            assert_eq!(shown(kind, content), Err(why), "{content}");
        }
    }
}
