//! The macro behind all word layouts: one line per field, checked when compiled.

/// Declares 64-bit words made of bit fields.
///
/// ```text
/// words! {
///     /// What the word is.
///     pub struct Name {
///         /// What the field is.
///         [37:32] opcode, with_opcode: u8;
///         /// A single bit.
///         [63:63] valid, with_valid: bool;
///     }
///     overlays {
///         /// A field that shares bits with one above, in another use of the word.
///         [24:0] other, with_other: u32;
///     }
/// }
/// ```
///
/// Each field gets a getter and a consuming setter, both `const`. A value wider
/// than its field loses its upper bits and never touches a neighbour. A field
/// out of order, wider than its type, or sharing bits with another outside of
/// `overlays` does not compile.
macro_rules! words {
    ($(
        $(#[$attribute:meta])*
        pub struct $name:ident {
            $($(#[$field_attribute:meta])* [$high:literal : $low:literal] $get:ident, $set:ident : $type:tt;)*
        }
        $(overlays {
            $($(#[$over_attribute:meta])* [$over_high:literal : $over_low:literal] $over_get:ident, $over_set:ident : $over_type:tt;)*
        })?
    )*) => {$(
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[repr(transparent)]
        pub struct $name(u64);

        impl $name {
            /// The word with these bits.
            #[inline(always)]
            pub const fn from_bits(bits: u64) -> Self {
                Self(bits)
            }

            /// The bits of the word, in the byte order of this machine.
            #[inline(always)]
            pub const fn bits(self) -> u64 {
                self.0
            }

            $(words!(@field $(#[$field_attribute])* [$high:$low] $get, $set: $type);)*
            $($(words!(@field $(#[$over_attribute])* [$over_high:$over_low] $over_get, $over_set: $over_type);)*)?
        }

        const _: () = {
            #[allow(unused_mut, unused_assignments)]
            let mut taken = 0u64;
            $(
                let mask = words!(@mask $high, $low);
                assert!($high - $low < words!(@bits $type), "field wider than its type");
                assert!(taken & mask == 0, "two fields share a bit");
                #[allow(unused_assignments)]
                { taken |= mask; }
            )*
            $($(
                assert!($over_high - $over_low < words!(@bits $over_type), "field wider than its type");
            )*)?
        };
    )*};

    (@field $(#[$attribute:meta])* [$high:literal : $low:literal] $get:ident, $set:ident : bool) => {
        $(#[$attribute])*
        #[inline(always)]
        pub const fn $get(self) -> bool {
            const { assert!($high == $low, "a bool is one bit") };
            self.0 & (1 << $low) != 0
        }

        $(#[$attribute])*
        #[inline(always)]
        pub const fn $set(self, value: bool) -> Self {
            Self(self.0 & !(1 << $low) | (value as u64) << $low)
        }
    };
    (@field $(#[$attribute:meta])* [$high:literal : $low:literal] $get:ident, $set:ident : $type:tt) => {
        $(#[$attribute])*
        #[inline(always)]
        pub const fn $get(self) -> $type {
            ((self.0 & words!(@mask $high, $low)) >> $low) as $type
        }

        $(#[$attribute])*
        #[inline(always)]
        pub const fn $set(self, value: $type) -> Self {
            let mask = words!(@mask $high, $low);
            Self(self.0 & !mask | ((value as u64) << $low) & mask)
        }
    };

    (@mask $high:literal, $low:literal) => {{
        const { assert!($high >= $low && $high < 64, "bit range out of order") };
        const MASK: u64 = (u64::MAX >> (63 - ($high - $low))) << $low;
        MASK
    }};
    (@bits bool) => { 1 };
    (@bits u8) => { 8 };
    (@bits u16) => { 16 };
    (@bits u32) => { 32 };
    (@bits u64) => { 64 };
}

#[cfg(test)]
mod tests {
    words! {
        /// A word to try the macro on.
        pub struct Sample {
            /// Low half.
            [31:0] low, with_low: u32;
            /// Four bits.
            [35:32] four, with_four: u8;
            /// Top bit.
            [63:63] top, with_top: bool;
        }
        overlays {
            /// Crosses the others.
            [40:28] across, with_across: u16;
        }
    }

    #[test]
    fn fields_keep_to_themselves() {
        let word = Sample::from_bits(u64::MAX).with_four(0);
        assert_eq!(word.bits(), 0xFFFF_FFF0_FFFF_FFFF);
        let word = Sample::default().with_four(0xFF).with_top(true).with_low(7);
        assert_eq!(word.bits(), 0x8000_000F_0000_0007);
        assert_eq!((word.low(), word.four(), word.top()), (7, 0xF, true));
        assert!(!word.with_top(false).top());
        assert_eq!(Sample::default().with_across(0x1FFF).bits(), 0x1FF_F000_0000);
        assert_eq!(Sample::from_bits(0xFF_F000_0000).across(), 0xFFF);
    }
}
