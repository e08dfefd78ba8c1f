//! The leaves of a session: minted at the first handshake with a name, then cached. Names that no
//! policy reaches have a budget of their own, for leaves under which their requests are refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gateway_message::Host;
use lru::LruCache;
use parking_lot::Mutex;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{self, cipher_suite};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, version};
use time::OffsetDateTime;

use super::budget::Budget;
use super::mint::{CaSettings, Mint, MintRefused};

/// Returns how many leaves all sessions of this process have minted.
#[must_use]
pub fn leaves_minted() -> u64 {
    MINTED.load(Ordering::Relaxed)
}

static MINTED: AtomicU64 = AtomicU64::new(0);

/// Whether some policy could permit a request to a host.
pub type ReachFilter = Arc<dyn Fn(&Host) -> bool + Send + Sync>;

/// A bounded cache of leaves in front of the [`Mint`].
pub(super) struct Leaves {
    mint: Mint,
    is_reached: ReachFilter,
    // Minting takes about 20 µs, so it happens under the lock, and no name is minted twice at once.
    cache: Mutex<LeafCache>,
    /// For hosts that no policy reaches: their requests are refused in TLS, with an explanation.
    refusing: Mutex<LeafCache>,
}

struct LeafCache {
    /// Grows with its leaves: most sessions see few names, so nothing is reserved.
    leaves: LruCache<Host, Leaf>,
    most: usize,
    budget: Budget,
    minted: u64,
}

impl LeafCache {
    fn new(most: usize, burst: u32, per_second: u32) -> Self {
        Self {
            leaves: LruCache::unbounded(),
            most,
            budget: Budget::new(burst, per_second, Instant::now()),
            minted: 0,
        }
    }
}

struct Leaf {
    key: Arc<CertifiedKey>,
    minted_at: OffsetDateTime,
    renew_at: OffsetDateTime,
}

impl Leaf {
    /// Whether clients accept the leaf now. After a clock was set back, it may not be valid yet.
    fn is_fresh(&self, now: OffsetDateTime) -> bool {
        self.minted_at - CLOCKS_DIFFER <= now && now < self.renew_at
    }
}

impl Leaves {
    pub(super) fn new(mint: Mint, settings: &CaSettings, is_reached: ReachFilter) -> Self {
        let (burst, per_second) = (settings.mint_burst, settings.mint_per_second);
        let cache = LeafCache::new(settings.leaves_kept.max(1), burst, per_second);
        Self {
            mint,
            is_reached,
            cache: Mutex::new(cache),
            refusing: Mutex::new(LeafCache::new(REFUSING_KEPT, burst, per_second)),
        }
    }

    pub(super) fn leaf(&self, host: &Host) -> Result<Arc<CertifiedKey>, MintRefused> {
        self.leaf_at(host, OffsetDateTime::now_utc(), Instant::now())
    }

    pub(super) fn leaf_at(
        &self,
        host: &Host,
        now: OffsetDateTime,
        tick: Instant,
    ) -> Result<Arc<CertifiedKey>, MintRefused> {
        // Checked each time: refused names must not use up the leaves of permitted ones.
        let cache = if (self.is_reached)(host) {
            &self.cache
        } else {
            &self.refusing
        };
        if !self.mint.covers(host) {
            return Err(MintRefused::OutsideConstraints);
        }
        let mut cache = cache.lock();
        if let Some(leaf) = cache.leaves.get(host).filter(|leaf| leaf.is_fresh(now)) {
            return Ok(Arc::clone(&leaf.key));
        }
        cache
            .budget
            .take(tick)
            .map_err(|_wait| MintRefused::Throttled)?;
        let (key, renew_at) = self.mint.leaf(host, now)?;
        let key = Arc::new(key);
        cache.minted += 1;
        MINTED.fetch_add(1, Ordering::Relaxed);
        cache.leaves.put(
            host.clone(),
            Leaf {
                key: Arc::clone(&key),
                minted_at: now,
                renew_at,
            },
        );
        if cache.leaves.len() > cache.most {
            cache.leaves.pop_lru();
        }
        Ok(key)
    }

    /// Changes the lifetime of leaves, and the size of their cache. Leaves that would live too long
    /// are minted again.
    pub(super) fn change(&self, lifetime: Duration, kept: usize) {
        let mut cache = self.cache.lock();
        cache.most = kept.max(1);
        if self.mint.live(lifetime) {
            cache.leaves.clear();
            self.refusing.lock().leaves.clear();
        }
        while cache.leaves.len() > cache.most {
            cache.leaves.pop_lru();
        }
    }

    pub(super) fn mint(&self) -> &Mint {
        &self.mint
    }

    pub(super) fn counted(&self) -> (usize, u64) {
        // After a panic under the lock, a cache lacks at most one leaf, so it stays in use.
        let (cache, refusing) = (self.cache.lock(), self.refusing.lock());
        (
            cache.leaves.len() + refusing.leaves.len(),
            cache.minted + refusing.minted,
        )
    }
}

impl ResolvesServerCert for Leaves {
    fn resolve(&self, client_hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let host = Host::parse(client_hello.server_name()?.as_bytes()).ok()?;
        self.leaf(&host).ok()
    }
}

gateway_names::concealed!(Leaves);

/// How many leaves of hosts that no policy reaches are cached.
const REFUSING_KEPT: usize = 128;

/// How far the clock may be set back before leaves are minted anew: well below the time by which
/// leaves are backdated.
const CLOCKS_DIFFER: time::Duration = time::Duration::hours(1);

/// Returns the session's configuration: one ticket per connection, sealed with a key that no other
/// session has.
///
/// rustls resumes a ticket only under the SNI that it was issued for, and 0-RTT stays off.
pub(super) fn config_with_tickets(
    resolver: Arc<dyn ResolvesServerCert>,
) -> Result<ServerConfig, rustls::Error> {
    let mut config = config_without_tickets(resolver)?;
    config.ticketer = aws_lc_rs::Ticketer::new()?;
    config.send_tls13_tickets = 1;
    Ok(config)
}

/// Returns a configuration with TLS 1.3 and 1.2, no resumption, no early data, no key log.
pub(super) fn config_without_tickets(
    resolver: Arc<dyn ResolvesServerCert>,
) -> Result<ServerConfig, rustls::Error> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider()))
        .with_protocol_versions(&[&version::TLS13, &version::TLS12])?
        .with_no_client_auth()
        .with_cert_resolver(resolver);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config.ignore_client_order = true;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.max_early_data_size = 0;
    Ok(config)
}

/// AES-128 first: this side is loopback or a veth, and the shorter key schedule saves 13 % of a
/// handshake.
fn provider() -> CryptoProvider {
    CryptoProvider {
        cipher_suites: vec![
            cipher_suite::TLS13_AES_128_GCM_SHA256,
            cipher_suite::TLS13_AES_256_GCM_SHA384,
            cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
            cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
            cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
            cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        ],
        ..aws_lc_rs::default_provider()
    }
}
