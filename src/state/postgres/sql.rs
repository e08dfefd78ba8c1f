//! The statements. They are those that every engine of this protocol has: no advisory lock, no
//! `SKIP LOCKED`, no trigger, and no sequence for an order.

/// Run on each new connection. A holder that is stuck must not stop the others.
pub(super) const SESSION: &str = "
    SET statement_timeout = '2s'; SET lock_timeout = '2s';
    SET idle_in_transaction_session_timeout = '5s'";

/// Run on the connection that listens. A beat that is lost with the server is of no use.
pub(super) const LISTENING: &str = "SET synchronous_commit = off; LISTEN gateway";
pub(super) const PULSE: &str = "SET synchronous_commit = off";

/// Makes what is missing. Later versions add columns and tables, and change none.
pub(super) const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS gateway_store (
        one SMALLINT PRIMARY KEY, version INTEGER NOT NULL,
        source TEXT NOT NULL, store BYTEA NOT NULL, sealed BYTEA NOT NULL);
    CREATE TABLE IF NOT EXISTS gateway_clock (
        one SMALLINT PRIMARY KEY, n BIGINT NOT NULL, chain BYTEA NOT NULL, sum BYTEA NOT NULL);
    CREATE TABLE IF NOT EXISTS gateway_row (
        kind TEXT NOT NULL, id TEXT NOT NULL, version INTEGER NOT NULL, record TEXT NOT NULL,
        sealed BYTEA NOT NULL, proof BYTEA NOT NULL, made BIGINT NOT NULL, live BOOLEAN NOT NULL,
        PRIMARY KEY (kind, id));
    CREATE INDEX IF NOT EXISTS gateway_row_made ON gateway_row (kind, made DESC);
    CREATE TABLE IF NOT EXISTS gateway_decision (
        revision BIGINT PRIMARY KEY, asked BYTEA NOT NULL, kind TEXT NOT NULL, id TEXT NOT NULL,
        proof BYTEA NOT NULL, chain BYTEA NOT NULL);
    CREATE INDEX IF NOT EXISTS gateway_decision_of ON gateway_decision (kind, id, revision DESC);
    CREATE INDEX IF NOT EXISTS gateway_decision_asked ON gateway_decision (asked);
    CREATE TABLE IF NOT EXISTS gateway_budget (
        name TEXT NOT NULL, unit TEXT NOT NULL, key TEXT NOT NULL, begins BIGINT NOT NULL,
        lasts BOOLEAN NOT NULL, taken BIGINT NOT NULL, added BIGINT NOT NULL, got BIGINT NOT NULL,
        PRIMARY KEY (name, unit, key));
    CREATE TABLE IF NOT EXISTS gateway_replica (
        name TEXT PRIMARY KEY, instance TEXT NOT NULL, version TEXT NOT NULL,
        stale_after BIGINT NOT NULL, applied BIGINT NOT NULL, head TEXT NOT NULL,
        in_force TEXT NOT NULL, beat BIGINT NOT NULL, gone BOOLEAN NOT NULL,
        drain BOOLEAN NOT NULL)";
/// Makes the row of the clock of a new store, whose sum and chain are those of nothing.
pub(super) const BEGIN: &str = "
    INSERT INTO gateway_clock (one, n, chain, sum) VALUES (1, 0, '', $1) ON CONFLICT DO NOTHING";
pub(super) const MARK: &str = "SELECT version, source, store, sealed FROM gateway_store";
pub(super) const SET_MARK: &str = "
    INSERT INTO gateway_store (one, version, source, store, sealed) VALUES (1, 1, $1, $2, $3)
    ON CONFLICT DO NOTHING";
/// Standbys that acknowledge nothing before a commit is answered.
pub(super) const ASYNCHRONOUS: &str = "
    SELECT application_name FROM pg_stat_replication WHERE sync_state = 'async'";

/// Takes the clock until the commit: decisions are made one after another.
pub(super) const TICK: &str = "
    UPDATE gateway_clock SET n = n + $1 WHERE one = 1 RETURNING n, chain, sum";
