//! A command as the driver wrote it, and what refuses it.

use irdma_engine::MemoryFault;
use irdma_engine::spec::EngineError;

use crate::field::{Field, u64_at};

const OPCODE: Field = Field::new(37, 32);
const VALID: Field = Field::bit(63);
const FIRST_ENTRY: Field = Field::new(27, 0);

/// Why a command was not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Major error code.
    pub major: u16,
    /// Minor error code.
    pub minor: u16,
    /// For the log.
    pub reason: &'static str,
}

impl Failure {
    const fn new(minor: u16, reason: &'static str) -> Self {
        Self { major: 0xffff, minor, reason }
    }

    /// An opcode that the device does not have.
    pub const UNKNOWN: Self = Self::new(0x8001, "no such command");
    /// The object is not in a state for it (kernel: `irdma_noncrit_err_list`).
    pub const STATE: Self = Self::new(0x8002, "the object is in use or in the wrong state");
    /// A field out of range.
    pub const INVALID: Self = Self::new(0x8003, "a field is out of range");
    /// An object that is not there.
    pub const NOT_FOUND: Self = Self::new(0x8004, "no such object");
    /// An object of that number is there.
    pub const TAKEN: Self = Self::new(0x8005, "there is an object of that number");
    /// Memory that cannot be reached.
    pub const MEMORY: Self = Self::new(0x8008, "memory could not be reached");
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::NotFound => Self::NOT_FOUND,
            EngineError::Taken => Self::TAKEN,
            EngineError::Busy => Self::STATE,
            EngineError::Invalid | EngineError::Exhausted => Self::INVALID,
            EngineError::Fault => Self::MEMORY,
        }
    }
}

impl From<MemoryFault> for Failure {
    fn from(MemoryFault: MemoryFault) -> Self {
        Self::MEMORY
    }
}

/// A command of the control queue: eight words.
#[derive(Clone, Copy, Debug)]
pub struct Command([u64; 8]);

impl Command {
    /// From the bytes in the ring.
    pub fn new(bytes: &[u8; 64]) -> Self {
        Self(std::array::from_fn(|index| u64_at(bytes, index * 8)))
    }

    /// The word at a byte offset, a multiple of 8 below 64.
    pub fn word(&self, offset: usize) -> u64 {
        self.0[offset / 8]
    }

    /// The word that has opcode and valid bit.
    pub fn header(&self) -> u64 {
        self.0[3]
    }

    /// What to do.
    pub fn opcode(&self) -> u32 {
        OPCODE.number(self.header())
    }

    /// Whether it was written in the lap whose valid bit is that.
    pub fn is_valid(&self, polarity: bool) -> bool {
        VALID.is_set(self.header()) == polarity
    }

    /// A number in the header.
    pub fn header_number(&self, field: Field) -> u32 {
        field.number(self.header())
    }

    /// Whether a bit of the header is set.
    pub fn has(&self, field: Field) -> bool {
        field.is_set(self.header())
    }

    /// First page list entry of what the command is about.
    pub fn first_entry(&self) -> u32 {
        FIRST_ENTRY.number(self.word(48))
    }
}
