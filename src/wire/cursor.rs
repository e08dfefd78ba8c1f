//! The view through which bytes are read, front to back; numbers are in network order.

/// The bytes end inside a message: it is well-formed so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Incomplete;

/// Why bytes do not begin with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadError<M> {
    /// They end inside it: more must arrive.
    Incomplete,
    /// They are not of the format.
    Malformed(M),
}

impl<M> From<Incomplete> for ReadError<M> {
    fn from(Incomplete: Incomplete) -> Self {
        Self::Incomplete
    }
}

/// The bytes that were not read yet. A length that lies beyond them reads nothing.
#[derive(Debug, Clone)]
pub struct Cursor<'b>(&'b [u8]);

impl<'b> Cursor<'b> {
    /// Starts before the first byte.
    pub fn new(bytes: &'b [u8]) -> Self {
        Self(bytes)
    }

    /// The bytes that were not read yet.
    pub fn rest(&self) -> &'b [u8] {
        self.0
    }

    /// Reads a message; `None` if it is not complete, and then nothing is taken.
    ///
    /// # Errors
    /// How it is malformed. Nothing is taken.
    pub fn whole<T, M>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, ReadError<M>>,
    ) -> Result<Option<T>, M> {
        let mut ahead = self.clone();
        match read(&mut ahead) {
            Ok(message) => {
                *self = ahead;
                Ok(Some(message))
            }
            Err(ReadError::Incomplete) => Ok(None),
            Err(ReadError::Malformed(malformed)) => Err(malformed),
        }
    }

    /// Takes as much of a payload as is here; `left` bytes of it are to come, and are counted down.
    pub fn payload(&mut self, left: &mut u64) -> &'b [u8] {
        let here = usize::try_from(*left).map_or(self.0.len(), |left| left.min(self.0.len()));
        *left -= here as u64;
        let (payload, rest) = self.0.split_at(here);
        self.0 = rest;
        payload
    }

    /// Reads this many bytes.
    ///
    /// # Errors
    /// `Incomplete` if fewer are left.
    pub fn bytes(&mut self, count: usize) -> Result<&'b [u8], Incomplete> {
        self.0.split_off(..count).ok_or(Incomplete)
    }

    /// Reads as many bytes as fit an array.
    ///
    /// # Errors
    /// `Incomplete` if fewer are left.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Incomplete> {
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

    pub(crate) fn u32(&mut self) -> Result<u32, Incomplete> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Incomplete> {
        self.array().map(u64::from_be_bytes)
    }

    /// Reads bytes whose count comes before them, in one byte.
    pub(crate) fn vec8(&mut self) -> Result<&'b [u8], Incomplete> {
        let length = self.u8()?;
        self.bytes(length.into())
    }

    /// Reads bytes whose count comes before them, in four.
    ///
    /// # Errors
    /// `Incomplete` if fewer are left.
    pub fn vec32(&mut self) -> Result<&'b [u8], Incomplete> {
        let length = self.u32()?;
        self.bytes(length as usize)
    }
}

/// The beginning of a message that comes in pieces. Its reader needs at most `N` bytes.
#[derive(Debug)]
pub struct Pending<const N: usize> {
    held: [u8; N],
    length: usize,
}

impl<const N: usize> Default for Pending<N> {
    fn default() -> Self {
        Self {
            held: [0; N],
            length: 0,
        }
    }
}

impl<const N: usize> Pending<N> {
    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Reads a message whose beginning may be held; `None` if it is still not complete, and then
    /// everything is taken and held.
    ///
    /// # Errors
    /// How it is malformed.
    pub fn read<T, M>(
        &mut self,
        cursor: &mut Cursor<'_>,
        read: impl FnOnce(&mut Cursor<'_>) -> Result<T, ReadError<M>>,
    ) -> Result<Option<T>, M> {
        let piece = cursor.clone().payload(&mut ((N - self.length) as u64));
        let here = self.length + piece.len();
        self.held[self.length..here].copy_from_slice(piece);
        let mut held = Cursor::new(&self.held[..here]);
        let message = held.whole(read)?;
        debug_assert!(message.is_some() || here < N, "a reader needs more bytes");
        // What was held before was not complete, so the message ends in this piece.
        let behind = message.as_ref().map_or(0, |_| held.rest().len());
        self.length = message.as_ref().map_or(here, |_| 0);
        cursor.0 = &cursor.0[piece.len() - behind..];
        Ok(message)
    }
}
