//! The rest of a multipart form, which streams after the part that was read.

use bytes::Bytes;
use gateway_names::ReasonCode;
use http::HeaderMap;

use super::multipart::{Parts, SplitFault};
use crate::{BodyTransform, TransformFault};

/// Lets the rest of a multipart form pass, in constant memory, and cuts it off before a field that
/// was not judged, or where readers may split it differently.
pub struct FormRemainder {
    parts: Parts,
    is_asked: Box<dyn Fn(&str) -> bool + Send + Sync>,
    /// The last piece, held until the next: a connection stops polling at the announced length.
    last: Option<Bytes>,
}

impl FormRemainder {
    /// Follows the content after this beginning. `is_asked` knows the names of fields that must not
    /// follow. `None` if readers may split the beginning differently.
    pub fn new(
        fields: &HeaderMap,
        beginning: &[u8],
        is_asked: Box<dyn Fn(&str) -> bool + Send + Sync>,
    ) -> Option<Self> {
        let mut behind = Self {
            parts: Parts::of(fields)?,
            is_asked,
            last: None,
        };
        behind.parts.push(beginning).ok()?;
        // The fields in the beginning were judged.
        drop(behind.parts.take());
        Some(behind)
    }
}

impl BodyTransform for FormRemainder {
    fn piece(&mut self, piece: Bytes, out: &mut Vec<Bytes>) -> Result<(), TransformFault> {
        self.parts.push(&piece).map_err(|SplitFault| fault(SPLIT))?;
        let came = self.parts.take();
        if came
            .iter()
            .any(|part| part.guarded_as(&self.is_asked).is_some())
        {
            return Err(fault(LATE));
        }
        out.extend(self.last.replace(piece));
        Ok(())
    }

    fn end(&mut self, out: &mut Vec<Bytes>) -> Result<(), TransformFault> {
        if !self.parts.is_over() {
            return Err(fault(SPLIT));
        }
        out.extend(self.last.take());
        Ok(())
    }
}

fn fault(text: &str) -> TransformFault {
    TransformFault {
        reason: ReasonCode::ContentUnreadable,
        text: format!("the content was cut off: {text}"),
    }
}

const LATE: &str = "a field in which a credential may stand, or that a policy reads, comes behind \
    a file, and what comes there is not held";
