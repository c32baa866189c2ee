//! Memory regions: what an lkey or rkey opens, and every check on the way.

use crate::engine::Engine;
use crate::event::code;
use crate::mw::Window;
use crate::platform::Platform;
use crate::spec::{Access, EngineError, Key, MemoryRegion, PdId, QpId};

/// A registered region.
#[derive(Debug)]
pub(crate) struct Region<B> {
    pub(crate) memory: MemoryRegion<B>,
    pub(crate) key: Key,
    /// False once invalidated by a work request.
    pub(crate) valid: bool,
    /// Windows bound to it.
    pub(crate) windows: u32,
}

impl<B> Region<B> {
    /// Byte offset into the backing of `length` bytes at `address`, or the violation's code.
    pub(crate) fn locate(&self, address: u64, length: u64) -> Result<u64, u16> {
        let start = if self.memory.access.zero_based { 0 } else { self.memory.address };
        locate(start, self.memory.length, address, length)
    }
}

/// Offset of `length` bytes at `address` within an area of `size` bytes at `start`.
pub(crate) fn locate(start: u64, size: u64, address: u64, length: u64) -> Result<u64, u16> {
    if address.checked_add(length).is_none() {
        return Err(code::ADDRESS_WRAP);
    }
    let offset = address.checked_sub(start).ok_or(code::BOUNDS_VIOLATION)?;
    match offset.checked_add(length) {
        Some(end) if end <= size => Ok(offset),
        _ => Err(code::BOUNDS_VIOLATION),
    }
}

/// What a key index names.
#[derive(Debug)]
pub(crate) enum Protected<B> {
    /// A memory region.
    Region(Region<B>),
    /// A memory window.
    Window(Window),
}

/// Index part of a key.
pub(crate) fn key_index(key: Key) -> u32 {
    key >> 8
}

/// A checked piece of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Key index of the region.
    pub(crate) region: u32,
    /// Byte offset into its backing.
    pub(crate) offset: u64,
    /// Bytes.
    pub(crate) length: u64,
}

/// What is about to be done to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Right {
    LocalRead,
    LocalWrite,
    RemoteRead,
    RemoteWrite,
    RemoteAtomic,
}

impl Right {
    fn granted(self, access: Access) -> bool {
        match self {
            Self::LocalRead => true,
            Self::LocalWrite => access.local_write,
            Self::RemoteRead => access.remote_read,
            Self::RemoteWrite => access.remote_write,
            Self::RemoteAtomic => access.remote_atomic,
        }
    }

    fn is_local(self) -> bool {
        matches!(self, Self::LocalRead | Self::LocalWrite)
    }
}

impl<P: Platform> Engine<P> {
    /// Registers memory; the key is its lkey and its rkey.
    ///
    /// # Errors
    /// Unknown protection domain, an end beyond the address space, no key left.
    pub fn create_mr(&mut self, memory: MemoryRegion<P::Backing>) -> Result<Key, EngineError> {
        self.check_memory(&memory)?;
        let consumer_key = self.random.next() as u8;
        self.insert_protected(consumer_key, |key| {
            Protected::Region(Region { memory, key, valid: true, windows: 0 })
        })
    }

    /// Gives a region other memory, rights or owner under the same key.
    ///
    /// # Errors
    /// As [`Self::create_mr`]; unknown key; windows are bound to the region.
    pub fn update_mr(&mut self, key: Key, memory: MemoryRegion<P::Backing>) -> Result<(), EngineError> {
        self.check_memory(&memory)?;
        let region = self.own_region(key)?;
        if region.windows > 0 {
            return Err(EngineError::Busy);
        }
        region.memory = memory;
        region.valid = true;
        Ok(())
    }

    /// Takes a region away.
    ///
    /// # Errors
    /// Unknown key; windows are bound to the region.
    pub fn destroy_mr(&mut self, key: Key) -> Result<(), EngineError> {
        if self.own_region(key)?.windows > 0 {
            return Err(EngineError::Busy);
        }
        self.protected.remove(key_index(key));
        Ok(())
    }

    fn check_memory(&self, memory: &MemoryRegion<P::Backing>) -> Result<(), EngineError> {
        if !self.pds.contains(memory.pd) {
            return Err(EngineError::NotFound);
        }
        if memory.length > 0 && memory.address.checked_add(memory.length - 1).is_none() {
            return Err(EngineError::Invalid);
        }
        Ok(())
    }

    fn own_region(&mut self, key: Key) -> Result<&mut Region<P::Backing>, EngineError> {
        match self.protected.get_mut(key_index(key)) {
            Some(Protected::Region(region)) if region.key == key => Ok(region),
            _ => Err(EngineError::NotFound),
        }
    }

    /// Enters what `make` makes of its key under a fresh index.
    pub(crate) fn insert_protected(
        &mut self,
        consumer_key: u8,
        make: impl FnOnce(Key) -> Protected<P::Backing>,
    ) -> Result<Key, EngineError> {
        let key = |index: u32| index << 8 | u32::from(consumer_key);
        self.protected.insert_with(|index| make(key(index))).map(key)
    }

    /// Checks that work on `qp` (of protection domain `pd`) may do `right` to `length` bytes
    /// at `address` under `key`, and says where they are; else the event code.
    pub(crate) fn resolve(
        &self,
        qp: QpId,
        pd: PdId,
        key: Key,
        address: u64,
        length: u64,
        right: Right,
    ) -> Result<Segment, u16> {
        let index = key_index(key);
        match self.protected.get(index).ok_or(code::BAD_STAG_INDEX)? {
            Protected::Region(region) => {
                if region.key != key {
                    return Err(code::BAD_STAG_KEY);
                }
                if !region.valid {
                    return Err(code::INVALID_STAG);
                }
                if region.memory.pd != pd {
                    return Err(code::BAD_PD);
                }
                if !right.granted(region.memory.access) {
                    return Err(code::RIGHTS_VIOLATION);
                }
                Ok(Segment { region: index, offset: region.locate(address, length)?, length })
            }
            Protected::Window(window) => {
                if window.key != key {
                    return Err(code::BAD_STAG_KEY);
                }
                let binding = window.binding.as_ref().ok_or(code::INVALID_STAG)?;
                if window.pd != pd {
                    return Err(code::BAD_PD);
                }
                if binding.qp.is_some_and(|bound_on| bound_on != qp) {
                    return Err(code::BAD_QP);
                }
                // A window is opened by the remote side only.
                if right.is_local() || !right.granted(binding.access) {
                    return Err(code::RIGHTS_VIOLATION);
                }
                let start = if binding.access.zero_based { 0 } else { binding.address };
                let within = locate(start, binding.length, address, length)?;
                match self.protected.get(binding.parent) {
                    Some(Protected::Region(region)) if region.valid => {
                        let offset = region.locate(binding.address, binding.length)? + within;
                        Ok(Segment { region: binding.parent, offset, length })
                    }
                    _ => Err(code::INVALID_STAG),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_end_where_they_end() {
        assert_eq!(locate(0x1000, 16, 0x1000, 16), Ok(0));
        assert_eq!(locate(0x1000, 16, 0x100f, 1), Ok(15));
        assert_eq!(locate(0x1000, 16, 0x1001, 16), Err(code::BOUNDS_VIOLATION));
        assert_eq!(locate(0x1000, 16, 0xfff, 1), Err(code::BOUNDS_VIOLATION));
        assert_eq!(locate(0, u64::MAX, u64::MAX - 1, 3), Err(code::ADDRESS_WRAP));
        assert_eq!(locate(1, u64::MAX, u64::MAX, 1), Err(code::ADDRESS_WRAP));
    }
}
