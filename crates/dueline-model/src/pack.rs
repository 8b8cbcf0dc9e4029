//! Structs of small fields, written into a few words.

/// Words of a packed state.
pub const WORDS: usize = 5;
/// A packed state.
pub type Packed = [u64; WORDS];

/// Writes and reads fields of a few bits each.
#[derive(Default)]
pub(crate) struct Bits {
    pub words: Packed,
    pub at: usize,
}

impl Bits {
    pub fn put(&mut self, value: u64, bits: usize) {
        debug_assert!(value < 1 << bits, "{value} does not fit into {bits} bits");
        let (word, shift) = (self.at / 64, self.at % 64);
        self.words[word] |= value << shift;
        if shift + bits > 64 {
            self.words[word + 1] |= value >> (64 - shift);
        }
        self.at += bits;
    }

    pub fn take(&mut self, bits: usize) -> u64 {
        let (word, shift) = (self.at / 64, self.at % 64);
        let mut value = self.words[word] >> shift;
        if shift + bits > 64 {
            value |= self.words[word + 1] << (64 - shift);
        }
        self.at += bits;
        value & ((1 << bits) - 1)
    }
}

/// A value of a field.
pub(crate) trait Field: Copy {
    fn number(self) -> u64;
    fn of(number: u64) -> Self;
}

impl Field for u8 {
    fn number(self) -> u64 {
        u64::from(self)
    }

    fn of(number: u64) -> Self {
        // Fields have at most eight bits.
        number as Self
    }
}

impl Field for bool {
    fn number(self) -> u64 {
        u64::from(self)
    }

    fn of(number: u64) -> Self {
        number != 0
    }
}

/// An enum whose values are numbered in their order; the first is the default.
macro_rules! choice {
    ($(#[$meta:meta])* $name:ident { $(#[$first_meta:meta])* $first:ident,
        $($(#[$value_meta:meta])* $value:ident),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub enum $name { #[default] $(#[$first_meta])* $first, $($(#[$value_meta])* $value),* }

        impl Field for $name {
            fn number(self) -> u64 {
                self as u64
            }

            fn of(number: u64) -> Self {
                const ALL: &[$name] = &[$name::$first, $($name::$value),*];
                usize::try_from(number).ok().and_then(|n| ALL.get(n).copied()).unwrap_or_default()
            }
        }
    };
}

/// A struct of fields, each with its width in bits.
macro_rules! packed {
    ($(#[$meta:meta])* $name:ident { $($(#[$field_meta:meta])* $field:ident : $type:ty = $bits:literal),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name { $($(#[$field_meta])* pub $field: $type),* }

        impl $name {
            fn pack(self, bits: &mut Bits) {
                $(bits.put(self.$field.number(), $bits);)*
            }

            fn unpack(bits: &mut Bits) -> Self {
                Self { $($field: <$type>::of(bits.take($bits))),* }
            }
        }
    };
}
