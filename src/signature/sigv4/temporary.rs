//! Finds temporary credentials in a service's response, and replaces them with others of the same
//! length.
//!
//! STS, S3 and S3 Control respond with the same four members, as XML ("Credentials" of the AWS
//! Security Token Service API Reference) or, if the client asks STS for it, as JSON. They are
//! parsed strictly: a response in which a member appears twice, is missing, or is escaped is not
//! accepted, and so not forwarded.

use std::ops::Range;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gateway_message::json::{Json, JsonParts, Value};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Temporary credentials in a response. It has no `Debug`, because it borrows secrets.
pub struct TemporaryCredentials<'c> {
    /// The access key id, the secret key and the session token.
    pub parts: [&'c str; 3],
    /// When they expire.
    pub expires: SystemTime,
}

/// No temporary credentials can be read from the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the answer does not hold temporary credentials in a form that can be read")]
pub struct UnreadableCredentials;

impl<'c> TemporaryCredentials<'c> {
    /// Reads the credentials from a response's content with the given type.
    ///
    /// # Errors
    /// [`UnreadableCredentials`] unless each member appears exactly once, unescaped.
    pub fn read(
        kind: &str,
        content: &'c [u8],
    ) -> Result<TemporaryCredentials<'c>, UnreadableCredentials> {
        let kind = kind.split(';').next().unwrap_or(kind).trim_end();
        let mut found = FoundParts::default();
        let text = std::str::from_utf8(content).map_err(|_| UnreadableCredentials);
        match kind {
            "text/xml" | "application/xml" => {
                found.xml(text?)?;
            }
            "application/json" | "application/x-amz-json-1.0" | "application/x-amz-json-1.1" => {
                let json = Json::read(content, &JsonParts::whole());
                let json = json.map_err(|_| UnreadableCredentials)?;
                found.json(text?, "", json.root());
            }
            _ => return Err(UnreadableCredentials),
        }
        let (Some(id), Some(secret), Some(token)) =
            (found.parts[0], found.parts[1], found.parts[2])
        else {
            return Err(UnreadableCredentials);
        };
        let parts = [id, secret, token];
        let plain = |byte: u8| {
            byte.is_ascii_graphic() && !matches!(byte, b'<' | b'>' | b'&' | b'"' | b'\\')
        };
        let sound = |part: &&str| part.len() >= SHORTEST && part.bytes().all(plain);
        if found.twice || !parts.iter().all(sound) {
            return Err(UnreadableCredentials);
        }
        let expires = found.expires.ok_or(UnreadableCredentials)?;
        Ok(TemporaryCredentials { parts, expires })
    }
}

/// The content with each text replaced by its pair, wherever it appears; lengths do not change.
///
/// # Errors
/// [`UnreadableCredentials`] if a pair differs in length, or a text does not appear at all.
pub fn replaced(
    content: &[u8],
    pairs: [(&str, &str); 3],
) -> Result<Vec<u8>, UnreadableCredentials> {
    let mut out = content.to_vec();
    for (real, instead) in pairs {
        if real.len() != instead.len() {
            return Err(UnreadableCredentials);
        }
        let places: Vec<Range<usize>> = memchr::memmem::find_iter(content, real.as_bytes())
            .map(|at| at..at + real.len())
            .collect();
        if places.is_empty() {
            return Err(UnreadableCredentials);
        }
        for place in places {
            out[place].copy_from_slice(instead.as_bytes());
        }
    }
    Ok(out)
}

#[derive(Default)]
struct FoundParts<'c> {
    parts: [Option<&'c str>; 3],
    expires: Option<SystemTime>,
    twice: bool,
}

impl<'c> FoundParts<'c> {
    fn put(&mut self, name: &str, value: &'c str) {
        match name.to_ascii_lowercase().as_str() {
            "accesskeyid" => self.twice |= self.parts[0].replace(value).is_some(),
            "secretaccesskey" => self.twice |= self.parts[1].replace(value).is_some(),
            "sessiontoken" => self.twice |= self.parts[2].replace(value).is_some(),
            "expiration" => self.expire(
                OffsetDateTime::parse(value, &Rfc3339)
                    .ok()
                    .map(SystemTime::from),
            ),
            _ => {}
        }
    }

