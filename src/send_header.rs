//! What the header of a send WQE has of the verb's operation and flags, as a table.

use irdma_hw::format::{Opcode, SendHeader};
use rdma_core_sys::bindings::*;

/// Flags that are in the header.
const FLAGS: u32 = IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED;

/// Sets of those flags.
const SETS: usize = FLAGS as usize + 1;

// So that a set of flags is an index.
const _: () = assert!(SETS == 8 && IBV_SEND_INLINE == SETS as u32);

/// Operations of the table; work requests with others are refused by their number.
const OPERATIONS: usize = 32;

/// The header of each operation with each set of flags.
static HEADERS: [SendHeader; OPERATIONS * SETS] = {
    let mut headers = [SendHeader::from_bits(0); OPERATIONS * SETS];
    let mut index = 0;
    while index < headers.len() {
        headers[index] = header((index / SETS) as u32, (index % SETS) as u32);
        index += 1;
    }
    headers
};

const fn header(operation: ibv_wr_opcode, flags: u32) -> SendHeader {
    let (plain, solicited) = match operation {
        IBV_WR_RDMA_WRITE | IBV_WR_RDMA_WRITE_WITH_IMM => (Opcode::RdmaWrite, Opcode::RdmaWriteSolicited),
        IBV_WR_SEND | IBV_WR_SEND_WITH_IMM => (Opcode::Send, Opcode::SendSolicited),
        IBV_WR_SEND_WITH_INV => (Opcode::SendInvalidate, Opcode::SendSolicitedInvalidate),
        IBV_WR_RDMA_READ => (Opcode::RdmaRead, Opcode::RdmaRead),
        IBV_WR_ATOMIC_CMP_AND_SWP => (Opcode::CompareSwap, Opcode::CompareSwap),
        IBV_WR_ATOMIC_FETCH_AND_ADD => (Opcode::FetchAdd, Opcode::FetchAdd),
        IBV_WR_LOCAL_INV => (Opcode::LocalInvalidate, Opcode::LocalInvalidate),
        IBV_WR_BIND_MW => (Opcode::BindWindow, Opcode::BindWindow),
        // No queue takes them.
        _ => (Opcode::Nop, Opcode::Nop),
    };
    let opcode = if flags & IBV_SEND_SOLICITED != 0 { solicited } else { plain };
    SendHeader::from_bits(0)
        .with_opcode(opcode as u8)
        .with_read_fence(flags & IBV_SEND_FENCE != 0)
        // As the kernel's driver does for its own: without it the hardware may take a key for
        // valid still, or already, under many invalidations and registrations.
        .with_local_fence(matches!(operation, IBV_WR_LOCAL_INV))
        .with_signaled(flags & IBV_SEND_SIGNALED != 0)
        .with_immediate(matches!(operation, IBV_WR_SEND_WITH_IMM | IBV_WR_RDMA_WRITE_WITH_IMM))
}

/// The header of an operation with flags of `enum ibv_send_flags`.
#[inline(always)]
pub fn of(operation: ibv_wr_opcode, flags: u32) -> SendHeader {
    HEADERS[operation as usize % OPERATIONS * SETS + (flags & FLAGS) as usize]
}

/// A header of the table with its lower half.
#[inline(always)]
pub fn with_key(header: SendHeader, key: u32) -> SendHeader {
    // Nothing is to be taken out first.
    SendHeader::from_bits(header.bits() | SendHeader::default().with_remote_key(key).bits())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_and_flag_has_its_header() {
        let plain = of(IBV_WR_SEND, IBV_SEND_INLINE);
        assert_eq!(plain, SendHeader::default().with_opcode(3));
        assert_eq!(
            of(IBV_WR_SEND_WITH_IMM, IBV_SEND_SIGNALED),
            plain.with_signaled(true).with_immediate(true)
        );
        assert!(of(IBV_WR_RDMA_WRITE_WITH_IMM, 0).immediate() && !of(IBV_WR_RDMA_WRITE, 0).immediate());
        assert_eq!(of(IBV_WR_SEND, IBV_SEND_SOLICITED | IBV_SEND_FENCE), {
            SendHeader::default().with_opcode(5).with_read_fence(true)
        });
        for (operation, opcodes) in [
            (IBV_WR_RDMA_WRITE, [0x00, 0x0d]),
            (IBV_WR_RDMA_WRITE_WITH_IMM, [0x00, 0x0d]),
            (IBV_WR_RDMA_READ, [0x01, 0x01]),
            (IBV_WR_SEND_WITH_INV, [0x04, 0x06]),
            (IBV_WR_ATOMIC_CMP_AND_SWP, [0x11, 0x11]),
            (IBV_WR_ATOMIC_FETCH_AND_ADD, [0x0f, 0x0f]),
            (IBV_WR_LOCAL_INV, [0x0a, 0x0a]),
            (IBV_WR_BIND_MW, [0x08, 0x08]),
        ] {
            let found = [0, IBV_SEND_SOLICITED].map(|flags| of(operation, flags).opcode());
            assert_eq!(found, opcodes, "operation {operation}");
            for flags in 0..SETS as u32 {
                let is_fenced = of(operation, flags).local_fence();
                assert_eq!(is_fenced, operation == IBV_WR_LOCAL_INV, "operation {operation}, flags {flags}");
            }
        }
    }
}