pub(super) const KNOWN: &str = "SELECT max(revision) FROM gateway_decision WHERE asked = $1";
pub(super) const CLOCK: &str = "SELECT n, chain, sum FROM gateway_clock WHERE one = 1";
/// A row, with the proof that the latest decision about it wrote.
pub(super) const ONE: &str = "
    SELECT r.kind, r.id, r.version, r.record, r.sealed, r.proof, d.proof, d.revision
    FROM (SELECT 1) one
    LEFT JOIN gateway_row r ON r.kind = $1 AND r.id = $2
    LEFT JOIN (SELECT proof, revision FROM gateway_decision WHERE kind = $1 AND id = $2
        ORDER BY revision DESC LIMIT 1) d ON true";
pub(super) const PUT: &str = "
    INSERT INTO gateway_row (kind, id, version, record, sealed, proof, made, live)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
    ON CONFLICT (kind, id) DO UPDATE SET version = excluded.version, record = excluded.record,
        sealed = excluded.sealed, proof = excluded.proof, made = excluded.made,
        live = excluded.live";
pub(super) const NOTE: &str = "
    INSERT INTO gateway_decision (revision, asked, kind, id, proof, chain)
    VALUES ($1, $2, $3, $4, $5, $6)";
pub(super) const SET_CLOCK: &str = "UPDATE gateway_clock SET chain = $1, sum = $2 WHERE one = 1";
pub(super) const NOTIFY: &str = "SELECT pg_notify('gateway', '')";
/// The latest decision about each row stays for as long as the row.
pub(super) const FORGET: &str = "
    DELETE FROM gateway_decision d WHERE d.revision <= $1 AND EXISTS (
        SELECT 1 FROM gateway_decision e
        WHERE e.kind = d.kind AND e.id = d.id AND e.revision > d.revision)";
pub(super) const LINK: &str = "SELECT chain FROM gateway_decision WHERE revision = $1";
pub(super) const SINCE: &str = "
    SELECT revision, kind, id, proof, chain FROM gateway_decision WHERE revision > $1
    ORDER BY revision LIMIT $2";
pub(super) const LATEST: &str = "
    SELECT kind, id, version, record, sealed, proof, proof FROM gateway_row WHERE kind = 'session'
    ORDER BY made DESC, id DESC LIMIT $1";
pub(super) const UNENDED: &str = "
    SELECT kind, id, version, record, sealed, proof, proof FROM gateway_row
    WHERE kind = 'session' AND live";
pub(super) const REVOKED: &str = "
    SELECT kind, id, version, record, sealed, proof, proof FROM gateway_row
    WHERE kind IN ('secret', 'token')";
pub(super) const PROOFS: &str = "
    SELECT kind, id, version, record, sealed, proof, proof FROM gateway_row
    WHERE (kind, id) > ($1, $2) ORDER BY kind, id LIMIT $3";

/// Takes of a budget, in one statement: its row alone is locked.
pub(super) const TAKE: &str = "
    INSERT INTO gateway_budget AS b (name, unit, key, begins, lasts, taken, added, got)
    SELECT $1, $2, $3, w.begins, $5, w.got, 0, w.got FROM (
        SELECT CASE WHEN $5 THEN $4 ELSE greatest($4, coalesce((
                SELECT max(s.begins) FROM gateway_budget s
                WHERE s.name = $1 AND s.unit = $2 AND NOT s.lasts), 0)) END AS begins,
            CASE WHEN least($6, $8) <= 0 OR $6 < $7 THEN 0 ELSE least($6, $8) END AS got) w
    ON CONFLICT (name, unit, key) DO UPDATE SET
        begins = CASE WHEN $5 THEN b.begins ELSE greatest(b.begins, excluded.begins) END,
        lasts = $5,
        added = CASE WHEN $5 OR b.begins >= excluded.begins THEN b.added ELSE 0 END,
        got = CASE WHEN $5 OR b.begins >= excluded.begins
            THEN CASE WHEN least($6 + b.added - b.taken, $8) <= 0 OR $6 + b.added - b.taken < $7
                THEN 0 ELSE least($6 + b.added - b.taken, $8) END
            ELSE excluded.got END,
        taken = CASE WHEN $5 OR b.begins >= excluded.begins
            THEN b.taken + CASE
                WHEN least($6 + b.added - b.taken, $8) <= 0 OR $6 + b.added - b.taken < $7
                THEN 0 ELSE least($6 + b.added - b.taken, $8) END
            ELSE excluded.got END
    RETURNING got, begins, taken, added";
