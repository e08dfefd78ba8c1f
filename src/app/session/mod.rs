//! Sessions that outlive the process: their records, their key, and their renewal.

pub mod creating;
pub mod key;
pub mod recalled;
pub mod renewal;
pub mod store;
pub mod tokens;
