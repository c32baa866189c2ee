//! Memory windows: bind, invalidate.

use crate::engine::Engine;
use crate::event::code;
use crate::mr::{Protected, key_index};
use crate::platform::Platform;
use crate::spec::{Access, EngineError, Key, PdId, QpId, WindowKind};

/// A memory window.
#[derive(Debug)]
pub(crate) struct Window {
    pub(crate) pd: PdId,
    pub(crate) kind: WindowKind,
    pub(crate) key: Key,
    pub(crate) binding: Option<Binding>,
}

/// What a window is bound to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Binding {
    /// Key index of the region.
    pub(crate) parent: u32,
    pub(crate) address: u64,
    pub(crate) length: u64,
    pub(crate) access: Access,
    /// The queue pair it may be used on (type 2).
    pub(crate) qp: Option<QpId>,
}

/// A bind work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bind {
    /// The window's key from now on.
    pub(crate) window: Key,
    /// The region's key.
    pub(crate) parent: Key,
    pub(crate) address: u64,
    pub(crate) length: u64,
    pub(crate) access: Access,
    pub(crate) kind: WindowKind,
}

impl<P: Platform> Engine<P> {
    /// Creates a window, bound to nothing.
    ///
    /// # Errors
    /// Unknown protection domain, no key left.
    pub fn create_mw(&mut self, pd: PdId, kind: WindowKind) -> Result<Key, EngineError> {
        if !self.pds.contains(pd) {
            return Err(EngineError::NotFound);
        }
        let consumer_key = self.random.next() as u8;
        self.insert_protected(consumer_key, |key| Protected::Window(Window { pd, kind, key, binding: None }))
    }

    /// Takes a window away, bound or not; the low byte of `key` does not matter, as work
    /// requests change it.
    ///
    /// # Errors
    /// Unknown key.
    pub fn destroy_mw(&mut self, key: Key) -> Result<(), EngineError> {
        let index = key_index(key);
        if !matches!(self.protected.get(index), Some(Protected::Window(_))) {
            return Err(EngineError::NotFound);
        }
        self.unbind(index);
        self.protected.remove(index);
        Ok(())
    }

    /// Loosens the window at `index` from its region, if it is bound.
    fn unbind(&mut self, index: u32) {
        let Some(Protected::Window(window)) = self.protected.get_mut(index) else { return };
        let Some(binding) = window.binding.take() else { return };
        if let Some(Protected::Region(region)) = self.protected.get_mut(binding.parent) {
            region.windows = region.windows.saturating_sub(1);
        }
    }

    /// Carries out a bind posted on `qp`; else the event code.
    pub(crate) fn bind(&mut self, qp: QpId, pd: PdId, bind: &Bind) -> Result<(), u16> {
        let index = key_index(bind.window);
        let window = match self.protected.get(index).ok_or(code::BAD_STAG_INDEX)? {
            Protected::Region(_) => return Err(code::BIND_OF_REGION_STAG),
            Protected::Window(window) => window,
        };
        if window.pd != pd {
            return Err(code::BAD_PD);
        }
        if window.kind != bind.kind {
            return Err(code::BIND_WRONG_TYPE);
        }
        if bind.kind == WindowKind::Type2 && window.binding.is_some() {
            return Err(code::BIND_VALID_STAG);
        }
        if bind.kind == WindowKind::Type1 && bind.access.zero_based {
            return Err(code::BIND_ZERO_BASED_TYPE1);
        }
        // A type-1 window is unbound by a bind of length zero.
        let binding = if bind.kind == WindowKind::Type1 && bind.length == 0 {
            None
        } else {
            Some(self.check_bind(qp, pd, bind)?)
        };
        self.unbind(index);
        if let Some(Protected::Window(window)) = self.protected.get_mut(index) {
            window.key = bind.window;
            window.binding = binding;
        }
        if let Some(binding) = binding
            && let Some(Protected::Region(region)) = self.protected.get_mut(binding.parent)
        {
            region.windows += 1;
        }
        Ok(())
    }

    fn check_bind(&self, qp: QpId, pd: PdId, bind: &Bind) -> Result<Binding, u16> {
        let parent = key_index(bind.parent);
        let region = match self.protected.get(parent) {
            Some(Protected::Region(region)) if region.key == bind.parent && region.valid => region,
            Some(Protected::Window(_)) => return Err(code::BIND_TO_WINDOW_STAG),
            _ => return Err(code::BIND_INVALID_PARENT),
        };
        let rights = region.memory.access;
        if region.memory.pd != pd {
            return Err(code::BAD_PD);
        }
        if !rights.window_bind {
            return Err(code::BIND_DISABLED);
        }
        if rights.zero_based {
            return Err(code::BIND_TO_ZERO_BASED);
        }
        if (bind.access.remote_write || bind.access.remote_atomic) && !rights.local_write {
            return Err(code::BIND_INVALID_RIGHTS);
        }
        // A zero-based window's WQE holds no address: it lies at the region's start.
        let address = if bind.access.zero_based { region.memory.address } else { bind.address };
        region.locate(address, bind.length).map_err(|_| code::BIND_INVALID_BOUNDS)?;
        let qp = (bind.kind == WindowKind::Type2).then_some(qp);
        Ok(Binding { parent, address, length: bind.length, access: bind.access, qp })
    }

    /// Invalidates `key` for work on `qp`: its own (`remote` false) or its peer's; else the
    /// event code.
    pub(crate) fn invalidate(&mut self, qp: QpId, pd: PdId, key: Key, remote: bool) -> Result<(), u16> {
        let index = key_index(key);
        match self.protected.get_mut(index).ok_or(code::BAD_STAG_INDEX)? {
            Protected::Region(region) => {
                if region.key != key {
                    return Err(code::BAD_STAG_KEY);
                }
                if region.memory.pd != pd {
                    return Err(code::BAD_PD);
                }
                let access = region.memory.access;
                if remote && !(access.remote_read || access.remote_write || access.remote_atomic) {
                    return Err(code::INVALIDATE_NO_REMOTE_ACCESS);
                }
                if region.windows > 0 {
                    return Err(code::INVALIDATE_REGION_WITH_WINDOWS);
                }
                region.valid = false;
            }
            Protected::Window(window) => {
                if window.key != key {
                    return Err(code::BAD_STAG_KEY);
                }
                if window.pd != pd {
                    return Err(code::BAD_PD);
                }
                if window.kind == WindowKind::Type1 {
                    return Err(code::INVALIDATE_TYPE1_WINDOW);
                }
                if window.binding.is_some_and(|binding| binding.qp != Some(qp)) {
                    return Err(code::BAD_QP);
                }
                self.unbind(index);
            }
        }
        Ok(())
    }
}
