//! Sessions that search for the same secrets share the needles, but no replacement.

use super::super::needles::SharedNeedles;
use super::*;
use crate::guesses::Guesses;

const ONE: &str = "ghp_A1b2C3d4E5f6G7h8I9j0K1l2";
const TWO: &str = "ghp_c3D4e5F6g7H8i9J0k1L2m3N4";
const PHANTOMS: [&str; 2] = [
    "ghp_Z9y8X7w6V5u4T3s2R1q0P9o8",
    "ghp_mQNrbTVsxUXtzWLukRJvhPGx",
];

fn forms(shared: &SharedNeedles, secret: &str, phantom: &str) -> Arc<SecretForms> {
    let (secret, phantom) = (secret.as_bytes(), phantom.as_bytes());
    Arc::new(SecretForms::sharing(shared, secret, phantom, phantom).unwrap())
}

fn search(secrets: Vec<Arc<SecretForms>>) -> EchoSearch {
    EchoSearch::of(secrets, Arc::new(Guesses::new(None)))
}

/// Returns the scrubbed text; without an echo, the text itself.
fn shown(search: &EchoSearch, shown: &str) -> String {
    let scrubbed = search.scrub(shown.as_bytes());
    scrubbed.map_or(shown.to_owned(), text)
}

#[test]
fn sessions_share_what_is_searched_for_and_each_sees_its_own_phantom() {
    let (one, two) = (SharedNeedles::default(), SharedNeedles::default());
    let [first, second] = PHANTOMS;
    let of_one = [forms(&one, ONE, first), forms(&one, ONE, second)];
    let of_two = [forms(&two, TWO, second), forms(&two, TWO, first)];
    // The second session received them in another order.
    let [a, b] = of_one;
    let [c, d] = of_two;
    let searches = [search(vec![a, c]), search(vec![d, b])];
    assert!(Arc::ptr_eq(&searches[0].set, &searches[1].set));
    assert!(Arc::ptr_eq(
        &searches[0].partial[0],
        &searches[1].partial[0]
    ));
    for how in [0, 4, 5, 6, 7, 8, 9, 11, 12] {
        let spelled = |token: &str| text(pieces::spell(token, how));
        let both = |one: &str, two: &str| format!("<{}>, <{}>", spelled(one), spelled(two));
        assert_eq!(
            shown(&searches[0], &both(ONE, TWO)),
            both(first, second),
            "{how}"
        );
        assert_eq!(
            shown(&searches[1], &both(ONE, TWO)),
            both(second, first),
            "{how}"
        );
    }
    let piece = |token: &str| format!("<{}>", &token[4..10]);
    assert_eq!(shown(&searches[0], &piece(ONE)), piece(first));
    assert_eq!(shown(&searches[1], &piece(ONE)), piece(second));
}

#[test]
fn a_session_is_searched_for_its_own_secrets_alone() {
    let (one, two) = (SharedNeedles::default(), SharedNeedles::default());
    let both = search(vec![
        forms(&one, ONE, PHANTOMS[0]),
        forms(&two, TWO, PHANTOMS[0]),
    ]);
    let alone = search(vec![forms(&one, ONE, PHANTOMS[1])]);
    assert!(!Arc::ptr_eq(&both.set, &alone.set));
    assert_eq!(
        shown(&alone, &format!("{ONE} {TWO}")),
        format!("{} {TWO}", PHANTOMS[1])
    );
}

#[test]
fn a_phantom_that_shares_a_letter_with_the_secret_has_other_pieces() {
    let one = SharedNeedles::default();
    let like = "ghp_A9y8X7w6V5u4T3s2R1q0P9o8";
    let searches = [PHANTOMS[0], like].map(|phantom| search(vec![forms(&one, ONE, phantom)]));
    assert!(!Arc::ptr_eq(&searches[0].set, &searches[1].set));
    assert_eq!(shown(&searches[0], ONE), PHANTOMS[0]);
    assert_eq!(shown(&searches[1], ONE), like);
}

#[test]
fn of_equal_secrets_the_phantom_of_the_first_is_written() {
    let (one, same) = (SharedNeedles::default(), SharedNeedles::default());
    let [first, second] = PHANTOMS;
    let (one, same) = (forms(&one, ONE, first), forms(&same, ONE, second));
    assert_eq!(shown(&search(vec![one.clone(), same.clone()]), ONE), first);
    assert_eq!(shown(&search(vec![same, one]), ONE), second);
}

#[test]
fn what_no_session_searches_for_is_freed() {
    let one = SharedNeedles::default();
    let searches = PHANTOMS.map(|phantom| search(vec![forms(&one, ONE, phantom)]));
    let set = Arc::downgrade(&searches[0].set);
    let [first, second] = searches;
    drop(first);
    assert!(set.upgrade().is_some());
    drop(second);
    assert!(set.upgrade().is_none());
}
