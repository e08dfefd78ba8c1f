//! Properties of phantoms: shape, distinctness, derivation, and detection in every form.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use gateway_names::CredentialName;
use proptest::prelude::*;

use super::shape::MIN_BITS;
use super::*;

fn name(text: &str) -> CredentialName {
    CredentialName::new(text).unwrap()
}

fn one(key: u8, shape: &Shape) -> Phantoms {
    let key = PhantomKey::from_bytes([key; 32]);
    let mut issue = Issue::new(&key);
    issue.issue(&name("github"), shape, |_| false).unwrap();
    issue.finish()
}

fn class(byte: u8) -> u8 {
    match byte {
        b'A'..=b'Z' => b'A',
        b'a'..=b'z' => b'a',
        b'0'..=b'9' => b'0',
        other => other,
    }
}

const SAMPLES: &[&str] = &[
    "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",
    "github_pat_11ABCDEFG0abcdefghijkl_mnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklm",
    "sk-ant-api03-abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-abcdefghijklmnopqrstuvwxyzAA",
    "sk-proj-abcdefghABCDEFGH01234567T3BlbkFJabcdefghABCDEFGH01234567",
    "AKIAQWERTYUIOPASDFGH",
    "glpat-abcdefghij0123456789",
    "pypi-AgEIabcdefghijklmnopqrstuvwxyz0123456789ABCDEFGH",
    "xoxb-123456789012-1234567890123-AbCdEfGhIjKlMnOpQrStUvWx",
    "sk_live_abcdefghijklmnopqrstuvwx",
    "SG.abcdefghijklmnopqrstuv.abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQ",
    "AIzaabcdefghijklmnopqrstuvwxyz012345678",
    "2f1e3d4c-5b6a-4789-8abc-def012345678",
    "0123456789abcdef0123456789abcdef",
    "dGhpcyBpcyBhIGtleSBvZiAzMiBieXRlcyBsb25nISE=",
    "correct-horse-battery-staple-77",
];

#[test]
fn phantoms_of_known_formats_keep_prefix_length_and_class() {
    for sample in SAMPLES {
        let phantoms = one(1, &Shape::of(sample.as_bytes()));
        let phantom = &phantoms.all()[0];
        assert_eq!(phantom.reveal().len(), sample.len(), "{sample}");
        assert_ne!(phantom.reveal(), *sample);
        assert!(phantom.fits(sample.as_bytes()), "{sample}");
        let prefix = sample.find(['_', '-', '.']).unwrap_or(0);
        if !sample.starts_with(|first: char| first.is_ascii_digit())
            && !sample.starts_with("correct")
        {
            assert_eq!(phantom.reveal()[..prefix], sample[..prefix], "{sample}");
        }
    }
}

#[test]
fn known_formats_leave_at_least_128_bits_where_their_length_allows() {
    for sample in SAMPLES.iter().filter(|sample| sample.len() >= 40) {
        assert!(
            Shape::of(sample.as_bytes()).entropy_bits() >= 128,
            "{sample}"
        );
    }
}

#[test]
fn a_phantom_of_github_and_npm_carries_a_right_checksum() {
    for sample in [
        "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",
        "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",
    ] {
        let phantoms = one(3, &Shape::of(sample.as_bytes()));
        let text = phantoms.all()[0].reveal().as_bytes();
        assert_eq!(known::base62_crc32(&text[4..34]), text[34..]);
    }
}

#[test]
fn marks_that_clients_look_for_stay() {
    let openai = one(1, &Shape::of(SAMPLES[3].as_bytes()));
    assert_eq!(
        openai.all()[0].reveal().find("T3BlbkFJ"),
        SAMPLES[3].find("T3BlbkFJ")
    );
    let anthropic = one(1, &Shape::of(SAMPLES[2].as_bytes()));
    assert!(anthropic.all()[0].reveal().ends_with("AA"));
    let uuid = one(1, &Shape::of(SAMPLES[11].as_bytes()));
    assert_eq!(&uuid.all()[0].reveal()[14..15], "4");
}

#[test]
fn a_base64_phantom_still_decodes_strictly() {
    let phantoms = one(1, &Shape::of(SAMPLES[13].as_bytes()));
    assert!(STANDARD.decode(phantoms.all()[0].reveal()).is_ok());
}

#[test]
fn a_candidate_that_is_the_secret_is_passed_over() {
    let key = PhantomKey::from_bytes([1; 32]);
    let shape = Shape::parse("x-[20 alnum]").unwrap();
    let first = Issue::new(&key)
        .issue(&name("a"), &shape, |_| false)
        .unwrap();
    let other = Issue::new(&key)
        .issue(&name("a"), &shape, |text| text == first.text.as_bytes())
        .unwrap();
    assert_ne!(first.reveal(), other.reveal());
    let never = Issue::new(&key)
        .issue(&name("a"), &shape, |_| true)
        .unwrap_err();
    assert_eq!(
        never,
        PhantomFailure::Crowded {
            credential: name("a")
        }
    );
}

#[test]
fn a_shape_that_leaves_nothing_to_chance_has_no_phantom() {
    let key = PhantomKey::from_bytes([1; 32]);
    let refused = Issue::new(&key)
        .issue(&name("a"), &Shape::of(b"--------"), |_| false)
        .unwrap_err();
    assert_eq!(
        refused,
        PhantomFailure::TooGuessable {
            credential: name("a"),
            bits: 0
        }
    );
}

