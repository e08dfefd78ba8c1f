//! The prefixes that mark services' credentials, in one table for everything that looks for them.

/// The form of a credential after its prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tail {
    /// Anything.
    Any,
    /// 30 letters and digits, followed by their CRC-32 in base 62.
    Checksum,
    /// Letters of the base-32 alphabet.
    Base32,
    /// Exactly this many letters and digits. Ordinary words may begin with such a prefix, too.
    Alphanumeric(usize),
}

/// A prefix that a text begins with.
#[derive(Debug, Clone, Copy)]
pub struct Match<'a> {
    /// The prefix.
    pub prefix: &'static str,
    /// The form of a credential after the prefix.
    pub tail: Tail,
    /// The rest of this text.
    pub rest: &'a [u8],
}

/// Returns every prefix of the table that a text begins with.
pub fn matches(text: &[u8]) -> impl Iterator<Item = Match<'_>> {
    let all = TABLE.iter().flat_map(|(tail, prefixes)| {
        let prefixes = prefixes.split_ascii_whitespace();
        prefixes.map(move |prefix| (*tail, prefix))
    });
    all.filter_map(|(tail, prefix)| {
        let rest = text.strip_prefix(prefix.as_bytes())?;
        let fits = match tail {
            Tail::Alphanumeric(count) => {
                rest.len() == count && rest.iter().all(u8::is_ascii_alphanumeric)
            }
            Tail::Any | Tail::Checksum | Tail::Base32 => true,
        };
        fits.then_some(Match { prefix, tail, rest })
    })
}

/// The public formats, as their services document them.
const TABLE: &[(Tail, &str)] = &[
    (Tail::Checksum, "ghp_ gho_ ghu_ ghs_ ghr_ npm_"),
    (Tail::Base32, "AKIA ASIA"),
    (Tail::Alphanumeric(32), "cio"),
    (
        Tail::Any,
        "ABSK AGE-SECRET-KEY-1 AIza AKID ATATT3 ATBB ATCTT3 cfat_ cfut_ dapi dckr_pat_ doo_v1_ \
         dop_v1_ dor_v1_ dp.pt. dp.st. eyJ figd_ fm2_ fo1_ fw_ github_pat_ glcbt- gldt- glpat- \
         glptt- glrt- glsa_ GOCSPX- gsk_ gwt1_ hf_ HRKU- HRKU-AA hvb. hvr. hvs. key- lin_api_ LTAI nfp_ \
         ntn_ nvapi- ops_ pat-na1- pk_live_ PMAK- pplx- pul- pypi- pypi-AgEI r8_ re_ rk_live_ \
         rk_test_ rnd_ rubygems_ sb_secret_ sbp_ secret_ SG. shpat_ shpss_ sk- sk-admin- sk-ant- \
         sk-ant-admin01- sk-ant-api03- sk-ant-oat01- sk-ant-ort01- sk-or-v1- sk-proj- sk-svcacct- \
         sk_live_ sk_test_ sntrys_ sntryu_ sq0atp- sq0csp- tskey- vcp_ whsec_ xai- xapp- xapp-1- \
         xoxa- xoxb- xoxe- xoxe. xoxp- xoxr- xoxs- ya29.",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_may_begin_with_several_prefixes_and_a_word_with_none() {
        let found = |text: &'static str| -> Vec<&str> {
            matches(text.as_bytes()).map(|found| found.prefix).collect()
        };
        assert_eq!(found("sk-ant-api03-x"), ["sk-", "sk-ant-", "sk-ant-api03-"]);
        assert_eq!(found("cio0123456789abcdefghijABCDEFGHIJ01"), ["cio"]);
        assert!(found("cio-dashboard").is_empty() && found("github").is_empty());
    }

    #[test]
    fn no_prefix_stands_twice() {
        let mut all: Vec<&str> = TABLE
            .iter()
            .flat_map(|(_, prefixes)| prefixes.split_ascii_whitespace())
            .collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
