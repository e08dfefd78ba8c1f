//! Reads fields from bytes, in order; numbers are in network order.

/// The bytes end inside a message: it is well-formed so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the message is not complete")]
pub struct Incomplete;

/// The bytes that were not read yet. A length that lies beyond them reads nothing.
#[derive(Debug, Clone)]
pub struct Cursor<'b>(&'b [u8]);

impl<'b> Cursor<'b> {
    /// Starts before the first byte.
    pub fn new(bytes: &'b [u8]) -> Self {
        Self(bytes)
    }

    /// How many bytes were not read yet.
    pub fn left(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Incomplete> {
        let (array, rest) = self.0.split_first_chunk().ok_or(Incomplete)?;
        self.0 = rest;
        Ok(*array)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Incomplete> {
        self.array().map(u8::from_be_bytes)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Incomplete> {
        self.array().map(u16::from_be_bytes)
    }

    /// Reads bytes whose count comes before them, in one byte.
    pub(crate) fn vec8(&mut self) -> Result<&'b [u8], Incomplete> {
        let length = self.u8()?;
        let split = self.0.split_at_checked(length.into());
        let (bytes, rest) = split.ok_or(Incomplete)?;
        self.0 = rest;
        Ok(bytes)
    }
}
