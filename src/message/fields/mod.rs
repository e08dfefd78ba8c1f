//! Fields: which end at this hop, which a request must not claim, and how many are allowed.

mod check;
mod names;
mod strip;
mod trailers;

pub use check::{FieldsMalformed, check, check_names, trim};
pub(crate) use names::{Shapes, is_one_of, shapes};
pub use names::{folded_name, frames_or_routes, reads_as};
pub use strip::{HopByHop, join_cookies, strip_hop_by_hop, strip_overrides, strip_response};
pub use trailers::{
    filter_request_trailers, filter_response_trailers, is_forbidden_trailer, is_request_trailer,
};

#[cfg(test)]
mod tests;
