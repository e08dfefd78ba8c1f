//! Domains under which anyone can have a name: the public suffix list.

/// Who gives out names below a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SuffixOwner {
    /// A registry, as below `com` or `co.uk`.
    Registry,
    /// A service, as below `github.io`.
    Service,
}

/// Whether anyone can have a name directly below a domain, given in canonical form.
pub fn shared(domain: &str) -> Option<SuffixOwner> {
    if !domain.contains('.') {
        return Some(SuffixOwner::Registry);
    }
    if domain == BUCKETS {
        return Some(SuffixOwner::Service);
    }
    // Where the list has `*.domain`, every name below the domain is a suffix itself.
    let below = format!("any-label.{domain}");
    let kind = kind_of(domain).or_else(|| kind_of(&below))?;
    Some(match kind {
        psl::Type::Icann => SuffixOwner::Registry,
        psl::Type::Private => SuffixOwner::Service,
    })
}

/// The kind of a domain, if it is itself a suffix.
fn kind_of(domain: &str) -> Option<psl::Type> {
    let suffix = psl::suffix(domain.as_bytes())?;
    (suffix.as_bytes() == domain.as_bytes()).then(|| suffix.typ())?
}

/// The list has the domains below it where anyone may name a bucket, but not this domain itself.
const BUCKETS: &str = "amazonaws.com";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registries_and_services_are_told_apart_and_a_domain_of_ones_own_is_neither() {
        for domain in ["com", "test", "co.uk", "xn--55qx5d.cn", "kobe.jp"] {
            assert_eq!(shared(domain), Some(SuffixOwner::Registry), "{domain}");
        }
        for domain in [
            "amazonaws.com",
            "s3.amazonaws.com",
            "appspot.com",
            "azurewebsites.net",
            "blob.core.windows.net",
            "cloudfront.net",
            "cloudfunctions.net",
            "fly.dev",
            "github.io",
            "gitlab.io",
            "herokuapp.com",
            "netlify.app",
            "ngrok.io",
            "ngrok-free.app",
            "onrender.com",
            "pages.dev",
            "run.app",
            "vercel.app",
            "web.app",
            "workers.dev",
        ] {
            assert_eq!(shared(domain), Some(SuffixOwner::Service), "{domain}");
        }
        for domain in ["example.com", "bbc.co.uk", "corp.test", "me.github.io"] {
            assert_eq!(shared(domain), None, "{domain}");
        }
    }
}
