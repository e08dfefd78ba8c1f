//! Macros for serde texts, enumerations with names, refusals, `Debug` without secrets, and the
//! methods that a stream's wrapper delegates.

/// Has serde write a type as a text, and read it back.
#[macro_export]
macro_rules! serde_as_text {
    ($name:ty, $write:expr, $read:expr) => {
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                let write: fn(&$name) -> String = $write;
                to.serialize_str(&write(self))
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let read: fn(&str) -> Option<$name> = $read;
                let text = <String as serde::Deserialize>::deserialize(from)?;
                read(&text).ok_or_else(|| serde::de::Error::custom("it has another form"))
            }
        }
    };
}

/// Declares an enumeration whose variants have names.
#[macro_export]
macro_rules! words {
    ($(#[$about:meta])* $vis:vis enum $kind:ident {
        $($(#[$each:meta])* $word:ident = $name:literal,)*
    }) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        $vis enum $kind { $($(#[$each])* $word,)* }

        impl $kind {
            /// Every variant, in the order of the declaration.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$word),*];

            /// The variant's name.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$word => $name,)* }
            }

            /// The variant with this name.
            pub fn named(text: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|one| one.as_str() == text)
            }
        }

        impl std::fmt::Display for $kind {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

/// Implements `Debug` for a type, showing only the members that are listed.
#[macro_export]
macro_rules! concealed {
    ($kind:ident $(, $member:ident)*) => {
        impl std::fmt::Debug for $kind {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($kind))
                    $(.field(stringify!($member), &self.$member))*
                    .finish_non_exhaustive()
            }
        }
    };
}

/// Declares an enumeration of errors, each with its reason code and its text. With `inner` or the
/// name of a member, an error has the code of the error there, and with `transparent` that error's
/// text.
#[macro_export]
macro_rules! faults {
    (@each $head:tt [$($variants:tt)*] [$($arms:tt)*]
        $(#[$each:meta])* $fault:ident($($payload:tt)*) = inner $transparent:ident, $($rest:tt)*
    ) => {
        $crate::faults!(@each $head
            [$($variants)* $(#[$each])* #[error($transparent)] $fault($($payload)*),]
            [$($arms)* Self::$fault(inner) => inner.reason(),] $($rest)*);
    };
    (@each $head:tt [$($variants:tt)*] [$($arms:tt)*]
        $(#[$each:meta])* $fault:ident($($payload:tt)*) = inner $text:literal, $($rest:tt)*
    ) => {
        $crate::faults!(@each $head
            [$($variants)* $(#[$each])* #[error($text)] $fault($($payload)*),]
            [$($arms)* Self::$fault(inner, ..) => inner.reason(),] $($rest)*);
    };
    (@each $head:tt [$($variants:tt)*] [$($arms:tt)*]
        $(#[$each:meta])* $fault:ident($($payload:tt)*) = $code:ident $transparent:ident,
        $($rest:tt)*
    ) => {
        $crate::faults!(@each $head
            [$($variants)* $(#[$each])* #[error($transparent)] $fault($($payload)*),]
            [$($arms)* Self::$fault(..) => $crate::ReasonCode::$code,] $($rest)*);
    };
    (@each $head:tt [$($variants:tt)*] [$($arms:tt)*]
        $(#[$each:meta])* $fault:ident {$($members:tt)*} = .$inner:ident $text:literal,
        $($rest:tt)*
    ) => {
        $crate::faults!(@each $head
            [$($variants)* $(#[$each])* #[error($text)] $fault {$($members)*},]
            [$($arms)* Self::$fault { $inner, .. } => $inner.reason(),] $($rest)*);
    };
    (@each $head:tt [$($variants:tt)*] [$($arms:tt)*]
        $(#[$each:meta])* $fault:ident $(($($payload:tt)*))? $({$($members:tt)*})?
            = $code:ident $text:literal $(($($value:tt)*))?, $($rest:tt)*
    ) => {
        $crate::faults!(@each $head
            [$($variants)* $(#[$each])* #[error($text $(, $($value)*)?)]
                $fault $(($($payload)*))? $({$($members)*})?,]
            [$($arms)* Self::$fault { .. } => $crate::ReasonCode::$code,] $($rest)*);
    };
    (@each [$(#[$about:meta])* $vis:vis enum $kind:ident] [$($variants:tt)*] [$($arms:tt)*]) => {
        $(#[$about])*
        $vis enum $kind { $($variants)* }

        impl $kind {
            /// The reason code in refusals and audit.
            $vis fn reason(&self) -> $crate::ReasonCode {
                match self { $($arms)* }
            }
        }
    };
    ($(#[$about:meta])* $vis:vis enum $kind:ident { $($body:tt)* }) => {
        $crate::faults!(@each [$(#[$about])* $vis enum $kind] [] [] $($body)*);
    };
}

/// Delegates methods of a stream's wrapper to its inner stream, `io`.
#[macro_export]
macro_rules! delegated {
    ($($method:ident)*) => { $($crate::delegated!(@$method);)* };
    (@read) => {
        fn poll_read(
            mut self: std::pin::Pin<&mut Self>,
            cx: &mut std::task::Context<'_>,
            into: &mut tokio::io::ReadBuf<'_>,
        ) -> std::task::Poll<std::io::Result<()>> {
            std::pin::Pin::new(&mut self.io).poll_read(cx, into)
        }
    };
    (@write) => {
        fn poll_write(
            mut self: std::pin::Pin<&mut Self>,
            cx: &mut std::task::Context<'_>,
            bytes: &[u8],
        ) -> std::task::Poll<std::io::Result<usize>> {
            std::pin::Pin::new(&mut self.io).poll_write(cx, bytes)
        }
    };
    (@vectored) => {
        fn poll_write_vectored(
            mut self: std::pin::Pin<&mut Self>,
            cx: &mut std::task::Context<'_>,
            slices: &[std::io::IoSlice<'_>],
        ) -> std::task::Poll<std::io::Result<usize>> {
            std::pin::Pin::new(&mut self.io).poll_write_vectored(cx, slices)
        }
    };
    (@is_vectored) => {
        fn is_write_vectored(&self) -> bool {
            self.io.is_write_vectored()
        }
    };
    (@$method:ident) => {
        fn $method(
            mut self: std::pin::Pin<&mut Self>,
            cx: &mut std::task::Context<'_>,
        ) -> std::task::Poll<std::io::Result<()>> {
            std::pin::Pin::new(&mut self.io).$method(cx)
        }
    };
}
