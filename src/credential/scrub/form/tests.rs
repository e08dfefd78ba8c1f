//! Tests of a secret's forms.

use base64::{Engine, engine::general_purpose};

use super::*;

fn spelled(secret: &str, phantom: &str) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("ascii");
    let all = forms_of(secret, phantom).unwrap_or_else(|e| panic!("{e}"));
    all.iter()
        .map(|form| (text(&form.secret), text(&form.stand_in)))
        .collect()
}

fn forms_of(secret: &str, phantom: &str) -> Result<Vec<SecretForm>, Unscrubbable> {
    let (secret, phantom) = (secret.as_bytes(), phantom.as_bytes());
    let sought = EchoPattern {
        secret,
        stand_in: phantom,
        phantom,
    };
    forms(&sought, None)
}

#[test]
fn a_token_of_letters_and_digits_has_thirty_three_forms() {
    let forms = spelled("ghp_aB3dE5", "ghp_xY7zW9");
    let pair = |secret: &str, phantom: &str| (secret.to_owned(), phantom.to_owned());
    assert!(forms.contains(&pair("ghp_aB3dE5", "ghp_xY7zW9")));
    assert!(forms.contains(&pair("6768705f614233644535", "6768705f7859377a5739")));
    assert!(forms.contains(&pair("6768705F614233644535", "6768705F7859377A5739")));
    assert!(forms.contains(&pair(
        "%67%68%70%5f%61%42%33%64%45%35",
        "%67%68%70%5f%78%59%37%7a%57%39"
    )));
    assert!(
        forms
            .iter()
            .any(|(secret, _)| secret.starts_with("\\u0067\\u0068\\u0070\\u005F"))
    );
    for expected in [
        "67 68 70 5f 61 42 33 64 45 35",
        "67:68:70:5F:61:42:33:64:45:35",
        "67-68-70-5f-61-42-33-64-45-35",
        "67, 0x68, 0x70, 0x5f, 0x61, 0x42, 0x33, 0x64, 0x45, 0x35",
        "\\x67\\x68\\x70\\x5f\\x61\\x42\\x33\\x64\\x45\\x35",
        "&#x67;&#x68;&#x70;&#x5F;&#x61;&#x42;&#x33;&#x64;&#x45;&#x35;",
        "&#x0067;&#x0068;&#x0070;&#x005F;&#x0061;&#x0042;&#x0033;&#x0064;&#x0045;&#x0035;",
        "ghp_ab3de5",
        "GHP_AB3DE5",
        "g\0h\0p\0_\0a\0B\x003\0d\0E\x005",
    ] {
        assert!(
            forms.iter().any(|(secret, _)| secret == expected),
            "{expected}"
        );
    }
    // Plain 1, hex 2, hex with separators 12, percent 4, `\x` 2, references 4, JSON 2, cases 2,
    // UTF-16 1, base64 3. base64url would differ only if there were a + or /.
    assert_eq!(forms.len(), 33, "{forms:?}");
}

#[test]
fn special_characters_are_spelled_as_writers_do() {
    let forms = spelled("p&ss/w\"rd+'<", "q&tt/x\"se+'<");
    for expected in [
        "p%26ss%2Fw%22rd%2B%27%3C",
        "p%26ss%2fw%22rd%2b%27%3c",
        "p%26ss%2Fw%22rd%2B'%3C",
        "p&ss\\/w\\\"rd+'<",
        "p\\u0026ss/w\\\"rd+\\u0027\\u003c",
        "p&amp;ss/w&quot;rd+&#39;&lt;",
        "p&amp;ss&#x2F;w&quot;rd+&#x27;&lt;",
        "p&amp;ss/w&#34;rd&#43;&#39;&lt;",
    ] {
        assert!(
            forms.iter().any(|(secret, _)| secret == expected),
            "{expected}"
        );
    }
}

#[test]
fn the_interior_of_base64_stands_in_what_encoders_write() {
    let (secret, phantom) = ("s3cr>t?~~pass", "q8wz>x?~~kuvy");
    for before in ["", "u", "us", "user:", "user:x"] {
        for after in ["", "\n", "&&", "&&&"] {
            for (engine, alphabet) in [
                (general_purpose::STANDARD, STANDARD),
                (general_purpose::URL_SAFE, URL_SAFE),
            ] {
                let coded = engine.encode(format!("{before}{secret}{after}"));
                let (interior, _) = sextets(secret.as_bytes(), before.len() % 3, alphabet);
                let interior = std::str::from_utf8(&interior).expect("ascii");
                assert!(coded.contains(interior), "{coded} does not hold {interior}");
                assert!(
                    spelled(secret, phantom)
                        .iter()
                        .any(|(form, _)| form == interior)
                );
            }
        }
    }
}

#[test]
fn a_secret_that_cannot_be_scrubbed_in_place_is_refused() {
    assert_eq!(
        forms_of("short12", "phant12").err(),
        Some(Unscrubbable::TooShort)
    );
    assert_eq!(
        forms_of("secret/12", "phantom12").err(),
        Some(Unscrubbable::ShapeDiffers)
    );
    assert_eq!(
        forms_of("secret123", "phant1234x").err(),
        Some(Unscrubbable::ShapeDiffers)
    );
    assert_eq!(
        forms_of("secret123", "secret123").err(),
        Some(Unscrubbable::PhantomIsSecret)
    );
}