const SPLIT: &str = "readers may split it into other parts";

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::HeaderValue;
    use http::header::CONTENT_TYPE;
    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::*;
    use crate::Limit;
    use crate::fact::multipart_parts;
    use crate::read::Prefix;

    fn fields() -> HeaderMap {
        let kind = HeaderValue::from_static("multipart/form-data; boundary=b-1");
        HeaderMap::from_iter([(CONTENT_TYPE, kind)])
    }

    fn part(head: &str, value: &str) -> String {
        format!("--b-1\r\nContent-Disposition: form-data; {head}\r\n\r\n{value}\r\n")
    }

    /// The output for content that comes in these pieces after the first `read` bytes, unless it is
    /// cut off.
    fn passed(
        content: &[u8],
        read: usize,
        mut cuts: Vec<usize>,
    ) -> Result<Vec<u8>, TransformFault> {
        cuts.extend([read, content.len()]);
        cuts.sort_unstable();
        let is_asked = Box::new(|name: &str| name == "token");
        let mut behind = FormRemainder::new(&fields(), &content[..read], is_asked).unwrap();
        let mut out = vec![Bytes::copy_from_slice(&content[..read])];
        for cut in cuts.windows(2).filter(|cut| cut[0] >= read) {
            behind.piece(Bytes::copy_from_slice(&content[cut[0]..cut[1]]), &mut out)?;
        }
        behind.end(&mut out)?;
        Ok(out.concat())
    }

    proptest! {
        #[test]
        fn what_streams_passes_byte_for_byte_unless_a_field_comes_that_is_asked_for(
            file in "[a\\x00\r\n:-]{0,300}",
            line in "(|\r\nContent-Disposition: form-data; name=(\"tok|\"x))",
            late in any::<bool>(),
            read in any::<Index>(),
            cuts in prop::collection::vec(any::<Index>(), 0..30),
        ) {
            let early = part("name=\"token\"", "s") + &part("name=\"f\"; filename=\"f\"", &(file + &line));
            let read = early.len() - read.index(line.len() + 1) - 2;
            let behind = if late { part("name=\"token\"", "t") } else { part("name=\"tokens\"", "t") };
            let content = early + &behind + "--b-1--\r\n";
            let cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(content.len())).collect();
            match passed(content.as_bytes(), read, cuts) {
                Ok(out) => prop_assert!(!late && out == content.as_bytes()),
                Err(fault) => prop_assert!(late, "{}", fault),
            }
        }

        #[test]
        fn a_form_splits_alike_however_it_is_cut(
            parts in prop::collection::vec(
                ("(name=\"?[ab]\"?|name=\"f\"; filename=\"f\"|x)", "[a\r\n-]{0,8}(|--b-1|\r\n--b-1)"),
                0..4,
            ),
            end in "(--b-1--(|\r\n|x)|)",
            cuts in prop::collection::vec(any::<Index>(), 0..30),
        ) {
            let content: String = parts.iter().map(|(head, value)| part(head, value)).collect();
            let content = content + &end;
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(content.len() + 1)).collect();
            cuts.extend([0, content.len()]);
            cuts.sort_unstable();
            let mut split = Parts::of(&fields()).unwrap();
            let mut pieces = cuts.windows(2).map(|cut| &content.as_bytes()[cut[0]..cut[1]]);
            let is_split = pieces.all(|piece| split.push(piece).is_ok()) && split.is_over();
            let whole = multipart_parts(&fields(), content.as_bytes(), false);
            prop_assert_eq!(whole.is_some(), is_split);
        }
    }

    #[test]
    fn a_name_is_asked_for_once_and_nothing_is_kept() {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let is_asked = Box::new(move |_: &str| count.fetch_add(1, Ordering::Relaxed) == usize::MAX);
        let beginning = part("name=\"f\"; filename=\"f\"", "x");
        let beginning = beginning.trim_end_matches("\r\n");
        let mut behind = FormRemainder::new(&fields(), beginning.as_bytes(), is_asked).unwrap();
        let mut out = Vec::new();
        let line = format!("\r\n{}", part("name=\"g\"", &"x".repeat(5_000)));
        for byte in line.trim_end_matches("\r\n").bytes() {
            behind.piece(vec![byte].into(), &mut out).unwrap();
        }
        // Once as it is written, and once decoded.
        assert_eq!(asked.load(Ordering::Relaxed), 2);
        for nth in 0..500 {
            let part = format!("\r\n{}", part(&format!("name=\"x{nth}\""), "v"));
            let part = Bytes::from(part.trim_end_matches("\r\n").to_owned());
            behind.piece(part, &mut out).unwrap();
        }
        assert!(behind.parts.is_forgotten());
        let names = "name=a;".repeat(40);
        let many = format!("\r\n{}", part(&names, "v"));
        assert!(behind.piece(many.into(), &mut out).is_err());
    }

    #[test]
    fn a_form_is_followed_until_a_file_streams() {
        let enough = |content: &[u8]| {
            let mut prefix = Prefix::of_parts(&fields(), Limit::bytes(2 << 10)).unwrap();
            let mut pieces = content.chunks(100);
            pieces
                .position(|piece| prefix.take(piece))
                .map(|nth| nth + 1)
        };
        let long = "x".repeat(100 << 10);
        let file = part("name=\"f\"; filename=\"f\"", &long);
        assert_eq!(enough(file.as_bytes()), Some(11));
        // A field that is longer than is waited for streams too.
        assert_eq!(enough(part("name=\"a\"", &long).as_bytes()), Some(656));
        for content in [
            part("name=\"a\"", &long[..3 << 10]) + "--b-1--",
            "--b-1\r\n".to_owned() + &long,
            format!("x{file}"),
            part("x", "--b-1") + &file,
        ] {
            assert_eq!(enough(content.as_bytes()), None);
        }
    }
}
