//! Memory regions: what an lkey or rkey opens, and every check on the way.

use crate::engine::Engine;
use crate::event::code;
use crate::mw::Window;
use crate::platform::Platform;
use crate::spec::{Access, EngineError, FunctionId, Id, Key, MemoryRegion, PdId, QpId};

/// A registered region.
#[derive(Debug)]
pub(crate) struct Region<B> {
    pub(crate) memory: MemoryRegion<B>,
    pub(crate) key: Key,
    /// False once invalidated by a work request.
    pub(crate) valid: bool,
    /// Windows bound to it.
    pub(crate) windows: u32,
    /// Most bytes that a work request may register under its key.
    pub(crate) room: u64,
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

/// What a key of a function names.
pub(crate) fn protected_id(function: FunctionId, key: Key) -> Id {
    Id { function, number: key_index(key) }
}

/// The key by which kernel queue pairs name all of their function's memory.
const PHYSICAL: Key = 0;

/// Where a checked piece of memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In a region.
    Region(Id),
    /// In what key 0 opens to a privileged queue pair.
    Physical(QpId),
}

/// A checked piece of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// The memory.
    pub(crate) place: Place,
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
    /// Registers memory, under a key of the engine's choice if none is given; it is lkey and
    /// rkey.
    ///
    /// # Errors
    /// Unknown protection domain, an end beyond the address space; the key's index is taken, or
    /// none is left.
    pub fn create_mr(
        &mut self,
        memory: MemoryRegion<P::Backing>,
        key: Option<Key>,
    ) -> Result<Key, EngineError> {
        self.insert_region(memory, key, true)
    }

    /// Keeps a key for a region that a work request registers later
    /// ([`Platform::fast_memory`]); until then it opens nothing.
    ///
    /// # Errors
    /// As [`Self::create_mr`].
    pub fn reserve_mr(
        &mut self,
        memory: MemoryRegion<P::Backing>,
        key: Option<Key>,
    ) -> Result<Key, EngineError> {
        self.insert_region(memory, key, false)
    }

    fn insert_region(
        &mut self,
        memory: MemoryRegion<P::Backing>,
        key: Option<Key>,
        valid: bool,
    ) -> Result<Key, EngineError> {
        self.check_memory(&memory)?;
        let room = memory.length;
        self.insert_protected(memory.pd.function, key, |key| {
            Protected::Region(Region { memory, key, valid, windows: 0, room })
        })
    }

    /// Gives a region other memory, rights or owner under the same key.
    ///
    /// # Errors
    /// As [`Self::create_mr`]; unknown key; windows are bound to the region.
    pub fn update_mr(&mut self, key: Key, memory: MemoryRegion<P::Backing>) -> Result<(), EngineError> {
        self.check_memory(&memory)?;
        let region = self.own_region(memory.pd.function, key)?;
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
    pub fn destroy_mr(&mut self, function: FunctionId, key: Key) -> Result<(), EngineError> {
        if self.own_region(function, key)?.windows > 0 {
            return Err(EngineError::Busy);
        }
        self.protected.remove(protected_id(function, key));
        Ok(())
    }

    /// Takes away what a key index names: a region or a window.
    ///
    /// # Errors
    /// Nothing of that index; windows are bound to the region.
    pub fn free_key(&mut self, function: FunctionId, index: u32) -> Result<(), EngineError> {
        let id = Id { function, number: index };
        let key = match self.protected.get(id).ok_or(EngineError::NotFound)? {
            Protected::Window(window) => window.key,
            Protected::Region(region) => {
                let key = region.key;
                return self.destroy_mr(function, key);
            }
        };
        self.destroy_mw(function, key)
    }

    pub(crate) fn check_memory(&self, memory: &MemoryRegion<P::Backing>) -> Result<(), EngineError> {
        if !self.pds.contains(memory.pd) {
            return Err(EngineError::NotFound);
        }
        if memory.length > 0 && memory.address.checked_add(memory.length - 1).is_none() {
            return Err(EngineError::Invalid);
        }
        Ok(())
    }

    fn own_region(&mut self, function: FunctionId, key: Key) -> Result<&mut Region<P::Backing>, EngineError> {
        match self.protected.get_mut(protected_id(function, key)) {
            Some(Protected::Region(region)) if region.key == key => Ok(region),
            _ => Err(EngineError::NotFound),
        }
    }

    /// Enters what `make` makes of its key: the one given, or one of the engine's choice.
    pub(crate) fn insert_protected(
        &mut self,
        function: FunctionId,
        key: Option<Key>,
        make: impl FnOnce(Key) -> Protected<P::Backing>,
    ) -> Result<Key, EngineError> {
        let consumer_key = key.unwrap_or_else(|| self.random.next() as u32) & 0xff;
        let key_of = |id: Id| id.number << 8 | consumer_key;
        self.protected.insert_with(function, key.map(key_index), |id| make(key_of(id))).map(key_of)
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
        if key == PHYSICAL && right.is_local() && self.is_privileged(qp) {
            let offset = locate(0, u64::MAX, address, length)?;
            return Ok(Segment { place: Place::Physical(qp), offset, length });
        }
        let id = protected_id(qp.function, key);
        match self.protected.get(id).ok_or(code::BAD_STAG_INDEX)? {
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
                Ok(Segment { place: Place::Region(id), offset: region.locate(address, length)?, length })
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
                        Ok(Segment { place: Place::Region(binding.parent), offset, length })
                    }
                    _ => Err(code::INVALID_STAG),
                }
            }
        }
    }
}

impl<P: Platform> Engine<P> {
    /// Whether a queue pair is one of the kernel's own.
    pub(crate) fn is_privileged(&self, qp: QpId) -> bool {
        self.qps.get(qp).is_some_and(|qp| qp.privileged.is_some())
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
