//! Room: signature. What a request is signed with, read, verified and made anew; pure: time, keys and content are arguments.

pub mod sigv4;