    /// JSON has seconds since 1970, or milliseconds if the number is larger than any seconds of
    /// this millennium.
    fn number(&mut self, name: &str, number: f64) {
        if name.eq_ignore_ascii_case("expiration") && number.is_finite() && number > 0.0 {
            let seconds = if number > 32e9 {
                number / 1000.0
            } else {
                number
            };
            let since = Duration::try_from_secs_f64(seconds).ok();
            self.expire(since.and_then(|since| UNIX_EPOCH.checked_add(since)));
        }
    }

    fn expire(&mut self, time: Option<SystemTime>) {
        self.twice |= self.expires.is_some() || time.is_none();
        self.expires = time;
    }

    /// The value of a name, and those inside it. A text with escapes does not appear literally, so
    /// it could not be replaced.
    fn json(&mut self, text: &'c str, name: &str, value: Value<'_>) {
        let below = value.members();
        below.for_each(|(own, value)| self.json(text, own, value));
        let listed = value.elements();
        listed.for_each(|(_, value)| self.json(text, name, value));
        let raw = &text[value.at()];
        if raw.starts_with('"') && raw.contains('\\') {
            let names = ["accesskeyid", "secretaccesskey", "sessiontoken"];
            self.twice |= names.iter().any(|known| name.eq_ignore_ascii_case(known));
        } else if raw.starts_with('"') {
            self.put(name, raw.trim_matches('"'));
        } else if let Ok(number) = raw.parse() {
            self.number(name, number);
        }
    }

    /// Elements that contain only text; XML that could hide another is refused.
    fn xml(&mut self, text: &'c str) -> Result<(), UnreadableCredentials> {
        if ["<!", "&#"].iter().any(|mark| text.contains(mark)) {
            return Err(UnreadableCredentials);
        }
        let mut pieces = text.split('<').skip(1).peekable();
        while let Some(piece) = pieces.next() {
            let (tag, value) = piece.split_once('>').ok_or(UnreadableCredentials)?;
            let name = tag.split([' ', '\t', '\r', '\n']).next().unwrap_or(tag);
            let name = name.rsplit(':').next().unwrap_or(name);
            let closes = |next: &&str| {
                next.strip_prefix('/')
                    .is_some_and(|rest| rest.starts_with(name))
            };
            if pieces.peek().is_some_and(closes) {
                self.put(name, value);
            }
        }
        Ok(())
    }
}

