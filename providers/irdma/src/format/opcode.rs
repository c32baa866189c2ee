//! Opcodes of WQEs, of CQEs, and what they are to a program.

/// What a completion was of. The values are those of `enum ibv_wc_opcode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum CompletionOpcode {
    /// A send, of any kind.
    Send = 0,
    /// An RDMA write, with or without immediate.
    RdmaWrite = 1,
    /// An RDMA read.
    RdmaRead = 2,
    /// An atomic compare-and-swap.
    CompareSwap = 3,
    /// An atomic fetch-and-add.
    FetchAdd = 4,
    /// A window bind.
    BindWindow = 5,
    /// A local invalidate.
    LocalInvalidate = 6,
    /// A receive, with or without immediate.
    Receive = 128,
    /// A receive consumed by an RDMA write with immediate.
    ReceiveRdmaWithImmediate = 129,
}

/// Operation of a send WQE, and of the CQE that completes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Opcode {
    /// RDMA write.
    RdmaWrite = 0x00,
    /// RDMA read.
    RdmaRead = 0x01,
    /// Send.
    Send = 0x03,
    /// Send that invalidates an STag at the peer.
    SendInvalidate = 0x04,
    /// Send with a solicited event.
    SendSolicited = 0x05,
    /// Send that invalidates an STag at the peer, with a solicited event.
    SendSolicitedInvalidate = 0x06,
    /// Window bind.
    BindWindow = 0x08,
    /// Local invalidate.
    LocalInvalidate = 0x0a,
    /// No operation.
    Nop = 0x0c,
    /// RDMA write with a solicited event.
    RdmaWriteSolicited = 0x0d,
    /// Atomic fetch-and-add.
    FetchAdd = 0x0f,
    /// Atomic compare-and-swap.
    CompareSwap = 0x11,
}

impl Opcode {
    /// What a completion of this operation is to a program; `None` for a NOP,
    /// which a program never posts.
    #[inline(always)]
    pub const fn completion(self) -> Option<CompletionOpcode> {
        SEND_COMPLETIONS[self as usize]
    }

    /// What the opcode field of a send queue's CQE is to a program; `None` if it
    /// is none that a program's work request completes with. The upper two bits
    /// of `field` are not looked at.
    #[inline(always)]
    pub const fn decode_completion(field: u8) -> Option<CompletionOpcode> {
        SEND_COMPLETIONS[field as usize]
    }
}

/// One entry for each value of the opcode field of a send queue's CQE, four times.
const SEND_COMPLETIONS: [Option<CompletionOpcode>; 256] = {
    let mut table = [None; 256];
    table[Opcode::RdmaWrite as usize] = Some(CompletionOpcode::RdmaWrite);
    table[Opcode::RdmaWriteSolicited as usize] = Some(CompletionOpcode::RdmaWrite);
    table[Opcode::RdmaRead as usize] = Some(CompletionOpcode::RdmaRead);
    table[Opcode::Send as usize] = Some(CompletionOpcode::Send);
    table[Opcode::SendInvalidate as usize] = Some(CompletionOpcode::Send);
    table[Opcode::SendSolicited as usize] = Some(CompletionOpcode::Send);
    table[Opcode::SendSolicitedInvalidate as usize] = Some(CompletionOpcode::Send);
    table[Opcode::BindWindow as usize] = Some(CompletionOpcode::BindWindow);
    table[Opcode::LocalInvalidate as usize] = Some(CompletionOpcode::LocalInvalidate);
    table[Opcode::FetchAdd as usize] = Some(CompletionOpcode::FetchAdd);
    table[Opcode::CompareSwap as usize] = Some(CompletionOpcode::CompareSwap);
    let mut field = 64;
    while field < 256 {
        table[field] = table[field - 64];
        field += 1;
    }
    table
};

/// Which receive completions come of an RDMA write with immediate: one bit for
/// each value of the CQE's opcode field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveOpcodes {
    without_immediate: u64,
    with_immediate: u64,
}

impl ReceiveOpcodes {
    /// iWARP: there is no send with immediate, so the immediate alone tells.
    pub const IWARP: Self = Self { without_immediate: 0, with_immediate: u64::MAX };

    /// RoCE on GEN2: the field holds the low bits of the opcode on the wire
    /// (InfiniBand specification, table "OpCode field": RDMA WRITE Last and Only
    /// with Immediate are 0x09 and 0x0b).
    pub const WIRE: Self = Self::same(1 << 0x09 | 1 << 0x0b);

    /// GEN3: the field holds the opcode of the peer's WQE.
    pub const WQE: Self = Self::same(1 << Opcode::RdmaWrite as u64 | 1 << Opcode::RdmaWriteSolicited as u64);

    const fn same(opcodes: u64) -> Self {
        Self { without_immediate: opcodes, with_immediate: opcodes }
    }

    /// What a receive completion with this opcode field is to a program.
    #[inline(always)]
    pub const fn decode(self, field: u8, immediate: bool) -> CompletionOpcode {
        let opcodes = if immediate { self.with_immediate } else { self.without_immediate };
        if opcodes >> (field & 0x3F) & 1 != 0 {
            CompletionOpcode::ReceiveRdmaWithImmediate
        } else {
            CompletionOpcode::Receive
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use CompletionOpcode::*;

    #[test]
    fn every_send_opcode_is_decoded() {
        for field in 0..64 {
            let expected = match field {
                0x00 | 0x0d => Some(RdmaWrite),
                0x01 => Some(RdmaRead),
                0x03..=0x06 => Some(Send),
                0x08 => Some(BindWindow),
                0x0a => Some(LocalInvalidate),
                0x0f => Some(FetchAdd),
                0x11 => Some(CompareSwap),
                _ => None,
            };
            assert_eq!(Opcode::decode_completion(field), expected, "opcode {field:#x}");
        }
    }

    #[test]
    fn every_receive_opcode_is_decoded() {
        for field in 0..64 {
            for immediate in [false, true] {
                let wire = matches!(field, 0x09 | 0x0b);
                let wqe = matches!(field, 0x00 | 0x0d);
                for (opcodes, of_write) in [
                    (ReceiveOpcodes::IWARP, immediate),
                    (ReceiveOpcodes::WIRE, wire),
                    (ReceiveOpcodes::WQE, wqe),
                ] {
                    let expected = if of_write { ReceiveRdmaWithImmediate } else { Receive };
                    assert_eq!(opcodes.decode(field, immediate), expected, "opcode {field:#x}");
                }
            }
        }
    }

    #[test]
    fn bits_beyond_the_field_are_not_looked_at() {
        assert_eq!(Opcode::decode_completion(0xC3), Some(Send));
        assert_eq!(ReceiveOpcodes::WIRE.decode(0x49, false), ReceiveRdmaWithImmediate);
    }
}
