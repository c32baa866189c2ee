//! Commands about private memory and about what the device is.

use irdma_engine::Engine;
use irdma_engine::spec::Generation;

use super::{Command, Failure};
use crate::field::{Field, u64_at};
use crate::function::Function;
use crate::hmc::{COMMIT_BYTES, PrivateMemory};
use crate::host::Host;

/// Further segment descriptors of a command, in memory of their own.
const MORE_SEGMENTS: Field = Field::new(3, 0);
const MORE_ADDRESS: u64 = !0x7f;
const ENTRY_VALID: Field = Field::bit(63);

/// A feature that the device tells of (kernel: `enum irdma_feature_type`).
const fn feature(kind: u64, value: u64) -> u64 {
    kind << 48 | value
}

/// Kinds of features: firmware version, hardware revision, flags.
const FIRMWARE: u64 = 0;
const REVISION: u64 = 1;
const FLAGS: u64 = 32;
/// Version 1.0.
const FIRMWARE_VERSION: u64 = 1 << 16;
/// Remote atomics are allowed (kernel: `IRDMA_ATOMICS_ALLOWED_BIT`, which is a mask).
const ATOMICS_ALLOWED: u64 = 1;

impl Function {
    /// `QUERY_RDMA_FEATURES`.
    pub(super) fn query_features(
        &mut self,
        engine: &mut Engine<Host>,
        command: &Command,
    ) -> Result<(), Failure> {
        let mut features = vec![feature(FIRMWARE, FIRMWARE_VERSION), feature(REVISION, 1)];
        if self.generation >= Generation::Gen3 {
            features.push(feature(FLAGS, ATOMICS_ALLOWED));
        }
        features[0] |= (features.len() as u64) << 32;
        let bytes: Vec<u8> = features.iter().flat_map(|word| word.to_le_bytes()).collect();
        Ok(engine.platform().write_at(self.id, command.word(32), &bytes)?)
    }

    /// `QUERY_FPM_VAL`.
    pub(super) fn query_private_memory(
        &mut self,
        engine: &mut Engine<Host>,
        command: &Command,
    ) -> Result<(), Failure> {
        let limits = PrivateMemory::query(self.generation);
        Ok(engine.platform().write_at(self.id, command.word(32), &limits)?)
    }

    /// `COMMIT_FPM_VAL`.
    pub(super) fn commit_private_memory(
        &mut self,
        engine: &mut Engine<Host>,
        command: &Command,
    ) -> Result<(), Failure> {
        let mut buffer = [0; COMMIT_BYTES];
        let host = engine.platform();
        host.read_at(self.id, command.word(32), &mut buffer)?;
        host.reach(self.id).ok_or(Failure::MEMORY)?.private.commit(&mut buffer);
        Ok(host.write_at(self.id, command.word(32), &buffer)?)
    }

    /// `UPDATE_PE_SDS`: three descriptors in the command, further ones in a buffer.
    pub(super) fn update_segments(
        &mut self,
        engine: &mut Engine<Host>,
        command: &Command,
    ) -> Result<(), Failure> {
        let mut entries = vec![(command.word(0), command.word(8))];
        for offset in [32, 48] {
            if ENTRY_VALID.is_set(command.word(offset)) {
                entries.push((command.word(offset), command.word(offset + 8)));
            }
        }
        let mut further = vec![0; command.header_number(MORE_SEGMENTS) as usize * 16];
        let host = engine.platform();
        if !further.is_empty() {
            host.read_at(self.id, command.word(16) & MORE_ADDRESS, &mut further)?;
        }
        entries.extend(further.chunks_exact(16).map(|entry| (u64_at(entry, 0), u64_at(entry, 8))));
        let private = &mut host.reach(self.id).ok_or(Failure::MEMORY)?.private;
        for (which, descriptor) in entries {
            private.set_segment(which, descriptor);
        }
        Ok(())
    }
}
