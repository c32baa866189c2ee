//! Memory windows: bind, invalidate.

use crate::engine::Engine;
use crate::event::code;
use crate::mr::{Protected, protected_id};
use crate::platform::Platform;
use crate::spec::{Access, EngineError, FunctionId, Id, Key, PdId, QpId, WindowKind};

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
    /// The region.
    pub(crate) parent: Id,
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
    /// Creates a window, bound to nothing, under a key of the engine's choice if none is given.
    ///
    /// # Errors
    /// Unknown protection domain; the key's index is taken, or none is left.
    pub fn create_mw(&mut self, pd: PdId, kind: WindowKind, key: Option<Key>) -> Result<Key, EngineError> {
        if !self.pds.contains(pd) {
            return Err(EngineError::NotFound);
        }
        self.insert_protected(pd.function, key, |key| {
            Protected::Window(Window { pd, kind, key, binding: None })
        })
    }

    /// Takes a window away, bound or not; the low byte of `key` does not matter, as work
    /// requests change it.
    ///
    /// # Errors
    /// Unknown key.
    pub fn destroy_mw(&mut self, function: FunctionId, key: Key) -> Result<(), EngineError> {
        let id = protected_id(function, key);
        if !matches!(self.protected.get(id), Some(Protected::Window(_))) {
            return Err(EngineError::NotFound);
        }
        self.unbind(id);
        self.protected.remove(id);
        Ok(())
    }

    /// Loosens a window from its region, if it is bound.
    fn unbind(&mut self, id: Id) {
        let Some(Protected::Window(window)) = self.protected.get_mut(id) else { return };
        let Some(binding) = window.binding.take() else { return };
        if let Some(Protected::Region(region)) = self.protected.get_mut(binding.parent) {
            region.windows = region.windows.saturating_sub(1);
        }
    }

    /// Carries out a bind posted on `qp`; else the event code.
    pub(crate) fn bind(&mut self, qp: QpId, pd: PdId, bind: &Bind) -> Result<(), u16> {
        let id = protected_id(qp.function, bind.window);
        let window = match self.protected.get(id).ok_or(code::BAD_STAG_INDEX)? {
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
        self.unbind(id);
        if let Some(Protected::Window(window)) = self.protected.get_mut(id) {
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
        let parent = protected_id(qp.function, bind.parent);
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
        let id = protected_id(qp.function, key);
        match self.protected.get_mut(id).ok_or(code::BAD_STAG_INDEX)? {
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
                self.unbind(id);
            }
        }
        Ok(())
    }
}