/// No access key id is shorter ("IAM identifiers"), and a shorter text could appear elsewhere by
/// chance.
const SHORTEST: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "ASIAIOSFODNN7EXAMPLE";
    const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzEXAMPLEKEY";
    const TOKEN: &str = "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPfIeoIYRqTflfKD8YUuwthAx7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA==";

    fn xml(expiration: &str) -> String {
        format!(
            "<AssumeRoleResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">\n <AssumeRoleResult>\n  \
             <AssumedRoleUser><Arn>arn:aws:sts::123456789012:assumed-role/demo/x</Arn></AssumedRoleUser>\n  \
             <Credentials>\n   <AccessKeyId>{ID}</AccessKeyId>\n   <SecretAccessKey>{SECRET}</SecretAccessKey>\n   \
             <SessionToken>{TOKEN}</SessionToken>\n   {expiration}\n  </Credentials>\n </AssumeRoleResult>\n\
             </AssumeRoleResponse>"
        )
    }

    fn seconds(kind: &str, content: &str) -> Option<u64> {
        let minted = TemporaryCredentials::read(kind, content.as_bytes()).ok()?;
        assert_eq!(minted.parts, [ID, SECRET, TOKEN]);
        Some(minted.expires.duration_since(UNIX_EPOCH).unwrap().as_secs())
    }

    #[test]
    fn the_members_are_read_from_each_form_of_answer() {
        let usual = xml("<Expiration>2019-11-09T13:34:41Z</Expiration>");
        assert_eq!(seconds("text/xml", &usual), Some(1_573_306_481));
        let fraction = xml("<Expiration>2019-11-09T13:34:41.500Z</Expiration>");
        assert_eq!(
            seconds("application/xml; charset=utf-8", &fraction),
            Some(1_573_306_481)
        );
        let json = |expiration: &str| {
            format!(
                r#"{{"AssumeRoleResponse":{{"AssumeRoleResult":{{"Credentials":{{"AccessKeyId":"{ID}","Expiration":{expiration},"SecretAccessKey":"{SECRET}","SessionToken":"{TOKEN}"}}}},"ResponseMetadata":{{"RequestId":"x"}}}}}}"#
            )
        };
        assert_eq!(
            seconds("application/json", &json("1.573306481E9")),
            Some(1_573_306_481)
        );
        assert_eq!(
            seconds("application/json", &json("1573306481")),
            Some(1_573_306_481)
        );
        assert_eq!(
            seconds("application/json", &json("1573306481000")),
            Some(1_573_306_481)
        );
        assert_eq!(
            seconds("application/json", &json("\"2019-11-09T13:34:41Z\"")),
            Some(1_573_306_481)
        );
    }

    #[test]
    fn an_answer_with_two_readings_is_not_read() {
        let expiration = "<Expiration>2019-11-09T13:34:41Z</Expiration>";
        let usual = xml(expiration);
        let illegible = |kind: &str, content: &str| {
            TemporaryCredentials::read(kind, content.as_bytes()).is_err()
        };
        for content in [
            xml(""),
            xml("<Expiration>soon</Expiration>"),
            xml(&format!("{expiration}{expiration}")),
            xml(&format!(
                "{expiration}<AccessKeyId>ASIAOTHEROTHEROTHER2</AccessKeyId>"
            )),
            usual.replace("EXAMPLEKEY", "&#69;XAMPLEKEY"),
            usual.replace("EXAMPLEKEY", "&amp;XAMPLEKEY"),
            usual.replace("<Credentials>", "<!-- x --><Credentials>"),
            usual.replace(SECRET, "short"),
            usual.replace("SessionToken", "Token"),
            "<AccessKeyId".to_owned(),
        ] {
            assert!(illegible("text/xml", &content), "{content}");
        }
        assert!(illegible("text/plain", &usual));
        assert!(illegible("application/json", &usual));
        let json = format!(
            r#"{{"AccessKeyId":"{ID}","SecretAccessKey":"\u0077{}","SessionToken":"{TOKEN}","Expiration":1}}"#,
            &SECRET[1..]
        );
        assert!(illegible("application/json", &json));
        let twice = format!(
            r#"{{"AccessKeyId":"{ID}","accessKeyId":"{ID}","SecretAccessKey":"{SECRET}","SessionToken":"{TOKEN}","Expiration":1}}"#
        );
        assert!(illegible("application/json", &twice));
    }

    #[test]
    fn every_occurrence_is_replaced_and_nothing_else() {
        let content = xml("<Expiration>2019-11-09T13:34:41Z</Expiration>") + SECRET;
        let mask = |text: &str| "x".repeat(text.len());
        let (id, secret, token) = (mask(ID), mask(SECRET), mask(TOKEN));
        let pairs = [(ID, &*id), (SECRET, &*secret), (TOKEN, &*token)];
        let out = String::from_utf8(replaced(content.as_bytes(), pairs).unwrap()).unwrap();
        assert_eq!(
            out,
            content
                .replace(ID, &id)
                .replace(SECRET, &secret)
                .replace(TOKEN, &token)
        );
        assert!(replaced(b"nothing", pairs).is_err());
        assert!(replaced(content.as_bytes(), [(ID, "short"), pairs[1], pairs[2]]).is_err());
    }
}
