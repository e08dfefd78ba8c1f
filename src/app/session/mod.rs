//! Sessions that outlive the process: their records, their key, and their renewal.

pub(crate) mod creating;
pub(crate) mod key;
pub(crate) mod recalled;
pub(crate) mod renewal;
pub(crate) mod store;
pub(crate) mod tokens;
