//! Logins are renewed once, and none is lost.