#[test]
fn debug_never_prints_a_phantom() {
    let phantoms = one(1, &Shape::parse("x-[20 alnum]").unwrap());
    let shown = format!("{phantoms:?} {:?}", phantoms.all()[0]);
    assert!(!shown.contains(phantoms.all()[0].reveal()));
}

#[test]
fn a_declared_shape_fits_only_its_own_length_and_punctuation() {
    let phantoms = one(1, &Shape::parse("k-[20 alnum]").unwrap());
    let phantom = &phantoms.all()[0];
    assert!(phantom.fits(b"k-abcdefghij0123456789"));
    assert!(!phantom.fits(b"k-abcdefghij012345678"));
    assert!(!phantom.fits(b"k-abcdefghij01234567/9"));
}

#[test]
fn every_disguise_of_a_phantom_is_seen_and_called_one() {
    let phantoms = one(1, &Shape::parse("ghp_[30 alnum][6 crc32]").unwrap());
    let text = phantoms.all()[0].reveal();
    for lead in ["", "x", "xy", "user:"] {
        let plain = format!("{lead}{text}zz");
        for once in [STANDARD.encode(&plain), URL_SAFE_NO_PAD.encode(&plain)] {
            assert_eq!(
                phantoms.find(once.as_bytes()).next().unwrap().form,
                Form::Base64,
                "{lead}"
            );
            let twice = STANDARD.encode(format!("{lead}{once}"));
            assert_eq!(
                phantoms.find(twice.as_bytes()).next().unwrap().form,
                Form::Base64,
                "{lead} twice"
            );
        }
    }
    let hex: String = text.bytes().map(|byte| format!("{byte:02X}")).collect();
    assert_eq!(
        phantoms.find(hex.as_bytes()).next().unwrap().form,
        Form::Hex
    );
    let percent: String = text.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let double = percent.replace('%', "%25");
    let part = text.replacen('_', "%5F", 1);
    let json: String = text
        .bytes()
        .map(|byte| format!("\\u00{byte:02x}"))
        .collect();
    let html: String = text.bytes().map(|byte| format!("&#x{byte:x};")).collect();
    for escaped in [percent, double, part, json, html] {
        assert!(phantoms.find(escaped.as_bytes()).next().is_none());
        assert_eq!(
            phantoms.find_unescaped(escaped.as_bytes()).unwrap().form,
            Form::Escaped,
            "{escaped}"
        );
    }
    assert_eq!(phantoms.find_unescaped(b"a%20b"), None);
    assert!(
        phantoms
            .find_folded(text.to_lowercase().as_bytes())
            .is_some()
    );
}

#[test]
fn no_phantoms_are_found_where_none_were_issued() {
    assert_eq!(
        Phantoms::none()
            .find(b"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")
            .count(),
        0
    );
    assert_eq!(Phantoms::none().shortest(), usize::MAX);
}

proptest! {
    #[test]
    fn a_phantom_has_the_class_of_its_secret_at_every_position(secret in "[!-~]{12,200}") {
        let shape = Shape::of(secret.as_bytes());
        prop_assume!(shape.entropy_bits() >= MIN_BITS);
        let phantoms = one(9, &shape);
        let text = phantoms.all()[0].reveal();
        prop_assert_eq!(text.len(), secret.len());
        prop_assert!(phantoms.all()[0].fits(secret.as_bytes()));
        let letters_for_letters = text.bytes().zip(secret.bytes()).all(|(ours, theirs)| {
            class(ours) == class(theirs) || (ours.is_ascii_alphanumeric() && theirs.is_ascii_alphanumeric())
        });
        prop_assert!(letters_for_letters);
    }

    #[test]
    fn one_key_derives_one_phantom_and_another_key_another(key in any::<[u8; 32]>(), other in any::<[u8; 32]>()) {
        prop_assume!(key != other);
        let shape = Shape::parse("glpat-[20 alnum]").unwrap();
        let draw = |key| {
            let key = PhantomKey::from_bytes(key);
            Issue::new(&key).issue(&name("a"), &shape, |_| false).unwrap().reveal().to_owned()
        };
        prop_assert_eq!(draw(key), draw(key));
        prop_assert_ne!(draw(key), draw(other));
    }

    #[test]
    fn no_phantom_of_a_session_lies_inside_another(key in any::<[u8; 32]>(), lengths in prop::collection::vec(13_usize..17, 2..40)) {
        let key = PhantomKey::from_bytes(key);
        let mut issue = Issue::new(&key);
        for (at, length) in lengths.iter().enumerate() {
            let shape = Shape::parse(&format!("[{length} digit]")).unwrap();
            issue.issue(&name(&format!("c{at}")), &shape, |_| false).unwrap();
        }
        let phantoms = issue.finish();
        for (at, one) in phantoms.all().iter().enumerate() {
            for other in &phantoms.all()[at + 1..] {
                prop_assert!(!one.reveal().contains(other.reveal()) && !other.reveal().contains(one.reveal()));
            }
        }
    }

    #[test]
    fn a_plain_phantom_is_found_wherever_it_stands(lead in "[ -~]{0,40}", tail in "[ -~]{0,40}") {
        let phantoms = one(1, &Shape::parse("ghp_[30 alnum][6 crc32]").unwrap());
        let text = format!("{lead}{}{tail}", phantoms.all()[0].reveal());
        let found: Vec<_> = phantoms.find(text.as_bytes()).collect();
        prop_assert_eq!(found.len(), 1);
        prop_assert_eq!(found[0].at.clone(), lead.len()..lead.len() + 40);
        prop_assert_eq!(found[0].form, Form::Plain);
    }
}