pub(super) const ADD: &str = "
    INSERT INTO gateway_budget AS b (name, unit, key, begins, lasts, taken, added, got)
    SELECT $1, $2, $3, CASE WHEN $5 THEN $4 ELSE greatest($4, coalesce((
            SELECT max(s.begins) FROM gateway_budget s
            WHERE s.name = $1 AND s.unit = $2 AND NOT s.lasts), 0)) END, $5, 0, $6, 0
    ON CONFLICT (name, unit, key) DO UPDATE SET
        begins = CASE WHEN $5 THEN b.begins ELSE greatest(b.begins, excluded.begins) END,
        taken = CASE WHEN $5 OR b.begins >= excluded.begins THEN b.taken ELSE 0 END,
        added = CASE WHEN $5 OR b.begins >= excluded.begins THEN b.added + $6 ELSE $6 END
    RETURNING begins, taken, added";
pub(super) const GIVE_BACK: &str = "
    UPDATE gateway_budget SET taken = greatest(taken - $5, 0)
    WHERE name = $1 AND unit = $2 AND key = $3 AND begins = $4";
/// Another row of the window still says that it has begun.
pub(super) const DROP_UNUSED: &str = "
    DELETE FROM gateway_budget b
    WHERE b.name = $1 AND b.unit = $2 AND b.key = $3 AND b.begins = $4 AND b.taken = 0
        AND b.added = 0 AND EXISTS (
            SELECT 1 FROM gateway_budget o
            WHERE o.name = $1 AND o.unit = $2 AND o.lasts = b.lasts AND o.begins >= $4
                AND o.key <> $3)";
pub(super) const DROP_EARLIER: &str = "
    DELETE FROM gateway_budget WHERE name = $1 AND unit = $2 AND begins < $3 AND NOT lasts";
pub(super) const DROP_OF_SESSION: &str = "DELETE FROM gateway_budget WHERE lasts AND key = $1";
pub(super) const BUDGETS: &str = "
    SELECT name, unit, key, begins, taken, added FROM gateway_budget ORDER BY name, unit, key";
/// Tells a store that went back what was taken before.
pub(super) const RAISE: &str = "
    INSERT INTO gateway_budget AS b (name, unit, key, begins, lasts, taken, added, got)
    VALUES ($1, $2, $3, $4, $5, $6, 0, 0)
    ON CONFLICT (name, unit, key) DO UPDATE SET
        taken = CASE WHEN b.begins > $4 THEN b.taken WHEN b.begins < $4 THEN $6
            ELSE greatest(b.taken, $6) END,
        begins = greatest(b.begins, $4)
    RETURNING begins, taken, added";

/// A beat. Another process of the same name that lives keeps its row.
pub(super) const BEAT: &str = "
    INSERT INTO gateway_replica AS r
        (name, instance, version, stale_after, applied, head, in_force, beat, gone, drain)
    VALUES ($1, $2, $3, $4, $5, $6, $7,
        (extract(epoch FROM clock_timestamp()) * 1000)::bigint, $8, false)
    ON CONFLICT (name) DO UPDATE SET instance = excluded.instance, version = excluded.version,
        stale_after = excluded.stale_after, applied = excluded.applied, head = excluded.head,
        in_force = excluded.in_force, beat = excluded.beat, gone = excluded.gone,
        drain = r.drain AND r.instance = excluded.instance
    WHERE r.instance = excluded.instance OR r.gone OR r.beat + r.stale_after < excluded.beat
    RETURNING drain, beat";
pub(super) const REPLICAS: &str = "
    SELECT name, instance, version, stale_after, applied, head, in_force,
        (extract(epoch FROM clock_timestamp()) * 1000)::bigint - beat, gone, drain
    FROM gateway_replica ORDER BY name";
pub(super) const DRAIN: &str =
    "UPDATE gateway_replica SET drain = true WHERE name = $1 AND NOT gone";
