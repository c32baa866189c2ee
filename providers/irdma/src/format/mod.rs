//! Words that the device reads and writes, as tables of bit fields.
//!
//! Field names are ours, the kernel's name of each field stands in its doc line
//! (`drivers/infiniband/hw/irdma/defs.h`). docs/hardware.md tells the meaning
//! in prose.

#[macro_use]
mod words;

mod completion;
mod doorbell;
mod error;
mod le64;
mod opcode;
mod work;

pub use completion::{
    CqeExtensionFlags, CqeIdentity, CqeIndex, CqePayload, CqeStatus, EXTENSION_FLAGS, EXTENSION_IMMEDIATE,
    EXTENSION_SHARED_CONTEXT,
};
pub use doorbell::{
    ARM_WORD, ArmWord, COMPLETION_DOORBELL, PUSH_WINDOW_BYTES, PUSH_WINDOW_QUANTA, PushDoorbell,
    SEND_DOORBELL, SHADOW_BYTES, SHADOW_INDEX,
};
pub use error::{FlushCode, MAJOR_FLUSHED, MAJOR_SHARED_FLUSHED, Status, is_datagram_note};
pub use le64::Le64;
pub use opcode::{CompletionOpcode, Opcode, ReceiveOpcodes};
pub use work::{BindKeys, DatagramDestination, Fragment, ReceiveHeader, SendHeader};

/// Bytes of a quantum, the unit of work queues.
pub const QUANTUM_BYTES: usize = 32;
/// 64-bit words of a quantum.
pub const QUANTUM_WORDS: usize = QUANTUM_BYTES / 8;
/// Index of the word in a WQE or CQE that carries the valid bit.
pub const VALID_WORD: usize = 3;
/// The valid bit in that word; the meaning of its values alternates from lap to lap.
pub const VALID: u64 = 1 << 63;
/// Index of the word with the immediate, where a WQE carries one.
pub const IMMEDIATE_WORD: usize = 0;
/// Bytes of the device's pages, in which rings are counted.
pub const PAGE_BYTES: usize = 4096;
