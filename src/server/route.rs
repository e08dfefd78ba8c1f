//! What all requests of one session to one origin share within a generation.

use std::sync::{Arc, Weak};

use gateway_intercept::Addressed;
use gateway_message::{EncodedSlash, Origin, OriginQuirks};
use gateway_policy::KnownRules;
use gateway_session::OriginBindings;
use parking_lot::Mutex;

use super::snapshot::Snapshot;

/// What a generation determines for the requests of one connection to one origin. It is looked up
/// with the first of them.
///
/// Holds the generation weakly, so that idle connections do not keep old generations in memory.
pub(super) struct OriginRoute {
    snapshot: Weak<Snapshot>,
    pub(super) bindings: Arc<OriginBindings>,
    pub(super) rules: KnownRules,
    reading: OriginQuirks,
}

impl OriginRoute {
    fn new(snapshot: &Arc<Snapshot>, origin: &Origin) -> Self {
        let rule = snapshot.origins.rule(origin);
        let slashes = match rule {
            Some(rule) if rule.encoded_slash => EncodedSlash::Keep,
            _ => EncodedSlash::Refuse,
        };
        Self {
            snapshot: Arc::downgrade(snapshot),
            bindings: Arc::new(snapshot.credentials.bindings().at_origin(origin)),
            rules: KnownRules::default(),
            reading: OriginQuirks {
                slashes,
                underscores: rule.is_some_and(|rule| rule.underscores),
            },
        }
    }

    /// Returns how the origin reads a request.
    pub(super) fn reading(&self, addressed: &Addressed) -> OriginQuirks {
        let signed = self.bindings.signed_paths();
        let signed = signed.filter(|_| addressed.looks_signed());
        OriginQuirks {
            slashes: signed.unwrap_or(self.reading.slashes),
            ..self.reading
        }
    }
}

/// The route of a connection's latest request. Most connections need no other.
#[derive(Default)]
pub(super) struct LatestRoute(Mutex<Option<Arc<OriginRoute>>>);

impl LatestRoute {
    /// Returns the route to an origin in a generation: the latest, or a new one.
    pub(super) fn to(&self, origin: &Origin, snapshot: &Arc<Snapshot>) -> Arc<OriginRoute> {
        let mut latest = self.0.lock();
        // The weak reference keeps the allocation, so no other generation has its address.
        let is_it = |route: &&Arc<OriginRoute>| {
            std::ptr::eq(route.snapshot.as_ptr(), Arc::as_ptr(snapshot))
                && route.bindings.origin() == origin
        };
        if let Some(route) = latest.as_ref().filter(is_it) {
            return route.clone();
        }
        latest
            .insert(Arc::new(OriginRoute::new(snapshot, origin)))
            .clone()
    }
}

#[cfg(test)]
mod tests {
    use gateway_credential::{Credentials, Stores};
    use gateway_message::{Authority, Scheme};
    use gateway_origin::OriginSettings;
    use gateway_policy::{Declared, Policies};

    use super::*;

    fn snapshot() -> Arc<Snapshot> {
        Arc::new(Snapshot {
            policies: Policies::load(&[], Declared::default()).unwrap(),
            credentials: Credentials::new(Vec::new(), &Stores::new([])).unwrap(),
            limits: super::super::limits::Limits::default(),
            origins: Arc::new(OriginSettings::default()),
            prices: Arc::new(gateway_spend::Prices::shipped()),
            logins: Vec::new(),
        })
    }

    #[test]
    fn a_route_is_of_one_origin_and_one_generation_and_keeps_none_alive() {
        let origin = |host: &str| Origin {
            scheme: Scheme::Https,
            authority: Authority::parse(host.as_bytes(), Some(443)).unwrap(),
        };
        let (one, other) = (origin("one.example"), origin("other.example"));
        let (latest, first) = (LatestRoute::default(), snapshot());
        let route = latest.to(&one, &first);
        assert!(Arc::ptr_eq(&route, &latest.to(&one, &first)));
        assert!(!Arc::ptr_eq(&route, &latest.to(&other, &first)));
        let route = latest.to(&one, &first);
        let second = snapshot();
        let next = latest.to(&one, &second);
        assert!(!Arc::ptr_eq(&route, &next));
        let gone = Arc::downgrade(&second);
        drop(second);
        assert!(gone.upgrade().is_none(), "{next:p}");
    }
}
