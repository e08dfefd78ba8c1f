//! Finds temporary credentials in a service's response, and replaces them with others of the same
//! length.
//!
//! STS, S3 and S3 Control respond with the same four members, as XML ("Credentials" of the AWS
//! Security Token Service API Reference) or, if the client asks STS for it, as JSON. They are
//! parsed strictly: a response in which a member appears twice, is missing, or is escaped is not
//! accepted, and so not forwarded.

use std::fmt;
use std::ops::Range;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
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
        let mut found = Found::default();
        match kind {
            "text/xml" | "application/xml" => {
                found.xml(std::str::from_utf8(content).map_err(|_| UnreadableCredentials)?)?
            }
            "application/json" | "application/x-amz-json-1.0" | "application/x-amz-json-1.1" => {
                let mut json = serde_json::Deserializer::from_slice(content);
                Members(&mut found, None)
                    .deserialize(&mut json)
                    .and_then(|()| json.end())
                    .map_err(|_| UnreadableCredentials)?;
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
struct Found<'c> {
    parts: [Option<&'c str>; 3],
    expires: Option<SystemTime>,
    twice: bool,
}

impl<'c> Found<'c> {
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

/// Visits JSON, with the name of the current value.
struct Members<'s, 'c>(&'s mut Found<'c>, Option<String>);

impl<'c> DeserializeSeed<'c> for Members<'_, 'c> {
    type Value = ();

    fn deserialize<D: Deserializer<'c>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'c> Visitor<'c> for Members<'_, 'c> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<(), E> {
        self.visit_f64(number as f64)
    }

    fn visit_f64<E>(self, number: f64) -> Result<(), E> {
        if let Some(name) = &self.1 {
            self.0.number(name, number);
        }
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_borrowed_str<E>(self, text: &'c str) -> Result<(), E> {
        if let Some(name) = &self.1 {
            self.0.put(name, text);
        }
        Ok(())
    }

    /// A text with escapes: it does not appear literally, so it could not be replaced.
    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        let names = ["accesskeyid", "secretaccesskey", "sessiontoken"];
        let named = |name: &String| names.iter().any(|known| name.eq_ignore_ascii_case(known));
        self.0.twice |= self.1.as_ref().is_some_and(named);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'c>>(self, mut items: A) -> Result<(), A::Error> {
        while items
            .next_element_seed(Members(self.0, self.1.clone()))?
            .is_some()
        {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'c>>(self, mut members: A) -> Result<(), A::Error> {
        while let Some(name) = members.next_key::<String>()? {
            members.next_value_seed(Members(self.0, Some(name)))?;
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
