//! Tokens: what is read was written so, what parses prints alike, and caveats only narrow.
#![no_main]

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gateway_message::Host;
use gateway_names::{CredentialName, PolicyId, SessionId};
use gateway_token::{
    Caveat, ConnectionEvidence, TokenKey, TokenUse, VerifiedToken, attenuate, inspect, verify,
};
use http::Method;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((kind, content)) = input.split_first() else {
        return;
    };
    match kind % 3 {
        0 => text(&String::from_utf8_lossy(content)),
        1 => text(&format!("gwt1_{}", URL_SAFE_NO_PAD.encode(content))),
        _ => caveats(&String::from_utf8_lossy(content)),
    }
});

/// A text that reads as a token is the one spelling of it, and not signed by us.
fn text(text: &str) {
    let inside = inspect(text);
    let same = attenuate(text, &[]);
    assert_eq!(inside.is_ok(), same.is_ok());
    if let (Ok(inside), Ok(same)) = (inside, same) {
        assert_eq!(same.as_str(), text);
        inside.caveats.iter().for_each(spelled);
    }
    assert!(verify(text, key).is_err());
}

/// Lines that are caveats: a token with all of them allows what a token with each allows. Of more
/// than four limits a token is refused, so there are no more.
fn caveats(lines: &str) {
    let mut caveats: Vec<Caveat> = lines.lines().filter_map(|line| line.parse().ok()).collect();
    let mut limits = 0;
    caveats.retain(|caveat| {
        limits += u32::from(matches!(caveat, Caveat::Limit(_)));
        !matches!(caveat, Caveat::Limit(_)) || limits <= 4
    });
    caveats.iter().for_each(spelled);
    let all: Vec<&Caveat> = caveats.iter().collect();
    let Some(all) = minted(&all) else { return };
    let each: Vec<VerifiedToken> = caveats.iter().filter_map(|one| minted(&[one])).collect();
    assert_eq!(admits(&all), each.iter().all(admits), "{caveats:?}");
    for path in ["/", "/repos/octo/one", "/a/../b"] {
        let each = each.iter().all(|one| allows(one, path));
        assert_eq!(allows(&all, path), each, "{caveats:?}");
    }
}

fn spelled(caveat: &Caveat) {
    assert_eq!(caveat.to_string().parse().as_ref(), Ok(caveat));
}

fn key(number: u8, session: &SessionId) -> Option<TokenKey> {
    Some(TokenKey::derive(&[7; 32], number, session))
}

fn minted(caveats: &[&Caveat]) -> Option<VerifiedToken> {
    let session = SessionId::new("agent-1").unwrap();
    let end = Caveat::Before(NOW + 60);
    let caveats: Vec<Caveat> = caveats.iter().copied().chain([&end]).cloned().collect();
    let token = key(1, &session)?.mint([9; 12], &caveats).ok()?;
    Some(verify(token.as_str(), key).unwrap())
}

fn admits(token: &VerifiedToken) -> bool {
    let peer = Some([10, 0, 0, 1].into());
    let evidence = &["tag:ci"];
    token
        .at_connection(&ConnectionEvidence {
            peer,
            evidence,
            now: NOW,
        })
        .is_ok()
}

fn allows(token: &VerifiedToken, path: &str) -> bool {
    let credentials = [CredentialName::new("github").unwrap()];
    let policies = [PolicyId::new("github/read").unwrap()];
    let used = TokenUse {
        host: &Host::parse(b"api.github.com").unwrap(),
        port: 443,
        method: &Method::GET,
        path,
        named: &[],
        is_batch: false,
        credentials: credentials.iter(),
        policies: policies.iter(),
        now: NOW,
    };
    token.allows(&used).is_ok()
}

const NOW: u64 = 1_790_000_000;
